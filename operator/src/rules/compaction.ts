/**
 * Mechanical compaction of a run's tool results, a pure function of its rows: the newest few stay as they are, older
 * ones while they fit a budget of bytes, everything past it shows its first and last lines, its size and where the
 * ledger has all of it. No summary, and never a message of a person's or the model's own words.
 */
import { CHARS_PER_TOKEN } from "./limits.ts";
import { head } from "./text.ts";

/** The tools that read what a request leaves out: they are named in the notes about it. */
export const READ_RESULT = "read_result";
export const READ_EARLIER = "read_earlier";

/** Results that are what the model is thinking about: never shortened unless a provider found the request too long. */
export const NEWEST_KEPT = 4;
/** Share of the context that older results may fill, beside a third for earlier turns. */
export const RESULTS_SHARE = 1 / 4;
/** What is left of that share after an overflow. Below a half, so that no result comes back whole (the cut moves by halves). */
export const HARDER = 1 / 4;
/** The cut moves by this part of the budget at a time: between two moves a provider's prompt cache stays good. */
export const CUT_STEP = 1 / 2;
/** Bytes up to which a result is left alone: what would replace it is hardly shorter. */
export const SMALL_RESULT = 1024;
/** Characters kept of each end: with the words around them less than `SMALL_RESULT`, in any script. */
export const KEPT_OF_AN_END = 120;

/** 0: as every request; 1: as after the provider found one too long. */
export type CompactionLevel = 0 | 1;

export type Result = {
  readonly ordinal: number;
  readonly idx: number;
  readonly outcome: string | null;
  readonly result: string | null;
};

export type Room = {
  /** Of results that are not small, beyond the newest. */
  readonly bytes: number;
  /** The newest results, which are no part of that. */
  readonly newest: number;
  /** The newest are shortened, too, where one of them alone is more than `bytes`. */
  readonly evenNewest: boolean;
};

export function roomFor(contextTokens: number, level: CompactionLevel): Room {
  const bytes = contextTokens * CHARS_PER_TOKEN * RESULTS_SHARE;
  return level === 0
    ? { bytes, newest: NEWEST_KEPT, evenNewest: false }
    : { bytes: bytes * HARDER, newest: 1, evenNewest: true };
}

const bytesOf = (text: string | null): number => Buffer.byteLength(text ?? "");

/** What a result counts: small ones are never replaced, so nothing is gained by counting them. */
function weightOf(call: Result): number {
  const known = weights.get(call);
  if (known !== undefined) return known;
  const bytes = bytesOf(call.result);
  const weight = bytes > SMALL_RESULT ? bytes : 0;
  weights.set(call, weight);
  return weight;
}

/** By row: rows are never changed, and all of a run's are looked at again at each of its steps. */
const weights = new WeakMap<Result, number>();
const shortenedRows = new WeakMap<Result, Result>();

/**
 * How many of the oldest results are past the cut. It depends on the bytes before the newest results and on nothing
 * else; those only grow with a run, so that what was shortened once stays so.
 */
function cutOf(weights: readonly number[], room: Room): number {
  const tooLarge = room.evenNewest && weights.slice(-room.newest).some((weight) => weight > room.bytes);
  const older = weights.length - (tooLarge ? 0 : room.newest);
  let total = 0;
  for (let index = 0; index < older; index += 1) total += weights[index] ?? 0;
  const step = room.bytes * CUT_STEP;
  const excess = total - room.bytes;
  if (excess <= 0) return 0;
  const gone = step > 0 ? Math.ceil(excess / step) * step : total;
  let cut = 0;
  for (let sum = 0; cut < older && sum < gone; cut += 1) sum += weights[cut] ?? 0;
  return cut;
}

/** Whole lines where they fit, else a part of one. */
function firstLines(text: string): string {
  const part = head(text, KEPT_OF_AN_END);
  const end = part.lastIndexOf("\n");
  return end > 0 ? part.slice(0, end) : part;
}

function lastLines(text: string): string {
  const part = text.slice(-KEPT_OF_AN_END).replace(/^[\udc00-\udfff]/, "");
  const start = part.indexOf("\n");
  return start >= 0 && start < part.length - 1 ? part.slice(start + 1) : part;
}

/** Says who shortened it: the model must not take this for what the tool answered, nor for a call that went wrong. */
function shortened(call: Result, whole: string): string {
  const text = whole.trimEnd();
  const first = firstLines(text);
  const last = lastLines(text);
  const left = bytesOf(whole) - bytesOf(first) - bytesOf(last);
  const unknown = call.outcome === "unknown" ? " The outcome of this call is unknown." : "";
  return [
    `[Shortened by Pawl to save room, not by the tool: the first and last lines of ${bytesOf(whole)} bytes. The tool ${READ_RESULT} reads all of it: step ${call.ordinal}, call ${call.idx}.${unknown}]`,
    first,
    `[… ${left} bytes left out by Pawl …]`,
    last,
  ].join("\n");
}

function shortenedRow<T extends Result>(call: T, whole: string): T {
  const row = (shortenedRows.get(call) as T | undefined) ?? { ...call, result: shortened(call, whole) };
  shortenedRows.set(call, row);
  return row;
}

/**
 * `results`: of this run, oldest first. The same rows in the same order, with fewer bytes; a row that is left alone is
 * the same object, and one that is shortened the same one each time.
 */
export function compacted<T extends Result>(results: readonly T[], room: Room): T[] {
  const bytes = results.map(weightOf);
  const cut = cutOf(bytes, room);
  if (cut === 0) return [...results];
  return results.map((call, index) =>
    index < cut && (bytes[index] ?? 0) > 0 && call.result !== null ? shortenedRow(call, call.result) : call,
  );
}
