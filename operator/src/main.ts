/**
 * The command line: `pawl run` serves roles (serve.ts), the other commands do one thing and end. One sentence for a
 * person when something is wrong, and exit code 1.
 */
import { appendFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { effectsOf, parseResolution, resolveOf } from "#cli/effects.ts";
import { forgetOf, memoriesOf, parseForget } from "#cli/memories.ts";
import { parseStep, TRACE_USAGE, traceOf } from "#cli/trace.ts";
import { transcriptOf } from "#cli/transcript.ts";
import { whyOf } from "#cli/why.ts";
import { KubeClient } from "#kube/client.ts";
import { Database } from "#ledger/database.ts";
import { adoptLedger } from "#ledger/installation.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { checkSchema, migrate } from "#ledger/migrate.ts";
import { isPawlError, PawlError } from "#rules/errors.ts";
import { systemClock } from "./clock.ts";
import { type Config, readConfig } from "./config.ts";
import { armFailpoint, recordFailpoints } from "./failpoints.ts";
import { kubeConnection, ledgerUrl, type Role, serve } from "./serve.ts";

const HELP = `pawl: agents whose turns may be restarted freely until they have changed the world, and never silently after

  pawl run [--roles=controller,worker]   serve these roles (default: both; --roles=all is for development)
  pawl migrate [--wait]                  bring the ledger's schema up to date; --wait: until the database answers
  pawl transcript NAME [-n NAMESPACE]    a whole turn as text, answer included
  pawl why RUN [-n NAMESPACE]            the story of a turn (Run name or id), with its point of no return
  pawl trace RUN [STEP] [--json]         each request to the model, built again from rows and checked against what was
                                         sent; --json: the requests; exit code 1 if one differs or cannot be checked
  pawl effects [-n NAMESPACE] [--all]    writes in flight or of unknown outcome; --all: every one
  pawl effects resolve ID --landed|--not-landed --by NAME [--reason TEXT]
                                         what a person found out about an unknown one; it is final
  pawl memories AGENT [-n NAMESPACE] [--all]
                                         what an agent remembers and who sees it; --all: the forgotten too
  pawl memories forget ID --by NAME      take a memory back: no agent recalls it any more
  pawl doctor                            check the ledger's invariants; exit code 1 if one is broken
  pawl adopt-ledger                      take over the ledger of a cluster that is gone for good
  pawl --help

Configuration comes from the environment: PAWL_LEDGER_URL names the PostgreSQL (15 to 18); see operator/src/config.ts.
`;

const ROLES: readonly Role[] = ["controller", "worker"];

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

async function effects(
  config: Config,
  verb: string | undefined,
  id: string | undefined,
  values: Parameters<typeof parseResolution>[1] & { readonly namespace: string; readonly all: boolean },
): Promise<void> {
  if (verb === undefined) {
    const which = { namespace: values.namespace, every: values.all };
    console.log(await withLedger(config, (db) => effectsOf(db, which)));
    return;
  }
  if (verb !== "resolve")
    throw new PawlError("terminal", "Usage", "pawl effects, or pawl effects resolve; see pawl --help");
  const resolution = parseResolution(id, values);
  console.log(await withLedger(config, (db) => resolveOf(db, resolution)));
}

async function trace(config: Config, which: Parameters<typeof traceOf>[1]): Promise<void> {
  const { text, proven } = await withLedger(config, (db) => traceOf(db, which));
  console.log(text);
  if (!proven) process.exitCode = 1;
}

async function memories(
  config: Config,
  name: string | undefined,
  id: string | undefined,
  values: { readonly namespace: string; readonly all: boolean; readonly by?: string | undefined },
): Promise<void> {
  if (name === undefined) {
    throw new PawlError(
      "terminal",
      "Usage",
      "pawl memories AGENT [-n NAMESPACE], or pawl memories forget ID --by NAME",
    );
  }
  // An Agent that is named `forget` is listed all the same: forgetting needs an id.
  if (name === "forget" && (id !== undefined || values.by !== undefined)) {
    const asked = parseForget(id, values.by);
    console.log(await withLedger(config, (db) => forgetOf(db, asked)));
    return;
  }
  const which = { namespace: values.namespace, agent: name, every: values.all };
  console.log(await withLedger(config, (db) => memoriesOf(db, which)));
}

async function main(argv: readonly string[]): Promise<void> {
  const { positionals, values } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      roles: { type: "string", default: "all" },
      namespace: { type: "string", short: "n", default: "default" },
      wait: { type: "boolean", default: false },
      all: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      landed: { type: "boolean", default: false },
      "not-landed": { type: "boolean", default: false },
      by: { type: "string" },
      reason: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  const [command = "run", name, id] = positionals;
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
    case "why":
      if (name === undefined) throw new PawlError("terminal", "Usage", "pawl why RUN [-n NAMESPACE]");
      console.log(await withLedger(config, (db) => whyOf(db, values.namespace, name)));
      return;
    case "trace":
      if (name === undefined) throw new PawlError("terminal", "Usage", TRACE_USAGE);
      return trace(config, { namespace: values.namespace, name, step: parseStep(id), json: values.json });
    case "effects":
      return effects(config, name, id, values);
    case "memories":
      return memories(config, name, id, values);
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
