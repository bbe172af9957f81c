/**
 * The scripts of the model fake, and which answer of one a request is due. Format and rules:
 *
 * - A book is `{scripts: {NAME: {match?, steps: [ANSWER or [ANSWER, …], …]}}}`.
 * - A script is chosen by the newest user message that says `script:NAME`, or contains the `match` text of one. That
 *   message is where the turn starts. `key=value` words after the marker fill `{{key}}` in the script.
 * - The step is the number of assistant messages after the start: it is read from the request alone, so that a run
 *   resumed by another worker gets the step it is at, and a repeated request gets the same step again.
 * - A step given as a list answers its n-th sampling with the n-th entry, later ones with the last.
 */
import { z } from "zod";
import type { ModelMessage } from "./model-strict.ts";

const errorBody = z.looseObject({ message: z.string() });

const fault = z.discriminatedUnion("kind", [
  /** An error answer with any status and headers; `body` defaults to an OpenAI-style error. */
  z.strictObject({
    kind: z.literal("status"),
    status: z.int().min(300).max(599),
    headers: z.record(z.string(), z.string()).optional(),
    body: z.json().optional(),
  }),
  /** HTTP 200 with a web page, as captive portals and wrong base URLs give. */
  z.strictObject({ kind: z.literal("html") }),
  /** HTTP 200 with `{"error": …}`. */
  z.strictObject({ kind: z.literal("error-200"), error: errorBody }),
  /** In a stream: the error comes as an event after the first chunk. Without streaming like `error-200`. */
  z.strictObject({ kind: z.literal("error-event"), error: errorBody }),
  z.strictObject({ kind: z.literal("empty-choices") }),
  /** The first `at` bytes of the body, then the connection is reset. */
  z.strictObject({ kind: z.literal("cut"), at: z.int().min(0) }),
  /** The first `at` bytes of the body, then a clean end, as if that were all. */
  z.strictObject({ kind: z.literal("eof"), at: z.int().min(0) }),
  /** The first `at` bytes (without it not even headers), then silence until the client goes away. */
  z.strictObject({ kind: z.literal("stall"), at: z.int().min(0).optional() }),
  /** The connection is reset before any byte of an answer. */
  z.strictObject({ kind: z.literal("reset") }),
]);

const call = z.strictObject({
  /** Default: unique. "" and repeated ids are quirks seen in the field. */
  id: z.string().optional(),
  name: z.string(),
  arguments: z.record(z.string(), z.json()).optional(),
  /** The arguments as raw text, for cut or malformed JSON. */
  argumentsText: z.string().optional(),
});

const answer = z.strictObject({
  text: z.string().nullable().optional(),
  refusal: z.string().optional(),
  calls: z.array(call).optional(),
  /** Default: what the content says (`tool_calls` or `stop`); null leaves it null throughout. */
  finish: z.string().nullable().optional(),
  /** How calls are numbered in a stream: properly, all at index 0, or without index. */
  slots: z.enum(["index", "zero", "none"]).default("index"),
  /** `never`: a plain JSON answer even to a streaming request. */
  streaming: z.enum(["asked", "never"]).default("asked"),
  /** The answer waits for `POST /release`. */
  hold: z.boolean().default(false),
  /** Whether a repeated sampling says the same in other words, as real models do. */
  reword: z.boolean().default(true),
  usage: z.boolean().default(true),
  fault: fault.optional(),
});

const script = z.strictObject({
  match: z.string().min(1).optional(),
  steps: z.array(z.union([answer, z.array(answer).min(1)])).min(1),
});

export const scriptBook = z.strictObject({ scripts: z.record(z.string().regex(/^[A-Za-z0-9_-]+$/), script) });

export type ModelFault = z.infer<typeof fault>;
export type ModelAnswer = z.infer<typeof answer>;
/** As a script is written: defaults may be left out. */
export type ModelScript = z.input<typeof script>;
export type ScriptBook = z.input<typeof scriptBook>;
export type ParsedBook = z.infer<typeof scriptBook>;

