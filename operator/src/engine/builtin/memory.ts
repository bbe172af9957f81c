/** The tools `remember`, `recall` and `forget`: an agent's own store, shown only where its provenance allows. */
import { z } from "zod";
import { forget, recall, type Recalled, remember } from "#ledger/memory.ts";
import { type Evidence, type Limit, sourcesOf, visibility } from "#rules/provenance.ts";
import { storable } from "#rules/text.ts";
import type { AgentSpec } from "../agent.ts";
import type { EngineDeps } from "../deps.ts";
import { isStoreVerb, type StoreCall, type StoreVerb } from "../own-store.ts";
import type { CallRun, ParsedArguments, Tool } from "../ports.ts";

/** Characters of one memory: a paragraph. Longer things belong where they can be looked up. */
export const MAX_MEMORY = 2_000;
export const MAX_QUERY = 500;
/** Memories of one answer: with the longest ones still below what a result may have. */
export const MAX_RECALLED = 20;
const DEFAULT_RECALLED = 10;
/** The ledger is asked once and answers from an index; this is for a ledger that does not answer. */
const TIME_LIMIT_MS = 5_000;

export type MemoryDeps = Pick<EngineDeps, "db" | "newId" | "sensitivity" | "log">;

const text = z.string().transform(storable).pipe(z.string().trim().min(1).max(MAX_MEMORY));
const toRemember = z.strictObject({ text });
const toRecall = z.strictObject({
  query: z.string().max(MAX_QUERY).default(""),
  limit: z.int().min(1).max(MAX_RECALLED).default(DEFAULT_RECALLED),
});
const toForget = z.strictObject({ id: z.uuid() });

function parsed(schema: z.ZodType<Record<string, unknown>>, args: unknown, wanted: string): ParsedArguments {
  const found = schema.safeParse(args);
  return found.success ? { ok: true, value: found.data } : { ok: false, message: wanted };
}

const common = {
  timeLimitMs: TIME_LIMIT_MS,
  target: () => "store:memory",
} as const;

const verb = {
  ...common,
  quick: false,
  effect: () => "store.verb",
  execute: () => Promise.resolve({ kind: "failed", observation: "Not done: it is written with its result only." }),
} as const satisfies Partial<Tool>;

/** A memory of its own, besides what it was built on: for its conversation, unless somebody says otherwise. */
async function audienceOf(
  deps: MemoryDeps,
  agent: Pick<AgentSpec, "memoryAudience" | "fast">,
  said: string,
  evidence: readonly Evidence[],
  run: CallRun,
): Promise<"conversation" | "agent"> {
  if (agent.memoryAudience !== null) return agent.memoryAudience;
  const wide: Limit = { audience: "agent", agentId: run.agentId, conversationId: run.conversationId };
  // What it was built on limits it already: nobody needs to be asked.
  if (deps.sensitivity === undefined || visibility([wide, ...evidence]) !== visibility([wide])) return "conversation";
  try {
    return (await deps.sensitivity(said, { ...run, fast: agent.fast })) === "agent" ? "agent" : "conversation";
  } catch (error) {
    deps.log.warn({ run: run.runId, error: (error as Error).message }, "a memory's sensitivity could not be told");
    return "conversation";
  }
}

function whoSees(seenBy: string, evidence: readonly Evidence[]): string {
  const sources = sourcesOf(evidence);
  const because = sources.length === 0 ? "" : ` (it was built on results of ${sources.slice(0, 5).join(", ")})`;
  if (seenBy.startsWith("agent:")) return "It can be recalled in every conversation of this agent.";
  if (seenBy === "nowhere") return `It can be recalled nowhere: its sources may not be shown together${because}.`;
  return `It can be recalled in this conversation only${because}.`;
}

