/**
 * What the API server and the way to it can do to a request, classified once, by code. Callers look at `kind` and
 * `reason`; the message is the server's own and is meant for a person.
 */
import { type ErrorKind, PawlError } from "#rules/errors.ts";

export type Cause = { readonly field?: string; readonly reason?: string; readonly message?: string };

/** A refusal or a failure. `code` is the HTTP status; undefined when no answer came. */
export class KubeError extends PawlError {
  readonly code: number | undefined;
  readonly causes: readonly Cause[];

  constructor(
    kind: ErrorKind,
    reason: string,
    message: string,
    options: { code?: number; causes?: readonly Cause[]; retryAfterMs?: number; cause?: unknown } = {},
  ) {
    super(kind, reason, message, {
      ...(options.cause === undefined ? {} : { cause: options.cause }),
      ...(options.retryAfterMs === undefined ? {} : { retryAfterMs: options.retryAfterMs }),
    });
    this.name = "KubeError";
    this.code = options.code;
    this.causes = options.causes ?? [];
  }
}

/** The server's `Status` object, as far as anybody may rely on it. */
type Status = {
  readonly reason?: string;
  readonly message?: string;
  readonly code?: number;
  readonly details?: {
    readonly name?: string;
    readonly group?: string;
    readonly kind?: string;
    readonly causes?: readonly Cause[];
    readonly retryAfterSeconds?: number;
  };
};

export const statusOf = (body: unknown): Status => (typeof body === "object" && body !== null ? body : {});

/** A reason for answers that carry none, as proxies and a starting server give them. */
const REASONS: Readonly<Record<number, string>> = {
  400: "BadRequest",
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  405: "MethodNotAllowed",
  409: "Conflict",
  410: "Expired",
  413: "RequestEntityTooLarge",
  415: "UnsupportedMediaType",
  422: "Invalid",
  429: "TooManyRequests",
  500: "InternalError",
  502: "BadGateway",
  503: "ServiceUnavailable",
  504: "Timeout",
};

function kindOf(code: number): ErrorKind {
  // Somebody else wrote first, or what we knew is too old: look again.
  if (code === 409 || code === 410) return "conflict";
  // 401: tokens are rotated and read again; the next attempt carries the new one.
  if (code === 401 || code === 408 || code === 429 || code >= 500) return "transient";
  return "terminal";
}

const MAX_RETRY_AFTER_MS = 60_000;

/** How long to wait, from the header (seconds) or from the body, in milliseconds, bounded. */
export function retryAfter(header: string | undefined, status: Status = {}): number | undefined {
  const seconds = Number(header ?? status.details?.retryAfterSeconds ?? Number.NaN);
  if (!Number.isFinite(seconds) || seconds < 0) return undefined;
  return Math.min(seconds * 1_000, MAX_RETRY_AFTER_MS);
}

/** An answer that is not a success. `what` says what was asked for, as in `get runs demo/one`. */
export function answerError(code: number, body: unknown, header: string | undefined, what: string): KubeError {
  const status = statusOf(body);
  const causes = status.details?.causes ?? [];
  const said = status.message ?? (typeof body === "string" && body.trim() !== "" ? body.trim().slice(0, 500) : "");
  const wait = retryAfter(header, status);
  return new KubeError(
    kindOf(code),
    status.reason || REASONS[code] || `HTTP${code}`,
    `${what}: ${said || `HTTP ${code}`}`,
    {
      code,
      causes,
      ...(wait === undefined ? {} : { retryAfterMs: wait }),
    },
  );
}

/** An ERROR event inside a watch: the same Status, delivered under HTTP 200; `code` is therefore undefined. */
export function streamError(object: unknown, what: string): KubeError {
  const { kind, reason, message, retryAfterMs } = answerError(statusOf(object).code ?? 500, object, undefined, what);
  return new KubeError(kind, reason, message, retryAfterMs === undefined ? {} : { retryAfterMs });
}

/** Code of a failed connection, wherever undici has put it. */
function networkCode(error: unknown): string | undefined {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    const { code } = at as { code?: unknown };
    if (typeof code === "string") return code;
  }
  return undefined;
}

/** A request without an answer. */
export function networkError(error: unknown, what: string): KubeError {
  const code = networkCode(error);
  const said = error instanceof Error ? error.message : String(error);
  return new KubeError("transient", "Unreachable", `${what}: no answer from the API server (${code ?? said})`, {
    cause: error,
  });
}

export const timeoutError = (ms: number, what: string): KubeError =>
  new KubeError("transient", "Timeout", `${what}: no answer from the API server within ${ms} ms`);

export const cancelledError = (what: string): KubeError =>
  new KubeError("cancelled", "Cancelled", `${what}: cancelled`);
