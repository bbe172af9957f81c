/**
 * Whether and when a failed model call is tried again. Pure: time and randomness come in as numbers.
 *
 * A wait that the endpoint asked for is kept in full, however long (its own client library ignores more than a
 * minute); one that is longer than the run can wait ends the attempt instead of being shortened.
 */
/** Attempts of one model call: with the waits between them they bridge two minutes of an endpoint's restart. */
export const MAX_ATTEMPTS = 7;
/** The first wait, doubled each time. */
export const BASE_WAIT_MS = 1_000;
/** The longest wait of our own choosing. */
export const MAX_BACKOFF_MS = 60_000;
/** The longest wait an endpoint can impose: beyond it a person should know instead of a run hanging. */
export const MAX_WAIT_MS = 30 * 60_000;
/** Spread of an imposed wait, so that the runs that share a credential do not all come back in the same instant. */
export const SPREAD_MS = 1_000;

export type RetryDecision =
  | { readonly kind: "wait"; readonly ms: number }
  | { readonly kind: "give-up"; readonly why: "not-retryable" | "attempts-used-up" | "wait-too-long" };

/**
 * `attempt`: how many attempts were made, this one included (from 1). `random`: 0 ≤ random < 1. `remainingMs`: how
 * long the run may still wait (its deadline); absent means as long as it takes.
 */
export function afterFailure(input: {
  readonly attempt: number;
  readonly class: "transient" | "terminal" | "overflow" | "cancelled";
  /** What the endpoint asked for. */
  readonly retryAfterMs?: number;
  readonly random: number;
  readonly remainingMs?: number;
}): RetryDecision {
  const { attempt, random } = input;
  if (input.class !== "transient") return { kind: "give-up", why: "not-retryable" };
  if (attempt >= MAX_ATTEMPTS) return { kind: "give-up", why: "attempts-used-up" };
  const backoff = Math.min(MAX_BACKOFF_MS, BASE_WAIT_MS * 2 ** (attempt - 1));
  const own = backoff / 2 + (backoff / 2) * random;
  const imposed = input.retryAfterMs === undefined ? 0 : input.retryAfterMs + SPREAD_MS * random;
  const ms = Math.ceil(Math.max(own, imposed));
  const limit = Math.min(MAX_WAIT_MS + SPREAD_MS, input.remainingMs ?? Number.POSITIVE_INFINITY);
  return ms > limit ? { kind: "give-up", why: "wait-too-long" } : { kind: "wait", ms };
}