export function rememberTool(deps: MemoryDeps, agent: Pick<AgentSpec, "memoryAudience" | "fast">): StoreVerb {
  return {
    ...verb,
    name: "remember",
    description:
      "Keeps a fact for later conversations, in your own words, one fact each. Returns its id, with which it can be forgotten.",
    parameters: {
      type: "object",
      properties: { text: { type: "string", minLength: 1, maxLength: MAX_MEMORY } },
      required: ["text"],
      additionalProperties: false,
    },
    parse: (args) => parsed(toRemember, args, `\`text\` must be a text of 1 to ${MAX_MEMORY} characters`),
    async prepare({ id: callId, args, run, evidence }: StoreCall) {
      const said = String(args["text"]);
      const audience = await audienceOf(deps, agent, said, evidence, run);
      const own: Limit = { audience, agentId: run.agentId, conversationId: run.conversationId };
      const seenBy = visibility([own, ...evidence]);
      const memory = {
        id: deps.newId(),
        callId,
        text: said,
        audience,
        visibility: seenBy,
        evidence: evidence.map(({ id }) => id),
      };
      return async (tx, commit) => {
        const made = await remember(tx, commit, memory);
        switch (made.kind) {
          case "remembered":
            return { kind: "written", observation: `Remembered as ${made.id}. ${whoSees(seenBy, evidence)}` };
          case "known":
            return { kind: "written", observation: `That is remembered already, as ${made.id}.` };
          default:
            return { kind: made.kind };
        }
      };
    },
  };
}

export function forgetTool(): StoreVerb {
  return {
    ...verb,
    name: "forget",
    description:
      "Takes back something remembered, by the id that remember or recall gave. It is not recalled any more.",
    parameters: {
      type: "object",
      properties: { id: { type: "string", format: "uuid" } },
      required: ["id"],
      additionalProperties: false,
    },
    parse: (args) => parsed(toForget, args, "`id` must be the id that remember or recall gave"),
    prepare({ id: callId, args }: StoreCall) {
      const id = String(args["id"]);
      return Promise.resolve(async (tx, commit) => {
        const gone = await forget(tx, commit, { id, callId });
        switch (gone.kind) {
          case "forgotten":
            return { kind: "written", observation: `Forgotten: ${id}.` };
          case "unknown_memory":
            return { kind: "written", observation: `Nothing was forgotten: there is no memory ${id} here.` };
          default:
            return { kind: gone.kind };
        }
      });
    },
  };
}

const memories = (count: number): string => (count === 1 ? "1 memory" : `${count} memories`);

function told({ memories: found, leftOut, more }: Recalled, query: string): string {
  const about = query === "" ? "" : " about that";
  const lines = found.map(
    ({ id, text: said, at, from }) =>
      `- [${id}] ${at.toISOString().slice(0, 10)}, from ${from}: ${said.replaceAll("\n", "\n  ")}`,
  );
  const rest = [
    ...(found.length === 0 ? [`Nothing is remembered${about} that may be shown here.`] : []),
    ...(more === 0 ? [] : [`${memories(more)} more: ask with other words or a higher limit.`]),
    ...(leftOut === 0
      ? []
      : [`${memories(leftOut)} ${leftOut === 1 ? "is" : "are"} left out: they belong to other conversations.`]),
  ];
  return [...lines, ...rest].join("\n");
}

/** Models also write `*` or `?` for everything. */
const asQuery = (said: string): string => (/[\p{L}\p{N}]/u.test(said) ? said : "");

export function recallTool(deps: Pick<MemoryDeps, "db">): Tool {
  return {
    ...common,
    name: "recall",
    description:
      "Looks up what you have remembered, by words; best matches first. Without a query: the newest. What belongs to other conversations is only counted.",
    parameters: {
      type: "object",
      properties: {
        query: { type: "string", maxLength: MAX_QUERY },
        limit: { type: "integer", minimum: 1, maximum: MAX_RECALLED },
      },
      additionalProperties: false,
    },
    quick: true,
    parse: (args) =>
      parsed(toRecall, args, `\`query\` must be at most ${MAX_QUERY} characters, \`limit\` from 1 to ${MAX_RECALLED}`),
    effect: () => "tool.query",
    async execute(args, { run }) {
      const query = asQuery(String(args["query"]));
      const { agentId, conversationId } = run;
      const found = await recall(deps.db, { agentId, conversationId, query, most: Number(args["limit"]) });
      return { kind: "confirmed", observation: told(found, query), receipt: {}, restsOn: found.evidence };
    },
  };
}

/** In alphabetical order of their names. */
export const MEMORY_VERBS = ["forget", "recall", "remember"] as const;

export const memoryTools = (deps: MemoryDeps, agent: Pick<AgentSpec, "memoryAudience" | "fast">): Tool[] => [
  forgetTool(),
  recallTool(deps),
  rememberTool(deps, agent),
];

/** It sees what the store holds, so what the same response has written must be there first. */
export const readsOwnStore = (tool: Tool | undefined): boolean =>
  tool !== undefined && !isStoreVerb(tool) && tool.name === "recall";
