/** Turns an answer of a script into the bytes of a Chat Completions response, plain or streamed. Pure. */
import type { ModelAnswer } from "./model-script.ts";

export type Rendered = { readonly contentType: string; readonly body: string };

export type RenderContext = {
  readonly id: string;
  readonly model: string;
  readonly promptTokens: number;
  readonly includeUsage: boolean;
};

type Slot = { id: string; name: string; argumentsText: string };

const FINGERPRINT = "fp_scripted_fake";
/** Pieces a streamed string is cut into: more than one, so that clients must join them. */
const PIECES = 3;

function slotsOf(answer: ModelAnswer, id: string): Slot[] {
  return (answer.calls ?? []).map((call, index) => ({
    id: call.id ?? `call_${id}_${index}`,
    name: call.name,
    argumentsText: call.argumentsText ?? JSON.stringify(call.arguments ?? {}),
  }));
}

function finishOf(answer: ModelAnswer): string | null {
  if (answer.finish !== undefined) return answer.finish;
  return (answer.calls ?? []).length > 0 ? "tool_calls" : "stop";
}

function usageOf(answer: ModelAnswer, context: RenderContext): Record<string, number> {
  const output = Math.ceil(JSON.stringify([answer.text ?? "", answer.calls ?? []]).length / 4);
  const input = context.promptTokens;
  return { prompt_tokens: input, completion_tokens: output, total_tokens: input + output };
}

const envelope = (object: string, context: RenderContext): Record<string, unknown> => ({
  id: `chatcmpl-${context.id}`,
  object,
  created: 1_700_000_000,
  model: `scripted/${context.model}`,
  system_fingerprint: FINGERPRINT,
});

export function renderJson(answer: ModelAnswer, context: RenderContext): Rendered {
  const slots = slotsOf(answer, context.id);
  const message = {
    role: "assistant",
    content: answer.text ?? null,
    ...(answer.refusal === undefined ? {} : { refusal: answer.refusal }),
    ...(slots.length === 0
      ? {}
      : {
          tool_calls: slots.map(({ id, name, argumentsText }) => ({
            id,
            type: "function",
            function: { name, arguments: argumentsText },
          })),
        }),
  };
  const choices =
    answer.fault?.kind === "empty-choices"
      ? []
      : [{ index: 0, message, logprobs: null, finish_reason: finishOf(answer) }];
  const body = {
    ...envelope("chat.completion", context),
    choices,
    ...(answer.usage ? { usage: usageOf(answer, context) } : {}),
  };
  return { contentType: "application/json", body: JSON.stringify(body) };
}

export function renderStream(answer: ModelAnswer, context: RenderContext): Rendered {
  const events: unknown[] = [];
  const chunk = (choices: unknown[], extra: object = {}): void => {
    events.push({ ...envelope("chat.completion.chunk", context), choices, ...extra });
  };
  const delta = (content: object, finish: string | null = null): void =>
    chunk([{ index: 0, delta: content, finish_reason: finish }]);
  if (answer.fault?.kind === "empty-choices") {
    chunk([]);
  } else {
    delta({ role: "assistant", content: answer.text === undefined ? null : "" });
    if (answer.fault?.kind === "error-event") events.push({ error: answer.fault.error });
    for (const piece of pieces(answer.text ?? "")) delta({ content: piece });
    for (const piece of pieces(answer.refusal ?? "")) delta({ refusal: piece });
    for (const [index, slot] of slotsOf(answer, context.id).entries()) {
      const place = answer.slots === "none" ? {} : { index: answer.slots === "zero" ? 0 : index };
      const opening = { id: slot.id, type: "function", function: { name: slot.name, arguments: "" } };
      delta({ tool_calls: [{ ...place, ...opening }] });
      for (const piece of pieces(slot.argumentsText)) {
        delta({ tool_calls: [{ ...place, function: { arguments: piece } }] });
      }
    }
    delta({}, finishOf(answer));
  }
  if (context.includeUsage && answer.usage) chunk([], { usage: usageOf(answer, context) });
  const lines = [...events.map((event) => JSON.stringify(event)), "[DONE]"];
  return { contentType: "text/event-stream", body: lines.map((line) => `data: ${line}\n\n`).join("") };
}

function pieces(text: string): string[] {
  const size = Math.max(1, Math.ceil(text.length / PIECES));
  const parts: string[] = [];
  for (let at = 0; at < text.length; at += size) parts.push(text.slice(at, at + size));
  return parts;
}
