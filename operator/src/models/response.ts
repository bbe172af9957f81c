/**
 * Reads Chat Completions answers, whole or as a stream of chunks, into outcomes. Every answer is parsed by schema:
 * the client library hands on `{"error": …}`, empty choices and web pages as if they were results. What counts is the
 * content; `finish_reason` only says whether it was cut, because endpoints disagree about everything else in it. Pure.
 */
import { z } from "zod";
import type { ModelCall, ModelOutcome, ModelUsage } from "#engine/ports.ts";
import { classifyError, failure, type ModelFailure, malformed, quote } from "./classify.ts";
import { argumentsText, CallSlots } from "./slots.ts";

const callShape = z.looseObject({
  index: z.number().nullish(),
  id: z.string().nullish(),
  function: z
    .looseObject({ name: z.string().nullish(), arguments: z.union([z.string(), z.looseObject({})]).nullish() })
    .nullish(),
});
const contentShape = z.looseObject({
  content: z.string().nullish(),
  refusal: z.string().nullish(),
  tool_calls: z.array(callShape).nullish(),
});
const usageShape = z.looseObject({
  prompt_tokens: z.number().nullish(),
  completion_tokens: z.number().nullish(),
  // A detail that some endpoint writes in its own way is no reason to lose the answer.
  prompt_tokens_details: z.looseObject({ cached_tokens: z.number().nullish() }).nullish().catch(undefined),
});
const choiceShape = z.looseObject({
  index: z.number().nullish(),
  message: contentShape.nullish(),
  delta: contentShape.nullish(),
  finish_reason: z.string().nullish(),
  error: z.unknown().optional(),
});
const answerShape = z.looseObject({
  choices: z.array(choiceShape).nullish(),
  usage: usageShape.nullish(),
  error: z.unknown().optional(),
});
const errorShape = z.looseObject({
  message: z.string().nullish(),
  code: z.union([z.string(), z.number()]).nullish(),
  type: z.string().nullish(),
});

type Answer = z.infer<typeof answerShape>;

/** Finish reasons that mean: the message was cut. Their calls must not run, even if their arguments parse. */
const CUT = new Set(["length", "max_tokens", "model_length", "max_output_tokens"]);
const FILTERED = new Set(["content_filter", "safety", "recitation", "blocklist", "prohibited_content"]);

/** What providers put into `error`: an object, or only a sentence. */
export function errorFacts(error: unknown): { message: string; code?: string; type?: string } {
  const parsed = errorShape.safeParse(error);
  if (!parsed.success) return { message: typeof error === "string" ? error : (JSON.stringify(error) ?? "") };
  const { message, code, type } = parsed.data;
  return {
    message: message ?? JSON.stringify(error),
    ...(code === null || code === undefined ? {} : { code: String(code) }),
    ...(type === null || type === undefined ? {} : { type }),
  };
}

/** Numbers that are missing are not known; they are not zero. */
function usageOf(usage: NonNullable<Answer["usage"]>): ModelUsage | null {
  const { prompt_tokens: input, completion_tokens: output, prompt_tokens_details: details } = usage;
  if (input == null || output == null) return null;
  const cached = details?.cached_tokens;
  const counted = { inputTokens: input, outputTokens: output };
  return cached == null ? counted : { ...counted, cachedInputTokens: cached };
}

/** One answer that came whole. */
export function readAnswer(text: string, host: string): ModelOutcome {
  const answer = parseAnswer(text, host);
  if (!answer.ok) return answer.failure;
  const assembly = new Assembly(host);
  return assembly.add(answer.value, "message") ?? assembly.finish(true);
}

type Parsed = { readonly ok: true; readonly value: Answer } | { readonly ok: false; readonly failure: ModelFailure };

