/**
 * What a step keeps of its request: hashes, parameters, and the rows that it was built from, so that the very request can
 * be built again and checked (`pawl trace`). The tools are kept once per distinct list, because their schemas change with
 * the code.
 */
import type { CompactionLevel } from "#rules/compaction.ts";
import { BUILDER_VERSION } from "#rules/transcript.ts";
import type { ModelRequest, ToolSchema } from "./ports.ts";
import { hashOf, requestHash } from "./request-hash.ts";
import type { Turn } from "./turn.ts";

/** The rows behind a request; the steps are all those before its own. */
export type RowRange = {
  /** How many earlier turns were read, and the newest of them; absent: none. */
  readonly earlier?: { readonly turns: number; readonly newest: string | null };
  /** `seq` of the messages, in their order. */
  readonly messages: readonly number[];
  /** Of those that had been edited: which edit. */
  readonly edits?: readonly (readonly [seq: number, edit: number])[];
};

/** What is as it nearly always is, is left out: these bytes are written at every step. */
export type RequestFacts = {
  readonly hash: string;
  readonly model: string;
  readonly baseURL: string;
  readonly maxOutputTokens?: number;
  /** Hash of the list of tools. */
  readonly tools: string;
  readonly builder: number;
  /** Absent: 0. */
  readonly compaction?: CompactionLevel;
  /** It said that another worker goes on. */
  readonly resumed?: true;
  /** It asked for the last words of a turn. */
  readonly lastWords?: true;
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
  const { model, baseURL, maxOutputTokens } = request.endpoint;
  return {
    hash: requestHash(request),
    model,
    baseURL,
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
    tools: hashOf(request.tools),
    builder: BUILDER_VERSION,
    ...(turn.compaction === 0 ? {} : { compaction: turn.compaction }),
    ...(turn.resuming ? { resumed: true } : {}),
    ...(closing === undefined ? {} : { lastWords: true }),
    finishReason,
    ...(turn.reconciling?.isKept === false ? { reconciling: turn.reconciling.text } : {}),
    rows: {
      ...earlierOf(turn),
      messages: turn.triggers.map((message) => message.seq),
      ...editsOf(turn),
    },
  };
}

function editsOf({ triggers }: Turn): Pick<RowRange, "edits"> {
  const edits = triggers.flatMap(({ seq, edit }) => (edit === null ? [] : [[seq, edit] as const]));
  return edits.length === 0 ? {} : { edits };
}

function earlierOf({ earlier }: Turn): Pick<RowRange, "earlier"> {
  const newest = earlier.at(-1);
  return newest === undefined ? {} : { earlier: { turns: earlier.length, newest: newest.runId } };
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
