/** An engine on a real ledger with scripted ports: what the outside says is written down in the test. */
import { v7 as uuidv7 } from "uuid";
import { recordAgent } from "#ledger/agents.ts";
import type { Database } from "#ledger/database.ts";
import { claimRun } from "#ledger/leases.ts";
import type { EngineDeps, EngineSettings } from "#engine/deps.ts";
import { driveRun } from "#engine/drive.ts";
import { asRows } from "#engine/emissions.ts";
import type { ModelOutcome, ModelRequest, Tool, ToolContext, ToolOutcome } from "#engine/ports.ts";
import { Redaction } from "#engine/redaction.ts";
import { systemClock } from "#src/clock.ts";
import { CODE } from "#rules/limits.ts";
import { NAMESPACE_UID } from "./world.ts";

export const says = (text: string): ModelOutcome => ({
  kind: "response",
  text,
  calls: [],
  truncated: false,
  usage: { inputTokens: 7, outputTokens: 3 },
  finishReason: "stop",
});

export const asks = (...calls: [name: string, args: unknown][]): ModelOutcome => ({
  kind: "response",
  text: null,
  calls: calls.map(([name, args], index) => ({
    providerId: `p${index}`,
    name,
    argumentsText: typeof args === "string" ? args : JSON.stringify(args),
  })),
  truncated: false,
  usage: { inputTokens: 7, outputTokens: 3 },
  finishReason: "tool_calls",
});

export type Sent = { args: Readonly<Record<string, unknown>>; context: ToolContext };

/** A write to a target of its own per `to`; `answers` are given one by one, the last one for ever. */
export function writer(
  answers: (ToolOutcome | ((sent: Sent) => ToolOutcome | Promise<ToolOutcome>))[],
): Tool & { sent: Sent[] } {
  const sent: Sent[] = [];
  return {
    sent,
    name: "write",
    description: "Writes.",
    parameters: { type: "object", properties: { to: { type: "string" } } },
    quick: false,
    timeLimitMs: 200,
    parse: (args) =>
      typeof (args as { to?: unknown }).to === "string"
        ? { ok: true, value: args as Record<string, unknown> }
        : { ok: false, message: "`to` must be a string" },
    effect: () => "tool.effect",
    target: (args) => `https://world.test/${String(args["to"])}`,
    async execute(args, context) {
      sent.push({ args, context });
      const answer = answers[Math.min(sent.length, answers.length) - 1];
      if (answer === undefined) return done("ok");
      return typeof answer === "function" ? answer({ args, context }) : answer;
    },
  };
}

/** A read named `find`; `answers` as for `writer`. It refuses the argument `bad`. */
export function finder(answers: Parameters<typeof writer>[0]): Tool & { sent: Sent[] } {
  const tool = writer(answers);
  return {
    ...tool,
    name: "find",
    description: "Finds.",
    parse: (args) =>
      (args as { bad?: unknown }).bad === undefined
        ? { ok: true, value: args as Record<string, unknown> }
        : { ok: false, message: "`bad` is bad" },
    effect: () => "tool.query",
    async execute(args, context) {
      const answer = await tool.execute(args, context);
      return answer.kind === "confirmed" ? { ...answer, receipt: { result: { found: 1 } } } : answer;
    },
  };
}

export const done = (observation: string): ToolOutcome => ({
  kind: "confirmed",
  observation,
  receipt: { status: 200 },
});
export const lost = (): ToolOutcome => ({
  kind: "unknown",
  observation: "the connection was lost after the request was sent",
});

/** Answers at once from its arguments. */
export const quick: Tool = {
  name: "echo",
  description: "Echoes.",
  parameters: { type: "object" },
  quick: true,
  timeLimitMs: 100,
  parse: (args) => ({ ok: true, value: args as Record<string, unknown> }),
  effect: () => "tool.query",
  target: () => "none",
  execute: (args) => Promise.resolve(done(`echo ${JSON.stringify(args)}`)),
};

export type Script = (
  | ModelOutcome
  | ((request: ModelRequest, signal: AbortSignal) => ModelOutcome | Promise<ModelOutcome>)
)[];

export type Bench = {
  readonly deps: EngineDeps;
  readonly requests: ModelRequest[];
  readonly logged: { level: string; message: string; fields: Readonly<Record<string, unknown>> }[];
};

export function bench(
  db: Database,
  script: Script,
  tools: readonly Tool[] = [quick],
  changes: { settings?: Partial<EngineSettings>; deps?: Partial<EngineDeps> } = {},
): Bench {
  const redaction = changes.deps?.redaction ?? new Redaction();
  const requests: ModelRequest[] = [];
  const logged: Bench["logged"] = [];
  const log = (level: string) => (fields: Readonly<Record<string, unknown>>, message: string) => {
    logged.push({ level, message, fields });
  };
  const deps: EngineDeps = {
    db,
    model: {
      async complete(request, signal) {
        requests.push(request);
        const next = script[requests.length - 1];
        if (next === undefined) throw new Error(`the script has no response ${requests.length}`);
        return typeof next === "function" ? next(request, signal) : next;
      },
    },
    tools: new Map(tools.map((tool) => [tool.name, tool])),
    servers: {
      open() {
        throw new Error("this bench has no servers of tools");
      },
    },
    outbound: asRows,
    redaction,
    clock: systemClock,
    random: () => 0.5,
    newId: uuidv7,
    retry: ({ attempt, class: kind, retryAfterMs }) =>
      kind === "transient" && attempt < 3
        ? { kind: "wait", ms: retryAfterMs ?? 0 }
        : { kind: "give-up", why: "attempts-used-up" },
    settings: {
      owner: "worker-1",
      leaseMs: 10_000,
      renewMs: 3_000,
      sendMs: 100,
      settleSlackMs: 10,
      pollMs: 50,
      waitForPersonMs: 0,
      concurrency: 4,
      ...changes.settings,
    },
    log: { info: log("info"), warn: log("warn"), error: log("error") },
    meter: { claimed() {}, modelCall() {}, effect() {}, ended() {} },
    ...changes.deps,
    credentials: redaction.watching(
      changes.deps?.credentials ?? {
        get: () => Promise.resolve({ kind: "missing", message: "create Secret model-key" }),
      },
    ),
  };
  return { deps, requests, logged };
}

export async function engineAgent(db: Database, tools: readonly string[], changes: Record<string, unknown> = {}) {
  return recordAgent(db, {
    namespaceUid: NAMESPACE_UID,
    namespace: "demo",
    name: `agent-${uuidv7()}`,
    spec: {
      instructions: "Be brief.",
      models: { primary: { baseURL: "http://model.test/v1", model: "scripted" } },
      ...changes,
      tools: { builtin: tools, ...(changes["tools"] as object | undefined) },
    },
    specHash: uuidv7(),
    suspended: false,
  });
}

/** Claims and drives until nothing is due. Returns how many claims that took. */
export async function drain(deps: EngineDeps, shutdown = new AbortController().signal): Promise<number> {
  for (let claims = 0; ; claims += 1) {
    const claim = await claimRun(deps.db, deps.settings.owner, deps.settings.leaseMs, CODE);
    if (claim === null) return claims;
    await driveRun(deps, claim, shutdown);
  }
}
