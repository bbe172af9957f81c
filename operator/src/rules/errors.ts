/**
 * The closed set of failures, named by what the catcher must do. An error is classified once, at the adapter that
 * met it, by code; nobody above that adapter looks at messages.
 *
 * - `invariant`: the program is wrong; stop this piece of work loudly, change nothing.
 * - `terminal`: trying again cannot help until a person changes something; say what.
 * - `transient`: the same call may work later; try again, bounded, not before `retryAfterMs`.
 * - `conflict`: somebody else wrote first; look again, then decide anew.
 * - `fenced`: this process no longer holds the lease or the leadership; drop the work, write nothing.
 * - `cancelled`: a person or a shutdown asked for it.
 */
export type ErrorKind = "invariant" | "terminal" | "transient" | "conflict" | "fenced" | "cancelled";

export class PawlError extends Error {
  readonly kind: ErrorKind;
  /** CamelCase, as it appears in a condition's `reason`. */
  readonly reason: string;
  readonly retryAfterMs: number | undefined;

  constructor(
    kind: ErrorKind,
    reason: string,
    message: string,
    options: { cause?: unknown; retryAfterMs?: number } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "PawlError";
    this.kind = kind;
    this.reason = reason;
    this.retryAfterMs = options.retryAfterMs;
  }
}

export function isPawlError(error: unknown, kind?: ErrorKind): error is PawlError {
  return error instanceof PawlError && (kind === undefined || error.kind === kind);
}
