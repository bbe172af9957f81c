/**
 * The process that serves roles until it is told to stop. It answers probes from its first moment, and waits for what
 * it needs instead of ending: a database that comes up a minute after it is the usual case, not a failure.
 */
import { homedir } from "node:os";
import { join } from "node:path";
import { v7 as uuidv7 } from "uuid";
import { startControllers } from "#controllers/start.ts";
import type { EngineDeps, EngineSettings } from "#engine/deps.ts";
import { asRows } from "#engine/emissions.ts";
import type { Credentials } from "#engine/ports.ts";
import { readEndpoint } from "#engine/agent.ts";
import { Classifier } from "#engine/classify.ts";
import { Decider } from "#engine/decider.ts";
import { ModelJudge } from "#engine/judge.ts";
import { Redaction } from "#engine/redaction.ts";
import { keepCheckingRefs } from "#engine/refs.ts";
import { keepLookingAtWaits, lookAtWaits, tellOthers } from "#engine/waits.ts";
import { Signals } from "#engine/signals.ts";
import { Worker } from "#engine/worker.ts";
import { KubeClient } from "#kube/client.ts";
import { connect, type Connection } from "#kube/connection.ts";
import { KubeSecrets } from "#kube/secrets.ts";
import { Database } from "#ledger/database.ts";
import { oldestSnapshotMs } from "#ledger/health.ts";
import { claimLedger } from "#ledger/installation.ts";
import { checkSchema } from "#ledger/migrate.ts";
import { listenToLedger } from "#ledger/notify.ts";
import { mcpServers } from "#mcp/servers.ts";
import { OpenAiModels } from "#models/openai.ts";
import { serveHealth, type Probe } from "#observability/http.ts";
import { createLog, type Log, withoutPassword } from "#observability/log.ts";
import { createMetrics, type Metrics, watchLedger } from "#observability/metrics.ts";
import { isPawlError, PawlError } from "#rules/errors.ts";
import { afterFailure } from "#rules/retry.ts";
import { allowance } from "#tools/addresses.ts";
import { createDialer } from "#tools/dialer.ts";
import { httpRequestTool } from "#tools/http-request.ts";
import { calculate } from "#tools/quick.ts";
import { toolRegistry } from "#tools/registry.ts";
import { systemClock } from "./clock.ts";
import type { Config } from "./config.ts";

export type Role = "controller" | "worker";

/** Between two looks at something that the process waits for. */
const LOOK_AGAIN_MS = 1_000;

export function ledgerUrl(config: Config): string {
  const url = config.ledgerUrl ?? "";
  if (url === "") {
    const text = "PAWL_LEDGER_URL is not set: it names the PostgreSQL database of the ledger";
    throw new PawlError("terminal", "LedgerMissing", text);
  }
  if (!/^postgres(ql)?:\/\//.test(url) || !URL.canParse(url)) {
    const text = "PAWL_LEDGER_URL must read postgres://user:password@host:port/database";
    throw new PawlError("terminal", "ConfigInvalid", text);
  }
  return url;
}

