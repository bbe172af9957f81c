/**
 * The model port over the `openai` client: one attempt, streamed where the endpoint streams, classified. The client's
 * own retries are off, and of its results only the raw HTTP answer is used: it takes errors and web pages that come
 * with status 200 for results. What a stream has said so far is never acted on: an answer counts when it is complete.
 */
import OpenAI, { APIError } from "openai";
import type { ChatCompletionCreateParamsStreaming } from "openai/resources/chat/completions";
import type { Clock, ModelOutcome, ModelPort, ModelRequest, Progress, SharedWaits } from "#engine/ports.ts";
import {
  classifyError,
  classifyNetwork,
  failure,
  type ModelFailure,
  malformed,
  timedOut,
  withoutKey,
} from "./classify.ts";
import { credentialOf, RateGate } from "./gate.ts";
import { BETWEEN_CHUNKS_MS, FIRST_BYTE_MS, MAX_ERROR_BYTES, MAX_RESPONSE_BYTES, TOTAL_MS } from "./limits.ts";
import { Assembly, errorFacts, readAnswer } from "./response.ts";
import { retryAfterMs } from "./retry-after.ts";
import { EventSplitter } from "./sse.ts";
import { type CallLimits, Watchdog } from "./watchdog.ts";

/** The client's own timer must never be the one that fires: ours say what was waited for. */
const CLIENT_TIMEOUT_SLACK_MS = 60_000;
const USER_AGENT = "pawl";

export type OpenAiModelsOptions = {
  readonly clock: Clock;
  /** Epoch milliseconds, for a Retry-After date of an answer without Date header. */
  readonly now?: () => number;
  readonly limits?: Partial<CallLimits>;
  /** Told of every wait that an endpoint imposes. Never throws. */
  readonly onWait?: (credential: string, waitMs: number) => Promise<void>;
};

export class OpenAiModels implements ModelPort, SharedWaits {
  readonly #clock: Clock;
  readonly #now: () => number;
  readonly #limits: CallLimits;
  readonly #gate = new RateGate();
  readonly #onWait: OpenAiModelsOptions["onWait"];

  constructor(options: OpenAiModelsOptions) {
    this.#clock = options.clock;
    this.#now = options.now ?? Date.now;
    this.#onWait = options.onWait;
    this.#limits = {
      firstByteMs: FIRST_BYTE_MS,
      betweenChunksMs: BETWEEN_CHUNKS_MS,
      totalMs: TOTAL_MS,
      ...options.limits,
    };
  }

  /** A wait that another process was told of. */
  close(credential: string, waitMs: number): void {
    this.#gate.close(credential, this.#clock.monotonic(), waitMs);
  }

  async complete(request: ModelRequest, signal: AbortSignal, shown?: Progress): Promise<ModelOutcome> {
    const { baseURL } = request.endpoint;
    const target = URL.parse(baseURL);
    if (target === null || !/^https?:$/.test(target.protocol)) {
      return failure("terminal", "ModelRejected", "The Agent's model baseURL is not an http or https address.");
    }
    // Secrets made from files end in a newline; nothing else that a header cannot carry may be in a key.
    const key = request.apiKey?.trim();
    if (key !== undefined && !/^[\x21-\x7e]+$/.test(key)) {
      const text = "The model key is empty or contains characters that a key cannot have: check the Secret's value.";
      return failure("terminal", "ModelUnauthorized", text);
    }
    if (signal.aborted) return cancelled();
    const credential = credentialOf(baseURL, key);
    const closed = this.#gate.remaining(credential, this.#clock.monotonic());
    if (closed > 0) {
      const text = `The model endpoint ${target.host} asked everyone with this key to wait.`;
      return failure("transient", "ModelRateLimited", text, closed);
    }
    const totalMs = request.endpoint.timeoutMs ?? this.#limits.totalMs;
    const outcome = await this.#attempt(request, key, target.host, { ...this.#limits, totalMs }, signal, shown);
    if (outcome.kind !== "failed") return outcome;
    if (outcome.reason === "ModelRateLimited" && outcome.retryAfterMs !== undefined) {
      this.close(credential, outcome.retryAfterMs);
      await this.#onWait?.(credential, outcome.retryAfterMs);
    }
    return withoutKey(outcome, key);
  }

  async #attempt(
    request: ModelRequest,
    key: string | undefined,
    host: string,
    limits: CallLimits,
    signal: AbortSignal,
    shown: Progress | undefined,
  ): Promise<ModelOutcome> {
    const watchdog = new Watchdog(this.#clock, limits, signal);
    try {
      const client = clientFor(request.endpoint.baseURL, key, limits.totalMs);
      const body = requestBody(request);
      const response = await client.chat.completions.create(body, { signal: watchdog.signal }).asResponse();
      return await readResponse(response, host, watchdog, shown);
    } catch (error) {
      if (signal.aborted) return cancelled();
      if (watchdog.expired !== undefined) return timedOut(host, describeTimeout(watchdog.expired, limits));
      return this.#classify(error, host);
    } finally {
      watchdog.stop();
    }
  }

  #classify(error: unknown, host: string): ModelFailure {
    if (error instanceof TooLong) return malformed(host, `more than ${MAX_RESPONSE_BYTES} bytes`);
    if (error instanceof APIError && error.status !== undefined) {
      const facts = errorFacts(error.error ?? error.message);
      const wait = error.headers === undefined ? undefined : retryAfterMs(error.headers, this.#now());
      return classifyError({ host, status: error.status, ...facts, retryAfterMs: wait });
    }
    return classifyNetwork(host, networkCode(error));
  }
}

