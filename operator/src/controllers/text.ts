/** Text and instants as a bounded status holds them. Pure. */

/** Bytes that a string takes inside JSON, without its quotes. */
export const jsonBytes = (text: string): number => Buffer.byteLength(JSON.stringify(text)) - 2;

/**
 * The beginning of a text, at most `max` bytes of it as JSON, never half a character, with `…` where something is
 * missing. A lone surrogate becomes a replacement character: the API server refuses it.
 */
export function clip(text: string, max: number): string {
  const whole = text.toWellFormed();
  if (jsonBytes(whole) <= max) return whole;
  const mark = "…";
  const room = max - Buffer.byteLength(mark);
  if (room < 0) return "";
  let [kept, used] = ["", 0];
  for (const character of whole) {
    used += jsonBytes(character);
    if (used > room) break;
    kept += character;
  }
  return kept + mark;
}

/** One line for a table or a condition: control characters are spaces. */
export const line = (text: string, max: number): string => clip(text.replaceAll(/\p{Cc}+/gu, " "), max);

/** Whole seconds, as the API server writes them. */
export const instant = (date: Date): string => `${date.toISOString().slice(0, 19)}Z`;

/** `42s`, `3m5s`, `2h10m`. */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 === 0 ? `${minutes}m` : `${minutes}m${seconds % 60}s`;
  return minutes % 60 === 0 ? `${Math.floor(minutes / 60)}h` : `${Math.floor(minutes / 60)}h${minutes % 60}m`;
}

const REASON = /^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$/;

/** A word that a condition's `reason` takes; anything else is replaced, so that a status can always be written. */
export const reasonWord = (word: string, otherwise: string): string =>
  word.length <= 64 && REASON.test(word) ? word : otherwise;

/** PostgreSQL stores every character but this one. */
export function hasNul(value: unknown): boolean {
  if (typeof value === "string") return value.includes("\0");
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).some(([key, item]) => key.includes("\0") || hasNul(item));
}

/** As JSON stores it: nothing undefined, no half character (which no canonical form has). */
export const asStored = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (_key, item: unknown) => (typeof item === "string" ? item.toWellFormed() : item)));
