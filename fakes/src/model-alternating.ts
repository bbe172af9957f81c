/**
 * A second dialect of strict providers: those behind whose Chat Completions surface stands a chat template that alternates.
 * What such endpoints refuse beyond `model-strict.ts`: two messages of one role in a row, results that are not exactly
 * those of the message before in its order, ids that are not nine letters and digits, content that is blank or has
 * characters no template takes. (One rule of that family is left out, because Pawl's order of messages is deliberate: a
 * user message right after tool results. Amendments of people stand there; they must never stand inside a result.)
 */
import type { CheckedRequest, ModelMessage } from "./model-strict.ts";

const CALL_ID = /^[a-zA-Z0-9]{9}$/;

/** The first thing that such a provider would refuse, in words; null when there is none. */
export function alternatingRefusal({ messages, tools }: Pick<CheckedRequest, "messages" | "tools">): string | null {
  const [first, ...rest] = messages;
  if (first === undefined) return "no messages";
  const turns = first.role === "system" ? rest : messages;
  if (turns[0]?.role !== "user") return "the conversation must begin with a user message";
  let expected: string[] = [];
  for (const [index, message] of turns.entries()) {
    const before = turns[index - 1];
    const wrong = outOfTurn(message, before, expected) ?? malformed(message, tools !== undefined);
    if (wrong !== null) return `message ${index}: ${wrong}`;
    if (message.role === "assistant") expected = (message.tool_calls ?? []).map(({ id }) => id);
    else if (message.role === "tool") expected = expected.slice(1);
  }
  if (expected.length > 0) return `calls without results: ${expected.join(", ")}`;
  const last = turns.at(-1)?.role;
  return last === "user" || last === "tool" ? null : `the last message must be of user or tool, not ${last}`;
}

function outOfTurn(
  message: ModelMessage,
  before: ModelMessage | undefined,
  expected: readonly string[],
): string | null {
  if (message.role === "system" || message.role === "developer") return "system messages stand at the beginning only";
  if (message.role === "tool") {
    return expected[0] === message.tool_call_id
      ? null
      : `expected the result of ${expected[0] ?? "nothing"}, not of ${message.tool_call_id}`;
  }
  if (expected.length > 0) return `calls without results: ${expected.join(", ")}`;
  return message.role === before?.role ? `two messages of ${message.role} in a row` : null;
}

function malformed(message: ModelMessage, offered: boolean): string | null {
  const { content } = message;
  if (content != null && content.trim() === "") return "blank content";
  if (content?.includes("\0") === true || content?.isWellFormed() === false) return "content that is no text";
  if (message.role !== "assistant") return null;
  const calls = message.tool_calls ?? [];
  if (content == null && calls.length === 0) return "an assistant message with nothing in it";
  if (calls.length > 0 && !offered) return "calls of tools that are not offered";
  const id = calls.find((call) => !CALL_ID.test(call.id))?.id;
  if (id !== undefined) return `the id ${id} is not nine letters and digits`;
  return new Set(calls.map((call) => call.id)).size === calls.length ? null : "one id twice";
}
