/** How long an endpoint asks us to wait. Pure. */

export type HeaderReader = { get(name: string): string | null };

/**
 * Milliseconds from now, never negative, or undefined when the headers do not say (or say nonsense).
 * `retry-after-ms` is more precise than `retry-after`, which is a number of seconds or an HTTP date. A date is read
 * against the answer's own `date`, so that a clock that runs apart from the server's does not shorten the wait;
 * `nowMs` (epoch milliseconds) serves when it has none.
 */
export function retryAfterMs(headers: HeaderReader, nowMs: number): number | undefined {
  const exact = numeric(headers.get("retry-after-ms"));
  if (exact !== undefined) return exact;
  const text = headers.get("retry-after");
  const seconds = numeric(text);
  if (seconds !== undefined) return seconds * 1000;
  const date = text === null ? Number.NaN : Date.parse(text);
  if (Number.isNaN(date)) return undefined;
  const served = Date.parse(headers.get("date") ?? "");
  return Math.max(0, date - (Number.isNaN(served) ? nowMs : served));
}

function numeric(text: string | null): number | undefined {
  return text !== null && /^\s*\d+(\.\d+)?\s*$/.test(text) ? Number(text) : undefined;
}