function clientFor(baseURL: string, key: string | undefined, totalMs: number): OpenAI {
  return new OpenAI({
    baseURL,
    // The client demands a key; without one the header is left out.
    apiKey: key ?? "none",
    defaultHeaders: { "User-Agent": USER_AGENT, ...(key === undefined ? { Authorization: null } : {}) },
    // Given explicitly, because the client would read each of them from the environment.
    adminAPIKey: null,
    organization: null,
    project: null,
    webhookSecret: null,
    maxRetries: 0,
    timeout: totalMs + CLIENT_TIMEOUT_SLACK_MS,
    // A key must not follow a redirect.
    fetchOptions: { redirect: "manual" },
    fetch: fetchWithBoundedErrors,
    logLevel: "off",
  });
}

function requestBody({ endpoint, messages, tools, responseSchema }: ModelRequest): ChatCompletionCreateParamsStreaming {
  // OpenAI's own models refuse `max_tokens` by now, while many others know nothing else.
  const openai = new URL(endpoint.baseURL).hostname.endsWith("openai.com");
  const limit = openai ? "max_completion_tokens" : "max_tokens";
  return {
    model: endpoint.model,
    messages: [...messages] as ChatCompletionCreateParamsStreaming["messages"],
    ...(tools.length === 0
      ? {}
      : { tools: tools.map((tool) => ({ type: "function" as const, function: { ...tool } })) }),
    ...(responseSchema === undefined
      ? {}
      : { response_format: { type: "json_schema" as const, json_schema: { ...responseSchema, strict: true } } }),
    ...(endpoint.maxOutputTokens === undefined ? {} : { [limit]: endpoint.maxOutputTokens }),
    stream: true,
    stream_options: { include_usage: true },
  };
}

/** Node's fetch, but an error answer is read here, up to a bound: the client would read all of it, however long. */
async function fetchWithBoundedErrors(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const response = await fetch(input, init);
  if (response.ok || response.body === null) return response;
  let text = "";
  const decoder = new TextDecoder();
  for await (const bytes of response.body) {
    text += decoder.decode(bytes, { stream: true });
    // Leaving the loop cancels the body.
    if (text.length >= MAX_ERROR_BYTES) break;
  }
  const { status, statusText, headers } = response;
  return new Response(text, { status, statusText, headers });
}

