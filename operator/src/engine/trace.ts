/**
 * The request of a step, built again from rows by the code that built it then, and held against the hash that the step
 * kept. What cannot be built says why: another builder, a message or a list of tools that is gone.
 */
import { z } from "zod";
import type { Runner } from "#ledger/database.ts";
import { readRun, type RunRecord } from "#ledger/reads.ts";
import { readReconcileNote } from "#ledger/reconcile.ts";
import { readStory } from "#ledger/story.ts";
import { readHistoryThrough, readRequests, type StoredRequest } from "#ledger/trace.ts";
import type { CompactionLevel } from "#rules/compaction.ts";
import { PawlError } from "#rules/errors.ts";
import { BUILDER_VERSION, type StoredResponse } from "#rules/transcript.ts";
import { readAgentSpec } from "./agent.ts";
import { wordsAt } from "./inbox.ts";
import type { ChatMessage, ToolSchema } from "./ports.ts";
import { requestHash } from "./request-hash.ts";
import { requestMessages } from "./turn.ts";

const facts = z.object({
  hash: z.string(),
  model: z.string(),
  baseURL: z.string(),
  maxOutputTokens: z.number().nullable().default(null),
  builder: z.number(),
  compaction: z.number().default(0),
  resumed: z.boolean().default(false),
  lastWords: z.boolean().default(false),
  rows: z.object({
    earlier: z.object({ turns: z.number(), newest: z.string().nullable() }).default({ turns: 0, newest: null }),
    messages: z.array(z.number()),
    edits: z.array(z.tuple([z.number(), z.number()])).default([]),
  }),
});
type Facts = z.infer<typeof facts>;
/** What is there whatever built it. */
const anyFacts = z.object({ hash: z.string(), builder: z.number() });
const closingFacts = z.strictObject({ closing: z.string() });

export type RebuiltRequest = {
  readonly model: string;
  readonly baseURL: string;
  readonly maxOutputTokens: number | null;
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly ToolSchema[];
};

export type TracedStep = {
  readonly ordinal: number;
  readonly token: number;
  readonly at: Date;
} & (
  | { readonly kind: "ok" | "differs"; readonly kept: string; readonly built: string; readonly request: RebuiltRequest }
  /** It cannot be built, so nobody can say. */
  | { readonly kind: "unknown"; readonly kept: string | null; readonly why: string }
  /** Pawl's own last word: no model was asked. */
  | { readonly kind: "closing"; readonly why: string }
);

export type Trace = { readonly run: RunRecord; readonly steps: readonly TracedStep[] };

/** `ordinal`: of one step; without it all. Null: there is no such run. */
export async function traceRun(db: Runner, runId: string, ordinal?: number): Promise<Trace | null> {
  if ((await readStory(db, runId)) === null) return null;
  const run = await readRun(db, runId);
  const stored = (await readRequests(db, runId)).filter((step) => ordinal === undefined || step.ordinal === ordinal);
  if (ordinal !== undefined && stored.length === 0) {
    throw new PawlError("terminal", "StepUnknown", `run ${runId} has no step ${ordinal}`);
  }
  const steps: TracedStep[] = [];
  for (const step of stored) {
    const { token, at } = step;
    steps.push({ ordinal: step.ordinal, token, at, ...(await traced(db, run, step)) });
  }
  return { run, steps };
}

type Verdict = TracedStep extends infer T ? (T extends unknown ? Omit<T, "ordinal" | "token" | "at"> : never) : never;

async function traced(db: Runner, run: RunRecord, step: StoredRequest): Promise<Verdict> {
  const closing = closingFacts.safeParse(step.request);
  if (closing.success) return { kind: "closing", why: closing.data.closing };
  const kept = anyFacts.safeParse(step.request);
  const hash = kept.success ? kept.data.hash : null;
  const unknown = (why: string): Verdict => ({ kind: "unknown", kept: hash, why });
  if (kept.success && kept.data.builder !== BUILDER_VERSION) {
    return unknown(
      `it was built by builder ${kept.data.builder}, this version of Pawl has builder ${BUILDER_VERSION} only: use the version that ran it`,
    );
  }
  const parsed = facts.safeParse(step.request);
  if (!parsed.success) return unknown("the step does not say what its request was built from");
  if (step.tools === null) return unknown("the list of tools that it offered is not in the ledger");
  return rebuilt(db, run, step, parsed.data);
}

async function rebuilt(db: Runner, run: RunRecord, step: StoredRequest, kept: Facts): Promise<Verdict> {
  const { earlier, messages: seqs } = kept.rows;
  const edits = new Map(kept.rows.edits);
  const triggers = seqs.map((seq) => {
    const message = run.triggers.find((trigger) => trigger.seq === seq);
    return message === undefined ? undefined : wordsAt(message, edits.get(seq) ?? null);
  });
  const gone = seqs.filter((_, index) => triggers[index] === undefined);
  if (gone.length > 0) {
    return { kind: "unknown", kept: kept.hash, why: `message ${gone.join(", ")} is no longer part of this run` };
  }
  const tools = step.tools as readonly ToolSchema[];
  const messages = requestMessages({
    agentName: run.agentName,
    agent: readAgentSpec(run.spec, run.slice),
    compaction: kept.compaction as CompactionLevel,
    toolsOffered: tools.length > 0,
    earlier: earlier.newest === null ? [] : await readHistoryThrough(db, earlier.newest, earlier.turns),
    triggers: triggers.flatMap((trigger) => trigger ?? []),
    steps: run.steps
      .filter(({ ordinal }) => ordinal < step.ordinal)
      .map(({ ordinal, response, resumed }) => ({ ordinal, response: response as StoredResponse, resumed })),
    resuming: kept.resumed,
    closing: kept.lastWords ? "exhausted" : undefined,
    reconciling: run.reconciles === null ? undefined : ((await readReconcileNote(db, run.id)) ?? undefined),
    calls: run.calls.filter(({ ordinal }) => ordinal < step.ordinal),
  });
  const request = { model: kept.model, baseURL: kept.baseURL, maxOutputTokens: kept.maxOutputTokens, messages, tools };
  const built = requestHash(request);
  return { kind: built === kept.hash ? "ok" : "differs", kept: kept.hash, built, request };
}
