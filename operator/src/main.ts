/**
 * The composition root: the only file that sees everything. One image, several roles; `pawl --help` lists what else it
 * can do.
 */
import { appendFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { v7 as uuidv7 } from "uuid";
import { transcriptOf } from "#cli/transcript.ts";
import { startControllers } from "#controllers/start.ts";
import type { EngineDeps } from "#engine/deps.ts";
import type { Credentials } from "#engine/ports.ts";
import { keepCheckingRefs } from "#engine/refs.ts";
import { Worker } from "#engine/worker.ts";
import { KubeClient } from "#kube/client.ts";
import { connect, type Connection } from "#kube/connection.ts";
import { KubeSecrets } from "#kube/secrets.ts";
import { Database } from "#ledger/database.ts";
import { adoptLedger, claimLedger } from "#ledger/installation.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { checkSchema, migrate } from "#ledger/migrate.ts";
import { listenForDue } from "#ledger/notify.ts";
import { OpenAiModels } from "#models/openai.ts";
import { afterFailure } from "#rules/retry.ts";
import { serveHealth, type Probe } from "#observability/http.ts";
import { createLog, type Log, withoutPassword } from "#observability/log.ts";
import { createMetrics, type Metrics } from "#observability/metrics.ts";
import { isPawlError, PawlError } from "#rules/errors.ts";
import { allowance } from "#tools/addresses.ts";
import { createDialer } from "#tools/dialer.ts";
import { httpRequestTool } from "#tools/http-request.ts";
import { calculate } from "#tools/quick.ts";
import { toolRegistry } from "#tools/registry.ts";
import { systemClock } from "./clock.ts";
import { type Config, readConfig } from "./config.ts";
import { armFailpoint, recordFailpoints } from "./failpoints.ts";

const HELP = `pawl: agents whose turns may be restarted freely until they have changed the world, and never silently after

  pawl run [--roles=controller,worker]   serve these roles (default: both; --roles=all is for development)
  pawl migrate [--wait]                  bring the ledger's schema up to date; --wait: until the database answers
  pawl transcript NAME [-n NAMESPACE]    a whole turn as text, answer included
  pawl doctor                            check the ledger's invariants; exit code 1 if one is broken
  pawl adopt-ledger                      take over the ledger of a cluster that is gone for good
  pawl --help

Configuration comes from the environment: PAWL_LEDGER_URL names the PostgreSQL (15 to 18); see operator/src/config.ts.
`;

const ROLES = ["controller", "worker"] as const;
type Role = (typeof ROLES)[number];

export function parseRoles(text: string): Role[] {
  const asked = text === "all" ? [...ROLES] : text.split(",").map((role) => role.trim());
  const unknown = asked.filter((role) => !(ROLES as readonly string[]).includes(role));
  if (unknown.length > 0) {
    throw new PawlError(
      "terminal",
      "RoleUnknown",
      `no such role: ${unknown.join(", ")}; there are ${ROLES.join(", ")} and all`,
    );
  }
  return asked as Role[];
}

function ledgerUrl(config: Config): string {
  if (config.ledgerUrl !== undefined && config.ledgerUrl !== "") return config.ledgerUrl;
  throw new PawlError(
    "terminal",
    "LedgerMissing",
    "PAWL_LEDGER_URL is not set: it names the PostgreSQL database of the ledger",
  );
}

function kubeConnection(config: Config): Connection | null {
  switch (config.kubernetes) {
    case "none":
      return null;
    case "cluster":
      return connect({ from: { inCluster: true } });
    case "kubeconfig": {
      if (config.context === undefined) {
        throw new PawlError(
          "terminal",
          "ContextMissing",
          "PAWL_CONTEXT must name the cluster: an exported KUBECONFIG alone names nothing",
        );
      }
      const kubeconfig = config.kubeconfig ?? join(homedir(), ".kube/config");
      return connect({ from: { kubeconfig, context: config.context } });
    }
  }
}

const withoutCluster: Credentials = {
  get: (_namespace, ref) =>
    Promise.resolve({
      kind: "missing",
      message: `this worker runs without a cluster, so there is no Secret ${ref.name}`,
    }),
};

function workerDeps(config: Config, db: Database, log: Log, metrics: Metrics, credentials: Credentials): EngineDeps {
  const allow = allowance(config.outboundAllow);
  const http = httpRequestTool({ clock: systemClock, dialer: createDialer({ clock: systemClock, allowance: allow }) });
  const primary = (config.defaults as { models?: { primary?: { baseURL?: string } } }).models?.primary;
  const installModel =
    config.defaultModelKey === undefined || primary?.baseURL === undefined
      ? {}
      : { installModel: { baseURL: primary.baseURL, apiKey: config.defaultModelKey } };
  return {
    db,
    model: new OpenAiModels({ clock: systemClock }),
    tools: toolRegistry([calculate, { ...http, timeLimitMs: config.httpTimeoutMs }]),
    credentials,
    clock: systemClock,
    random: Math.random,
    newId: uuidv7,
    retry: afterFailure,
    settings: { owner: config.instance, ...config, ...installModel },
    log,
    meter: metrics.engine,
  };
}

/** Until the ledger answers and its schema fits: says once what it waits for. Throws what waiting cannot mend. */
async function awaitLedger(config: Config, log: Log, signal: AbortSignal): Promise<void> {
  const url = ledgerUrl(config);
  for (let said = ""; !signal.aborted; ) {
    try {
      return await checkSchema(url);
    } catch (error) {
      if (!isPawlError(error, "transient")) throw error;
      if (error.reason !== said)
        log.warn(
          { ledger: withoutPassword(url), reason: error.reason, error: error.message },
          "waiting for the ledger",
        );
      said = error.reason;
      await systemClock.sleep(1_000, signal);
    }
  }
}

async function serve(config: Config, roles: readonly Role[]): Promise<void> {
  const log = createLog(config.logLevel, config.instance);
  const stop = new AbortController();
  for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => stop.abort());
  const probes: Probe[] = [];
  const metrics = createMetrics();
  const health = await serveHealth(config.listen, metrics.registry, probes);
  const starting: Probe = { name: "ledger", ready: () => false };
  probes.push(starting);
  await awaitLedger(config, log, stop.signal);
  const db = new Database({ url: ledgerUrl(config), name: `pawl-${roles.join("-")}` });
  const connection = kubeConnection(config);
  const kube = connection === null ? null : new KubeClient(connection);
  try {
    if (stop.signal.aborted) return;
    if (kube !== null) await claimLedger(db, await kube.kubeSystemUid(), await kube.serverTime());
    const running: Promise<void>[] = [];
    if (roles.includes("controller")) {
      if (kube === null) {
        throw new PawlError(
          "terminal",
          "ClusterMissing",
          "the controller needs a cluster: set PAWL_KUBERNETES to cluster or kubeconfig",
        );
      }
      const controllers = await startControllers({
        kube,
        db,
        config: controllerConfig(config),
        log,
        metrics: metrics.controllers,
        signal: stop.signal,
      });
      probes.push({ name: "controllers", ready: () => controllers.ready() });
      running.push(controllers.stopped);
    }
    if (roles.includes("worker")) {
      const deps = workerDeps(config, db, log, metrics, kube === null ? withoutCluster : new KubeSecrets(kube));
      const worker = new Worker(deps);
      listenForDue(ledgerUrl(config), () => worker.wake(), stop.signal);
      worker.start();
      probes.push({ name: "worker", ready: () => worker.healthy });
      running.push(
        keepCheckingRefs(deps, stop.signal),
        stopped(stop.signal).then(() => worker.stop()),
      );
    }
    probes.splice(probes.indexOf(starting), 1);
    log.info({ roles, port: health.port, ledger: withoutPassword(ledgerUrl(config)) }, "serving");
    await Promise.all(running);
  } finally {
    stop.abort();
    await health.close();
    await db.close();
    await kube?.[Symbol.asyncDispose]();
    log.info({}, "stopped");
  }
}

