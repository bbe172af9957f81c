/**
 * What a step keeps of its request: hashes, parameters, and the rows that it was built from, so that the very request can
 * be built again and checked (`pawl trace`). The tools are kept once per distinct list, because their schemas change with
 * the code.
 */
import { BUILDER_VERSION } from "#rules/transcript.ts";
import type { ModelRequest, ToolSchema } from "./ports.ts";
import { hashOf, requestHash } from "./request-hash.ts";
import type { Turn } from "./turn.ts";

/** The rows behind a request; the steps are all those before its own. */
export type RowRange = {
  /** How many earlier turns were read, and the newest of them. */
  readonly earlier: { readonly turns: number; readonly newest: string | null };
  /** `seq` of the messages, in their order. */
  readonly messages: readonly number[];
};

export type RequestFacts = {
  readonly hash: string;
  readonly model: string;
  readonly baseURL: string;
  readonly maxOutputTokens: number | null;
  /** Hash of the list of tools. */
  readonly tools: string;
  readonly builder: number;
  readonly compaction: number;
  /** It said that another worker goes on. */
  readonly resumed: boolean;
  /** It asked for the last words of a turn. */
  readonly lastWords: boolean;
  readonly finishReason: string | null;
  /** Of the first step alone: the note that every request of the turn begins with. */
  readonly reconciling?: string;
  readonly rows: RowRange;
};

export function requestFacts(
  turn: Turn,
  request: ModelRequest,
  finishReason: string | null,
  closing?: "exhausted",
): RequestFacts {
  return {
    hash: requestHash(request),
    model: request.endpoint.model,
    baseURL: request.endpoint.baseURL,
    maxOutputTokens: request.endpoint.maxOutputTokens ?? null,
    tools: hashOf(request.tools),
    builder: BUILDER_VERSION,
    compaction: turn.compaction,
    resumed: turn.resuming,
    lastWords: closing !== undefined,
    finishReason,
    ...(turn.reconciling?.isKept === false ? { reconciling: turn.reconciling.text } : {}),
    rows: {
      earlier: { turns: turn.earlier.length, newest: turn.earlier.at(-1)?.runId ?? null },
      messages: turn.run.triggers.map((trigger) => trigger.seq),
    },
  };
}

/** Lists that this process knows to be in a ledger, per connection to one. */
const inLedger = new WeakMap<object, Set<string>>();
const MAX_REMEMBERED = 1_000;

export type Toolset = { readonly hash: string; readonly tools: readonly ToolSchema[] };

/** The list where it may be new to the ledger; null where it is there. */
export function unknownToolset(db: object, toolset: Toolset): Toolset | null {
  return inLedger.get(db)?.has(toolset.hash) === true ? null : toolset;
}

/** Called after the commit that carried it. */
export function rememberToolset(db: object, toolset: Toolset): void {
  const known = inLedger.get(db) ?? new Set();
  if (known.size >= MAX_REMEMBERED) known.clear();
  known.add(toolset.hash);
  inLedger.set(db, known);
}
