/** The engine with its real adapters, against the fakes as processes: what they accepted is the evidence. */
import { v7 as uuidv7 } from "uuid";
import { type Fake, type LogEntry, type ModelScript, startFake } from "@pawl/fakes";
import type { EngineDeps, EngineSettings } from "#engine/deps.ts";
import { driveRun } from "#engine/drive.ts";
import { Database } from "#ledger/database.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { mcpServers } from "#mcp/servers.ts";
import { OpenAiModels } from "#models/openai.ts";
import { CODE } from "#rules/limits.ts";
import { afterFailure } from "#rules/retry.ts";
import { systemClock } from "#src/clock.ts";
import { allowance } from "#tools/addresses.ts";
import { createDialer } from "#tools/dialer.ts";
import { httpRequestTool } from "#tools/http-request.ts";
import { calculate } from "#tools/quick.ts";
import { bench, type Bench, engineAgent } from "./engine.ts";
import { aMessage } from "./world.ts";

export type ModelEntry = LogEntry & {
  readonly script: string;
  readonly step: number;
  readonly sample: number;
  readonly request: { readonly messages: readonly { role: string; content: string | null }[] };
};
export type WorldEntry = LogEntry & {
  readonly method: string;
  readonly path: string;
  readonly key: string | null;
  readonly outcome: string;
  readonly bodyPreview: string;
};

export type Reality = { readonly model: Fake; readonly world: Fake };

/** Both fakes for one file. */
export function useReality(): Reality {
  const held: { model?: Fake; world?: Fake } = {};
  before(async function () {
    this.timeout(30_000);
    [held.model, held.world] = await Promise.all([startFake("model"), startFake("world")]);
  });
  after(async () => {
    await Promise.all([held.model?.stop(), held.world?.stop()]);
  });
  const need = (fake: Fake | undefined): Fake => {
    if (fake === undefined) throw new Error("the fakes exist inside tests only");
    return fake;
  };
  return {
    get model() {
      return need(held.model);
    },
    get world() {
      return need(held.world);
    },
  };
}

/** Short, because tests wait them out; long enough that a busy machine is no fault. Milliseconds. */
export const TIMES = { sendMs: 1_000, httpMs: 1_000, settleSlackMs: 50 } as const;
export const SETTLE_MS = TIMES.sendMs + TIMES.httpMs + TIMES.settleSlackMs;

/** A bench whose model and tools are the real ones. */
export function realBench(
  db: Database,
  changes: { settings?: Partial<EngineSettings>; deps?: Partial<EngineDeps> } = {},
): Bench {
  const dialer = createDialer({ clock: systemClock, allowance: allowance(["127.0.0.1"]) });
  const { credentials = { get: () => Promise.resolve({ kind: "missing", message: "create the Secret" }) } } =
    changes.deps ?? {};
  const servers = mcpServers({ clock: systemClock, dialer, credentials, callMs: TIMES.httpMs });
  const http = { ...httpRequestTool({ clock: systemClock, dialer }), timeLimitMs: TIMES.httpMs };
  return bench(db, [], [calculate, http], {
    settings: { sendMs: TIMES.sendMs, settleSlackMs: TIMES.settleSlackMs, ...changes.settings },
    deps: { model: new OpenAiModels({ clock: systemClock }), servers, retry: afterFailure, ...changes.deps },
  });
}

export type Scene = {
  readonly id: string;
  readonly agentId: string;
  readonly runId: string;
  readonly eventId: string;
  readonly conversationKey: string;
  readonly path: (kind: "plain" | "keyed") => string;
  requests(): Promise<ModelEntry[]>;
  accepted(): Promise<WorldEntry[]>;
};