class TooLong extends Error {}

async function readResponse(
  response: Response,
  host: string,
  watchdog: Watchdog,
  shown: Progress | undefined,
): Promise<ModelOutcome> {
  const type = response.headers.get("content-type") ?? "";
  let whole = "";
  let stream = /event-stream/i.test(type) ? new EventReader(host) : undefined;
  try {
    for await (const text of textOf(response, watchdog)) {
      // Some servers stream under another content type: what it looks like decides.
      if (stream === undefined && whole === "" && /^\s*(data|event|id|retry)?:/.test(text))
        stream = new EventReader(host);
      if (stream === undefined) whole += text;
      else {
        const ended = stream.push(text);
        shown?.(stream.length);
        if (ended !== undefined) return ended;
      }
    }
  } catch (error) {
    // After the finish reason only the usage and the end mark can be lost: the answer itself is complete.
    if (stream?.complete !== true) throw error;
  }
  return stream === undefined ? readAnswer(whole, host) : stream.end();
}

class EventReader {
  readonly #splitter = new EventSplitter();
  readonly #assembly: Assembly;

  constructor(host: string) {
    this.#assembly = new Assembly(host);
  }

  get length(): number {
    return this.#assembly.length;
  }

  get complete(): boolean {
    return this.#assembly.finished;
  }

  /** The outcome, once the stream has said that it is over. */
  push(text: string): ModelOutcome | undefined {
    return this.#take(this.#splitter.push(text));
  }

  end(): ModelOutcome {
    // A last event that was cut is not a malformed answer but an incomplete one.
    const outcome = this.#take(this.#splitter.end());
    if (outcome?.kind === "failed" && outcome.reason === "ModelMalformed") return this.#assembly.finish(false);
    return outcome ?? this.#assembly.finish(false);
  }

  #take(events: readonly string[]): ModelOutcome | undefined {
    for (const data of events) {
      if (data.trim() === "[DONE]") return this.#assembly.finish(true);
      const failed = this.#assembly.addChunk(data);
      if (failed !== undefined) return failed;
    }
    return undefined;
  }
}

/** The body as text, piece by piece. Throws when the call is aborted, the connection lost or the body too long. */
async function* textOf(response: Response, watchdog: Watchdog): AsyncGenerator<string> {
  if (response.body === null) return;
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  // The client drops its abort listeners in some paths; cancelling here ends the read in all of them.
  const cancel = (): void => void reader.cancel().catch(() => undefined);
  watchdog.signal.addEventListener("abort", cancel, { once: true });
  const decoder = new TextDecoder();
  let size = 0;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      watchdog.signal.throwIfAborted();
      if (done) break;
      watchdog.progress();
      size += value.byteLength;
      if (size > MAX_RESPONSE_BYTES) throw new TooLong();
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    watchdog.signal.removeEventListener("abort", cancel);
    // Frees the connection when the rest is not wanted; a finished body does not mind.
    cancel();
  }
}

function describeTimeout(limit: keyof CallLimits, limits: CallLimits): string {
  if (limit === "firstByteMs") return `sent nothing for ${limits.firstByteMs / 1000} s`;
  if (limit === "betweenChunksMs") return `stopped in the middle of an answer for ${limits.betweenChunksMs / 1000} s`;
  return `did not finish within ${limits.totalMs / 1000} s: raise the Agent's model timeout if its answers take longer`;
}

const cancelled = (): ModelFailure => failure("cancelled", "Cancelled", "The model call was cancelled.");

/** The first system error code in the chain of causes. */
function networkCode(error: unknown): string | undefined {
  for (let current = error, depth = 0; current instanceof Error && depth < 8; current = current.cause, depth += 1) {
    const { code, errors } = current as { code?: unknown; errors?: unknown };
    if (typeof code === "string") return code;
    // Several addresses were tried: the first one's error stands for all.
    if (Array.isArray(errors) && errors[0] instanceof Error) return networkCode(errors[0]);
  }
  return undefined;
}
