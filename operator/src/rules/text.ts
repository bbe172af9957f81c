/** Text as the ledger can keep it: PostgreSQL takes neither NUL nor half a character. Pure. */
const REPLACEMENT = "\ufffd";

export const storable = (text: string): string => text.replaceAll("\0", REPLACEMENT).toWellFormed();

export const isStorable = (text: string): boolean => !text.includes("\0") && text.isWellFormed();

/** The first `max` UTF-16 units at most, never half a character. */
export const head = (text: string, max: number): string =>
  text.length <= max ? text : text.slice(0, max).replace(/[\ud800-\udbff]$/, "");

/** Storable, and no longer than `max` but for the words that say how much was left out. */
export function bounded(text: string, max: number): string {
  const safe = storable(text);
  if (safe.length <= max) return safe;
  const kept = head(safe, max);
  return `${kept}\n[… ${safe.length - kept.length} characters left out]`;
}