const MARKER = /\bscript:([A-Za-z0-9_-]+)/;
/** Values of the marker line, up to a quote or white space: enough for names, numbers and URLs. */
const PARAMETER = /\b([a-z][a-zA-Z0-9]*)=([^\s"'<>]+)/g;

export type Choice = {
  /** Undefined: no script was asked for, the built-in demo answers. */
  readonly script: string | undefined;
  readonly step: number;
  readonly parameters: Readonly<Record<string, string>>;
  /** Everything up to and including the message that started the turn: tells conversations apart. */
  readonly start: number;
};

/** Pure: the same request is always due the same step. */
export function choose(book: ParsedBook, messages: readonly ModelMessage[]): Choice {
  for (let index = messages.length - 1; index >= 0; index -= 1) {
    const entry = messages[index];
    if (entry?.role !== "user") continue;
    const name = MARKER.exec(entry.content)?.[1] ?? matching(book, entry.content);
    if (name === undefined) continue;
    const parameters = { ...parametersOf(entry.content), ...namedBy(messages) };
    return { script: name, start: index, step: stepsAfter(messages, index), parameters };
  }
  const start = messages.findLastIndex((entry, index) => entry.role === "user" && messages[index - 1]?.role !== "tool");
  return { script: undefined, start, step: stepsAfter(messages, start), parameters: {} };
}

function matching(book: ParsedBook, text: string): string | undefined {
  return Object.entries(book.scripts).find(([, { match }]) => match !== undefined && text.includes(match))?.[0];
}

function stepsAfter(messages: readonly ModelMessage[], start: number): number {
  return messages.slice(start + 1).filter((entry) => entry.role === "assistant").length;
}

function parametersOf(text: string): Record<string, string> {
  const marker = MARKER.exec(text);
  const after = marker === null ? "" : text.slice(marker.index);
  return Object.fromEntries([...after.matchAll(PARAMETER)].map((match) => [match[1] ?? "", match[2] ?? ""]));
}

/** `{{effect}}`: the newest write that a tool's result named, or a note of Pawl's, as a model that read it would name it. */
function namedBy(messages: readonly ModelMessage[]): Record<string, string> {
  for (const entry of messages.toReversed()) {
    const names = entry.role === "tool" ? /\bis effect ([0-9a-f-]{36})\b/ : /^- effect ([0-9a-f-]{36}),/m;
    const effect = entry.role === "assistant" ? undefined : names.exec(entry.content ?? "")?.[1];
    if (effect !== undefined) return { effect };
  }
  return {};
}

/** The answer that sampling number `sample` (from 0) of `step` gets; undefined when the script has no such step. */
export function answerOf(
  book: ParsedBook,
  choice: Choice & { script: string },
  sample: number,
): ModelAnswer | undefined {
  const step = book.scripts[choice.script]?.steps[choice.step];
  const sampled = Array.isArray(step) ? step[Math.min(sample, step.length - 1)] : step;
  if (sampled === undefined) return undefined;
  const filled = mapStrings(sampled, (text) => fill(text, choice.parameters)) as ModelAnswer;
  return filled.reword && sample > 0 ? rewordAnswer(filled, sample) : filled;
}

function fill(text: string, parameters: Readonly<Record<string, string>>): string {
  return text.replaceAll(/\{\{([a-zA-Z0-9]+)\}\}/g, (whole, name: string) => parameters[name] ?? whole);
}

/** The same meaning in other words: free text in arguments and answer changes, names, numbers and URLs stay. */
function rewordAnswer(given: ModelAnswer, sample: number): ModelAnswer {
  return {
    ...given,
    ...(typeof given.text === "string" ? { text: reword(given.text, sample) } : {}),
    ...(given.calls === undefined
      ? {}
      : {
          calls: given.calls.map((entry) =>
            entry.arguments === undefined
              ? entry
              : {
                  ...entry,
                  arguments: mapStrings(entry.arguments, (text) => reword(text, sample)) as typeof entry.arguments,
                },
          ),
        }),
  };
}

export function reword(text: string, sample: number): string {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null) {
      return JSON.stringify(mapStrings(value, (inner) => reword(inner, sample)));
    }
  } catch {
    // Not JSON: free text or a word.
  }
  return /\S\s+\S/.test(text) ? `In other words (${sample}): ${text}` : text;
}

function mapStrings(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((entry) => mapStrings(entry, change));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, mapStrings(entry, change)]));
}