/** An agent at the model fake, its script, and a message that starts it. `{{plain}}` and `{{keyed}}` are its URLs. */
export async function scene(
  db: Database,
  fakes: Reality,
  steps: ModelScript["steps"],
  changes: {
    agent?: { tools?: object } & Record<string, unknown>;
    model?: Record<string, unknown>;
    tools?: readonly string[];
  } = {},
): Promise<Scene> {
  const id = uuidv7();
  await fakes.model.control("PUT", "/script", { scripts: { [id]: { steps } } });
  const { tools: offered, ...agentChanges } = { tools: {}, ...changes.agent };
  const agent = await engineAgent(db, changes.tools ?? ["calculate", "http_request"], {
    models: { primary: { baseURL: `${fakes.model.url}/v1`, model: "scripted", ...changes.model } },
    tools: { effects: [{ tool: "http_request", key: "Idempotency-Key" }], ...offered },
    ...agentChanges,
  });
  const path = (kind: "plain" | "keyed"): string => `/${kind}/${id}`;
  const text = `script:${id} plain=${fakes.world.url}${path("plain")} keyed=${fakes.world.url}${path("keyed")}`;
  const ingested = await ingest(db, aMessage(agent.id, { text, conversationKey: id }));
  if (!("runId" in ingested)) throw new Error(`the message became ${ingested.kind}`);
  return {
    id,
    agentId: agent.id,
    runId: ingested.runId,
    eventId: ingested.eventId,
    conversationKey: id,
    path,
    requests: async () => ((await fakes.model.log()) as ModelEntry[]).filter((entry) => entry.script === id),
    accepted: async () => ((await fakes.world.log()) as WorldEntry[]).filter((entry) => entry.path.includes(id)),
  };
}

export const UNKEYED = { tools: { effects: [] } };

export type Row = {
  status: string;
  reason: string | null;
  message: string | null;
  live: boolean;
  attempts: number;
  lease_owner: string | null;
  due_ms: number | null;
};

export async function rowOf(db: Database, runId: string): Promise<Row> {
  const { rows } = await db.pool.query<Row>(
    `select status, reason, message, live, attempts, lease_owner,
            (extract(epoch from due_at - pawl_now()) * 1000)::float8 as due_ms from runs where id = $1`,
    [runId],
  );
  const [row] = rows;
  if (row === undefined) throw new Error(`no run ${runId}`);
  return row;
}

/** A ledger connection whose time is ahead of the server's. */
export const later = (url: string, seconds: number): Database =>
  new Database({ url, max: 4, settings: { "pawl.skew": `${seconds} seconds` } });

/**
 * Drives until nothing is due, then moves time on to the moment at which the run is, and so on until it has ended.
 * Returns how many claims that took; throws when they are more than any bound of ours.
 */
export async function driveToTheEnd(url: string, run: { runId: string }, benchOf: (db: Database) => Bench) {
  let seconds = 0;
  for (let claims = 0; claims < 40; ) {
    await using db = later(url, seconds);
    const { deps } = benchOf(db);
    const claim = await claimRun(db, deps.settings.owner, deps.settings.leaseMs, CODE);
    if (claim !== null) {
      claims += 1;
      await driveRun(deps, claim, new AbortController().signal);
    }
    const row = await rowOf(db, run.runId);
    if (!row.live) return claims;
    seconds += Math.max(0, Math.ceil((row.due_ms ?? 0) / 1000));
  }
  throw new Error("the run does not end");
}

/** The run, the text of its reply, and the effects that are none. */
export async function outcomeOf(db: Database, runId: string) {
  const run = await readRun(db, runId);
  const call = run.calls.findLast((row) => row.class === "reply" && row.outcome === "real");
  return {
    run,
    row: await rowOf(db, runId),
    reply: (call?.args as { text?: string } | undefined)?.text,
    effects: run.effects.filter((effect) => effect.kind !== "reply"),
  };
}

/** The same ledger with some of its methods replaced. */
export function withChanges(db: Database, changes: Partial<Database>): Database {
  return new Proxy(db, {
    get(target, key) {
      if (Object.hasOwn(changes, key)) return Reflect.get(changes, key) as unknown;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
