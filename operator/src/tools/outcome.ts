/**
 * What an HTTP exchange says about whether a write happened. One table, pure.
 *
 * - `confirmed`: the receiver says that it did it.
 * - `failed`: provably not applied: it says so, or nothing left.
 * - `unknown`: it was sent, or perhaps, and nothing conclusive came back.
 */

export type Exchange =
  /** No byte of the request left; `why` is a sentence. */
  | { readonly kind: "not-sent"; readonly why: string }
  /** At least a byte may have left, and no status came back. */
  | { readonly kind: "no-answer"; readonly why: string }
  | { readonly kind: "answered"; readonly status: number };

export type Verdict = "confirmed" | "failed" | "unknown";

/**
 * Statuses of refusal that do not prove that nothing happened: a timeout at the receiver, a conflict with (perhaps)
 * an earlier copy of this very request, a replay held back.
 */
const INCONCLUSIVE = new Set([408, 409, 425]);
/** Of the 5xx, only these are given before anything was done: method or protocol version not supported. */
const REFUSED_5XX = new Set([501, 505]);
/** "Send the same request to another address": this address did not carry it out. */
const ELSEWHERE = new Set([307, 308]);

export function verdictOf(exchange: Exchange, isRead: boolean): Verdict {
  if (exchange.kind === "not-sent") return "failed";
  if (exchange.kind === "no-answer") return isRead ? "failed" : "unknown";
  const { status } = exchange;
  if (status >= 200 && status < 300) return "confirmed";
  if (status >= 300 && status < 400) return !isRead && ELSEWHERE.has(status) ? "failed" : "confirmed";
  if (isRead) return "failed";
  if (status >= 400 && status < 500) return INCONCLUSIVE.has(status) ? "unknown" : "failed";
  // Anything else, invented statuses included, proves nothing.
  return REFUSED_5XX.has(status) ? "failed" : "unknown";
}