function parseAnswer(text: string, host: string): Parsed {
  const wrong = (what: string): Parsed => ({ ok: false, failure: malformed(host, what) });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return /^\s*</.test(text)
      ? wrong("a web page instead of JSON: check baseURL (it usually ends in /v1) and proxies between")
      : wrong(`an answer that is not JSON or was cut off: “${quote(text)}”`);
  }
  const parsed = answerShape.safeParse(value);
  if (parsed.success) return { ok: true, value: parsed.data };
  const issue = parsed.error.issues[0];
  const where = issue === undefined || issue.path.length === 0 ? "at the top" : `at ${issue.path.join(".")}`;
  return wrong(`an answer of another shape (${where}: ${issue?.message})`);
}

/** Takes the chunks of one answer in order. */
export class Assembly {
  readonly #host: string;
  readonly #slots = new CallSlots();
  readonly #whole: ModelCall[] = [];
  #text = "";
  #refusal = "";
  #finish: string | null = null;
  #usage: ModelUsage | null = null;
  #sawChoice = false;

  constructor(host: string) {
    this.#host = host;
  }

  /** Characters of text so far. */
  get length(): number {
    return this.#text.length;
  }

  /** Nothing but usage can follow a finish reason. */
  get finished(): boolean {
    return this.#finish !== null;
  }

  /** The data of one event. Returns the failure that ends the call, if it is one. */
  addChunk(data: string): ModelFailure | undefined {
    const answer = parseAnswer(data, this.#host);
    return answer.ok ? this.add(answer.value, "delta") : answer.failure;
  }

  add(answer: Answer, field: "message" | "delta"): ModelFailure | undefined {
    if (answer.error !== undefined && answer.error !== null) {
      return classifyError({ host: this.#host, ...errorFacts(answer.error) });
    }
    if (answer.usage != null) {
      this.#usage = usageOf(answer.usage) ?? this.#usage;
    }
    // We ask for one choice; others are not ours.
    const choice = answer.choices?.find((candidate) => (candidate.index ?? 0) === 0);
    if (choice === undefined) return undefined;
    this.#sawChoice = true;
    if (choice.error !== undefined && choice.error !== null) {
      return classifyError({ host: this.#host, ...errorFacts(choice.error) });
    }
    const content = choice[field] ?? choice.message ?? choice.delta;
    this.#text += content?.content ?? "";
    this.#refusal += content?.refusal ?? "";
    for (const call of content?.tool_calls ?? []) {
      if (field === "delta") this.#slots.add(call);
      else this.#whole.push(wholeCall(call));
    }
    this.#finish = choice.finish_reason ?? this.#finish;
    return undefined;
  }

  /** The outcome. `ended`: the endpoint said that this was all (`[DONE]`, or the answer came whole). */
  finish(ended: boolean): ModelOutcome {
    if (!ended && !this.finished) return malformed(this.#host, "a stream that ended before the answer was complete");
    if (!this.#sawChoice) return malformed(this.#host, "an answer without choices");
    const calls = this.#whole.length > 0 ? this.#whole : this.#slots.calls;
    if (calls.some((call) => call.name === "")) return malformed(this.#host, "a tool call without a name");
    const text = this.#text !== "" ? this.#text : this.#refusal;
    const reason = this.#finish?.toLowerCase();
    if (reason === "error") return malformed(this.#host, "an answer that it gave up on (finish_reason error)");
    const filtered = reason !== undefined && FILTERED.has(reason);
    if (text === "" && calls.length === 0) {
      if (filtered) return filteredAway(this.#host);
      if (reason === undefined) return malformed(this.#host, "an answer with nothing in it");
    }
    return {
      kind: "response",
      text: text === "" ? null : text,
      calls,
      truncated: reason !== undefined && (CUT.has(reason) || (filtered && calls.length > 0)),
      usage: this.#usage,
      finishReason: this.#finish,
    };
  }
}

function wholeCall(call: z.infer<typeof callShape>): ModelCall {
  return {
    providerId: call.id ?? "",
    name: call.function?.name ?? "",
    argumentsText: argumentsText(call.function?.arguments),
  };
}

/** Asking again would be filtered again: a person has to change something. */
function filteredAway(host: string): ModelFailure {
  const text = `The content filter of the model endpoint ${host} withheld the whole answer. Rephrase the input, or relax the filter at the provider.`;
  return failure("terminal", "ModelContentFiltered", text);
}