export function kubeConnection(config: Config): Connection | null {
  switch (config.kubernetes) {
    case "none":
      return null;
    case "cluster":
      return connect({ from: { inCluster: true } });
    case "kubeconfig": {
      if (config.context === undefined) {
        const text = "PAWL_CONTEXT must name the cluster: an exported KUBECONFIG alone names nothing";
        throw new PawlError("terminal", "ContextMissing", text);
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

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Secrets of the process itself. */
function knownAtStart(config: Config, url: string): Redaction {
  const { password } = new URL(url);
  return new Redaction([
    ...[password, decoded(password)].map((value) => ({ what: "the ledger password", value })),
    { what: "the model key of the install", value: config.defaultModelKey?.trim() ?? "" },
  ]);
}

/** Its key, if it needs one, is that of the install's endpoint: it has no namespace to look for a Secret in. */
function decisionModel({ defaults }: Config): Pick<EngineSettings, "decisionModel"> {
  const named = (defaults as { models?: { decision?: unknown } | null } | null)?.models?.decision;
  if (named === undefined || named === null) return {};
  const decision = readEndpoint(named);
  if (decision === undefined || decision.apiKeySecretRef !== undefined || !URL.canParse(decision.baseURL)) {
    const text =
      "PAWL_DEFAULTS: models.decision needs baseURL and model, and no apiKeySecretRef (the install's key goes to the install's endpoint only)";
    throw new PawlError("terminal", "ConfigInvalid", text);
  }
  return { decisionModel: decision };
}

type Parts = {
  readonly config: Config;
  readonly db: Database;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly credentials: Credentials;
  readonly redaction: Redaction;
  readonly model: OpenAiModels;
};

function workerDeps({ config, db, log, metrics, credentials, redaction, model }: Parts): EngineDeps {
  const dialer = createDialer({ clock: systemClock, allowance: allowance(config.outboundAllow) });
  const http = httpRequestTool({ clock: systemClock, dialer });
  const primary = (config.defaults as { models?: { primary?: { baseURL?: string } } } | null)?.models?.primary;
  const installModel =
    config.defaultModelKey === undefined || primary?.baseURL === undefined
      ? {}
      : { installModel: { baseURL: primary.baseURL, apiKey: config.defaultModelKey } };
  const deps: EngineDeps = {
    db,
    model,
    tools: toolRegistry([calculate, { ...http, timeLimitMs: config.httpTimeoutMs }]),
    servers: mcpServers({ clock: systemClock, dialer, credentials, callMs: config.mcpTimeoutMs }),
    outbound: asRows,
    credentials,
    redaction,
    clock: systemClock,
    random: Math.random,
    newId: uuidv7,
    retry: afterFailure,
    settings: { owner: config.instance, ...config, ...installModel, ...decisionModel(config) },
    log,
    meter: metrics.engine,
    signals: new Signals(),
  };
  const judge = new ModelJudge(new Classifier(deps));
  return { ...deps, judge, sensitivity: (text, whose) => judge.sensitivity(text, whose) };
}

/** Until `look` succeeds or the signal fires: says once per reason what it waits for. Throws what waiting cannot mend. */
async function waitFor(what: string, look: () => Promise<unknown>, log: Log, signal: AbortSignal): Promise<void> {
  for (let said = ""; !signal.aborted; ) {
    try {
      await look();
      return;
    } catch (error) {
      if (!isPawlError(error, "transient")) throw error;
      if (error.reason !== said) log.warn({ reason: error.reason, error: error.message }, `waiting for the ${what}`);
      said = error.reason;
      await systemClock.sleep(LOOK_AGAIN_MS, signal);
    }
  }
}

type Process = {
  readonly config: Config;
  readonly roles: readonly Role[];
  readonly log: Log;
  readonly redaction: Redaction;
  readonly metrics: Metrics;
  readonly probes: Probe[];
  readonly stop: AbortController;
};

export async function serve(config: Config, roles: readonly Role[]): Promise<void> {
  // What is wrong with the configuration is said before anything listens or waits.
  const url = ledgerUrl(config);
  const connection = kubeConnection(config);
  if (connection === null && roles.includes("controller")) {
    const text = "the controller needs a cluster: set PAWL_KUBERNETES to cluster or kubeconfig";
    throw new PawlError("terminal", "ClusterMissing", text);
  }
  decisionModel(config);
  const redaction = knownAtStart(config, url);
  const log = createLog(config.logLevel, config.instance, (line) => redaction.text(line));
  const stop = new AbortController();
  for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => stop.abort());
  const metrics = createMetrics();
  const probes: Probe[] = [];
  const self: Process = { config, roles, log, redaction, metrics, probes, stop };
  const health = await serveHealth(config.listen, metrics.registry, probes);
  log.info({ roles, port: health.port, ledger: withoutPassword(url) }, "listening");
  try {
    await waiting(self, "ledger", () => checkSchema(url));
    if (stop.signal.aborted) return;
    await using db = new Database({ url, name: `pawl-${roles.join("-")}` });
    watchLedger(metrics.registry, () => oldestSnapshotMs(db));
    await using kube = connection === null ? null : new KubeClient(connection);
    if (kube !== null) {
      await waiting(self, "cluster", async () => claimLedger(db, await kube.kubeSystemUid(), await kube.serverTime()));
      if (stop.signal.aborted) return;
    }
    await work(self, db, kube);
  } finally {
    stop.abort();
    await health.close();
    log.info({}, "stopped");
  }
}

async function waiting(self: Process, what: string, look: () => Promise<unknown>): Promise<void> {
  const probe: Probe = { name: what, ready: () => false };
  self.probes.push(probe);
  await waitFor(what, look, self.log, self.stop.signal);
  if (!self.stop.signal.aborted) self.probes.splice(self.probes.indexOf(probe), 1);
}

async function work(self: Process, db: Database, kube: KubeClient | null): Promise<void> {
  const { config, roles, log, redaction, metrics, probes, stop } = self;
  const running: Promise<void>[] = [];
  if (roles.includes("controller") && kube !== null) {
    const controllers = await startControllers({
      kube,
      db,
      config: {
        agentNamespaces: config.agentNamespaces,
        defaults: config.defaults as object,
        instance: config.instance,
        maxRuns: config.maxRuns,
        // As a person would type it: Pawl's own namespace is not theirs.
        ...(kube.namespace === undefined
          ? {}
          : { transcriptCommand: `kubectl exec -n ${kube.namespace} deploy/pawl-worker -- pawl transcript` }),
      },
      log,
      metrics: metrics.controllers,
      signal: stop.signal,
    });
    probes.push({ name: "controllers", ready: () => controllers.ready() });
    running.push(controllers.stopped);
  }
  if (roles.includes("worker")) {
    // Nobody below sees the port as it is: what it finds is known to `redaction` before anybody else has it.
    const credentials = redaction.watching(kube === null ? withoutCluster : new KubeSecrets(kube));
    const onWait = tellOthers({ db, clock: systemClock, log });
    const model = new OpenAiModels({ clock: systemClock, onWait });
    const deps = workerDeps({ config, db, log, metrics, credentials, redaction, model });
    // Before the first claim: a worker that was started again has forgotten what it was told.
    await lookAtWaits(deps, model).catch((error: Error) => log.warn({ error: error.message }, "no waits were read"));
    const worker = new Worker(deps);
    const decider = new Decider(deps);
    const due = () => {
      worker.wake();
      decider.wake();
    };
    listenToLedger(ledgerUrl(config), { due, signal: (runId) => deps.signals?.tell(runId) }, stop.signal);
    worker.start();
    probes.push({ name: "worker", ready: () => worker.healthy });
    running.push(
      decider.run(stop.signal),
      keepCheckingRefs(deps, stop.signal),
      keepLookingAtWaits(deps, model, stop.signal),
      stopped(stop.signal).then(() => worker.stop()),
    );
  }
  log.info({ roles }, "serving");
  try {
    await Promise.all(running);
  } finally {
    // One part that failed ends the process, but not under the hands of the others.
    stop.abort();
    await Promise.allSettled(running);
  }
}

const stopped = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
