/** One request to the API server, bounded in time and size, ending in an answer or a KubeError. */
import { type Dispatcher, request as send } from "undici";
import { isPawlError, type PawlError } from "#rules/errors.ts";
import type { Connection } from "./connection.ts";
import { answerError, cancelledError, KubeError, networkError, timeoutError } from "./errors.ts";

export type Call = {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  readonly body?: unknown;
  readonly contentType?: string;
  /** What is asked for, in words, for messages. */
  readonly what: string;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
};

export type Answer = {
  readonly code: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
};

/** etcd takes 1.5 MB per object and a page has at most 500; more is not an API server. */
const MAX_BYTES = 1024 * 1024 * 1024;
const USER_AGENT = "pawl";

export function address(origin: string, path: string, query: Call["query"] = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.set(name, String(value));
  const text = parameters.toString();
  return `${origin}${path}${text === "" ? "" : `?${text}`}`;
}

/**
 * A signal that fires when the caller's does or when time has run out. `stop` must be called; it frees
 * the timer and the listener.
 */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Did time run out (rather than the caller's signal)? */
  expired = false;

  constructor(ms: number, outer: AbortSignal | undefined) {
    this.#outer = outer;
    outer?.addEventListener("abort", this.#abort, { once: true });
    if (outer?.aborted === true) this.#controller.abort();
    else this.rearm(ms);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Counts anew, from `ms`. */
  rearm(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.expired = true;
      this.#controller.abort();
    }, ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
  }

  readonly #abort = (): void => this.#controller.abort();
}

/** Names a failure that came out of undici while `deadline` was running. */
export function failure(error: unknown, deadline: Deadline, ms: number, what: string): PawlError {
  if (isPawlError(error)) return error;
  if (deadline.expired) return timeoutError(ms, what);
  if (deadline.signal.aborted) return cancelledError(what);
  return networkError(error, what);
}

export type Opened = {
  readonly code: number;
  readonly headers: Record<string, string>;
  readonly body: Dispatcher.ResponseData["body"];
};

/** Sends and returns once the headers are there; the body is the caller's to read or destroy. */
export async function open(
  connection: Connection,
  call: Omit<Call, "signal" | "timeoutMs">,
  pool: "requests" | "watches",
  signal: AbortSignal,
): Promise<Opened> {
  const access = await connection.access();
  const response = await send(address(connection.origin, call.path, call.query), {
    dispatcher: access[pool],
    method: call.method,
    signal,
    headers: {
      ...access.headers,
      accept: "application/json",
      "user-agent": USER_AGENT,
      ...(call.body === undefined ? {} : { "content-type": call.contentType ?? "application/json" }),
    },
    ...(call.body === undefined ? {} : { body: JSON.stringify(call.body) }),
  });
  // A rotated token: the next request reads it anew.
  if (response.statusCode === 401) connection.forget();
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(response.headers))
    headers[name] = Array.isArray(value) ? value.join(", ") : (value ?? "");
  return { code: response.statusCode, headers, body: response.body };
}

/** The whole body, parsed as JSON where it is JSON, else as text (a 404 of an unknown path is text/plain). */
export async function readBody(opened: Opened): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of opened.body as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BYTES)
      throw new KubeError("terminal", "AnswerTooLarge", `the answer is larger than ${MAX_BYTES} bytes`);
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString("utf8");
  if (!/^application\/json\b/.test(opened.headers["content-type"] ?? "")) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw new KubeError("transient", "AnswerMalformed", "the answer is cut or is not JSON", {
      code: opened.code,
      cause,
    });
  }
}

/** One request, whatever its status. Throws KubeError when there is no answer. */
export async function exchange(connection: Connection, call: Call): Promise<Answer> {
  const deadline = new Deadline(call.timeoutMs, call.signal);
  try {
    const opened = await open(connection, call, "requests", deadline.signal);
    return { code: opened.code, headers: opened.headers, body: await readBody(opened) };
  } catch (error) {
    throw failure(error, deadline, call.timeoutMs, call.what);
  } finally {
    deadline.stop();
  }
}

/** One request that must succeed. */
export async function succeed(connection: Connection, call: Call): Promise<Answer> {
  const answer = await exchange(connection, call);
  if (answer.code >= 200 && answer.code < 300) return answer;
  throw answerError(answer.code, answer.body, answer.headers["retry-after"], call.what);
}