const stopped = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });

function controllerConfig(config: Config) {
  return { agentNamespaces: config.agentNamespaces, defaults: config.defaults as object, instance: config.instance };
}

async function withLedger<T>(config: Config, work: (db: Database) => Promise<T>): Promise<T> {
  const url = ledgerUrl(config);
  await checkSchema(url);
  const db = new Database({ url, max: 2, name: "pawl-cli" });
  try {
    return await work(db);
  } finally {
    await db.close();
  }
}

async function migrateCommand(config: Config, wait: boolean): Promise<void> {
  for (;;) {
    try {
      const applied = await migrate({ url: ledgerUrl(config), log: (line) => console.log(line) });
      console.log(applied.length === 0 ? "the schema is up to date" : `applied ${applied.length} migration(s)`);
      return;
    } catch (error) {
      if (!wait || !isPawlError(error, "transient")) throw error;
      console.log(`waiting: ${error.message}`);
      await systemClock.sleep(1_000);
    }
  }
}

async function adopt(config: Config): Promise<void> {
  const connection = kubeConnection(config);
  if (connection === null)
    throw new PawlError("terminal", "ClusterMissing", "adopt-ledger must run where the new cluster can be reached");
  await using kube = new KubeClient(connection);
  const installation = await withLedger(config, async (db) =>
    adoptLedger(db, await kube.kubeSystemUid(), await kube.serverTime()),
  );
  console.log(`this ledger now belongs to cluster ${installation.kubeSystemUid}, epoch ${installation.epoch}`);
}

async function doctor(config: Config): Promise<void> {
  const broken = await withLedger(config, checkInvariants);
  for (const { invariant, offender } of broken) console.log(`broken: ${invariant}  ${offender}`);
  console.log(broken.length === 0 ? "every invariant holds" : `${broken.length} broken`);
  if (broken.length > 0) process.exitCode = 1;
}

async function main(argv: readonly string[]): Promise<void> {
  const { positionals, values } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      roles: { type: "string", default: "all" },
      namespace: { type: "string", short: "n", default: "default" },
      wait: { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  const [command = "run", name] = positionals;
  if (values.help || command === "help") {
    console.log(HELP);
    return;
  }
  const config = readConfig();
  if (config.failpoint !== undefined) armFailpoint(config.failpoint);
  const record = config.failpointLog;
  if (record !== undefined) recordFailpoints((point) => appendFileSync(record, `${point}\n`));
  switch (command) {
    case "run":
      return serve(config, parseRoles(values.roles));
    case "migrate":
      return migrateCommand(config, values.wait);
    case "transcript":
      if (name === undefined) throw new PawlError("terminal", "Usage", "pawl transcript NAME [-n NAMESPACE]");
      console.log(await withLedger(config, (db) => transcriptOf(db, values.namespace, name)));
      return;
    case "doctor":
      return doctor(config);
    case "adopt-ledger":
      return adopt(config);
    default:
      throw new PawlError("terminal", "Usage", `no such command: ${command}; see pawl --help`);
  }
}

if (import.meta.main) {
  try {
    await main(process.argv.slice(2));
  } catch (error) {
    // One sentence for a person; the stack only where it is a fault of ours.
    if (isPawlError(error) || (error as { code?: string }).code?.startsWith("ERR_PARSE_ARGS") === true) {
      console.error(`pawl: ${(error as Error).message}`);
    } else {
      console.error(error);
    }
    process.exitCode = 1;
  }
}
