/**
 * What strict Chat Completions providers refuse, in one pure function. Lenient endpoints forgive most of this; a
 * transcript that passes here passes at OpenAI, and at the servers that put stricter templates behind the same dialect.
 */
import { z } from "zod";

/** A refusal as it goes over the wire: `{"error": {message, type, param, code}}` with `status`. */
export type Refusal = { status: number; message: string; type: string; param: string | null; code: string | null };

export const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
/** OpenAI caps call ids at 40 characters; others allow only these characters in them. */
export const CALL_ID = /^[a-zA-Z0-9_-]{1,40}$/;
const USER_NAME = /^[^\s<|\\/>]{1,64}$/;
const MAX_DESCRIPTION = 1024;
const MAX_TOOLS = 128;
/** Bytes per token of the fake's own count: a rough figure, but the same for everyone who sets a budget. */
export const BYTES_PER_TOKEN = 4;

const PARAMETERS = new Set(
  (
    "model messages tools tool_choice parallel_tool_calls stream stream_options max_tokens max_completion_tokens " +
    "temperature top_p stop seed n user presence_penalty frequency_penalty response_format reasoning_effort " +
    "logprobs top_logprobs logit_bias metadata store service_tier"
  ).split(" "),
);

const toolCall = z.strictObject({
  id: z.string(),
  type: z.literal("function"),
  function: z.strictObject({ name: z.string(), arguments: z.string() }),
});
const message = z.discriminatedUnion("role", [
  z.strictObject({ role: z.enum(["system", "developer"]), content: z.string(), name: z.string().optional() }),
  z.strictObject({ role: z.literal("user"), content: z.string(), name: z.string().optional() }),
  z.strictObject({
    role: z.literal("assistant"),
    content: z.string().nullish(),
    refusal: z.string().nullish(),
    name: z.string().optional(),
    tool_calls: z.array(toolCall).min(1).optional(),
  }),
  z.strictObject({ role: z.literal("tool"), tool_call_id: z.string(), content: z.string() }),
]);
const tool = z.strictObject({
  type: z.literal("function"),
  function: z.strictObject({
    name: z.string().regex(TOOL_NAME),
    description: z.string().max(MAX_DESCRIPTION).optional(),
    parameters: z.looseObject({ type: z.literal("object") }).optional(),
    strict: z.boolean().nullish(),
  }),
});
const requestShape = z.looseObject({
  model: z.string().min(1),
  messages: z.array(message).min(1),
  tools: z.array(tool).min(1).max(MAX_TOOLS).optional(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().optional() }).nullish(),
  max_tokens: z.int().positive().nullish(),
  max_completion_tokens: z.int().positive().nullish(),
});

export type ModelMessage = z.infer<typeof message>;
export type CheckedRequest = z.infer<typeof requestShape>;

export const invalid = (text: string, param: string | null = null, code: string | null = null): Refusal => ({
  status: 400,
  message: text,
  type: "invalid_request_error",
  param,
  code,
});

/** The fake's token count of a request: bytes of its messages and tools, over BYTES_PER_TOKEN. */
export function countTokens(request: Pick<CheckedRequest, "messages" | "tools">): number {
  return Math.ceil(Buffer.byteLength(JSON.stringify([request.messages, request.tools ?? []])) / BYTES_PER_TOKEN);
}

/** The request, or the first thing a strict provider would refuse in it. */
export function checkRequest(
  body: unknown,
  contextTokens: number | undefined,
): { ok: true; request: CheckedRequest } | { ok: false; refusal: Refusal } {
  const shape = requestShape.safeParse(body);
  if (!shape.success) {
    const issue = shape.error.issues[0];
    const path = issue?.path.join(".") ?? "";
    return { ok: false, refusal: invalid(`Invalid value at '${path}': ${issue?.message ?? "not an object"}`, path) };
  }
  const request = shape.data;
  const refusal =
    checkParameters(request) ?? checkMessages(request) ?? checkPairs(request.messages) ?? checkTools(request);
  if (refusal !== undefined) return { ok: false, refusal };
  const tokens = countTokens(request);
  if (contextTokens !== undefined && tokens > contextTokens) {
    return { ok: false, refusal: overflow(contextTokens, tokens) };
  }
  return { ok: true, request };
}

export function overflow(limit: number, tokens: number): Refusal {
  return invalid(
    `This model's maximum context length is ${limit} tokens. However, your messages resulted in ${tokens} tokens. Please reduce the length of the messages.`,
    "messages",
    "context_length_exceeded",
  );
}

function checkParameters(request: CheckedRequest): Refusal | undefined {
  for (const name of Object.keys(request)) {
    if (!PARAMETERS.has(name)) return invalid(`Unrecognized request argument supplied: ${name}`, name);
  }
  if (request.stream_options != null && request.stream !== true) {
    return invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options");
  }
  return undefined;
}

/** Each message by itself, and the order of roles that the stricter chat templates insist on. */
function checkMessages({ messages, tools }: CheckedRequest): Refusal | undefined {
  for (const [index, entry] of messages.entries()) {
    const at = `messages.[${index}]`;
    const refusal = checkMessage(entry, at);
    if (refusal !== undefined) return refusal;
    const before = messages[index - 1]?.role;
    if ((entry.role === "system" || entry.role === "developer") && index > 0 && before !== "system") {
      return invalid("System messages are only allowed at the beginning.", `${at}.role`);
    }
    if (entry.role === "assistant" && (before === undefined || before === "system")) {
      return invalid("The first message after the system message must be a user message.", `${at}.role`);
    }
    if (entry.role === "assistant" && before === "assistant") {
      return invalid("Two assistant messages in a row: conversation roles must alternate.", `${at}.role`);
    }
  }
  const last = messages.at(-1)?.role;
  if (last !== "user" && last !== "tool") {
    return invalid(`Expected last role User or Tool but got ${last}.`, "messages");
  }
  if (tools === undefined && messages.some((entry) => entry.role === "tool")) {
    return invalid("'tools' must be given when the messages contain tool calls.", "tools");
  }
  return undefined;
}

function checkMessage(entry: ModelMessage, at: string): Refusal | undefined {
  if (entry.role === "assistant") {
    if (entry.content != null && entry.content.trim() === "") {
      return invalid("Assistant content must be null or not empty.", `${at}.content`);
    }
    if (entry.content == null && entry.tool_calls === undefined) {
      return invalid("An assistant message needs content or tool_calls.", `${at}.content`);
    }
  } else if (entry.content.trim() === "") {
    return invalid(`Messages with role '${entry.role}' must not be empty.`, `${at}.content`);
  }
  if ("name" in entry && entry.name !== undefined && !USER_NAME.test(entry.name)) {
    return invalid(`Invalid '${at}.name': it must match the pattern ^[^\\s<|\\\\/>]+$.`, `${at}.name`);
  }
  return undefined;
}

/** Every call has one result, directly after its message; every result has a call; no id is used twice. */
function checkPairs(messages: readonly ModelMessage[]): Refusal | undefined {
  const used = new Set<string>();
  let open = new Set<string>();
  const unanswered = (): Refusal =>
    invalid(
      "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. " +
        `The following tool_call_ids did not have response messages: ${[...open].join(", ")}`,
      "messages",
    );
  for (const [index, entry] of messages.entries()) {
    const at = `messages.[${index}]`;
    if (entry.role === "tool") {
      if (!open.delete(entry.tool_call_id)) {
        return invalid(
          "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
          `${at}.role`,
        );
      }
      continue;
    }
    if (open.size > 0) return unanswered();
    if (entry.role !== "assistant") continue;
    for (const [slot, call] of (entry.tool_calls ?? []).entries()) {
      const refusal = checkCall(call, used, `${at}.tool_calls[${slot}]`);
      if (refusal !== undefined) return refusal;
      used.add(call.id);
      open = new Set([...open, call.id]);
    }
  }
  return open.size > 0 ? unanswered() : undefined;
}

function checkCall(call: z.infer<typeof toolCall>, used: ReadonlySet<string>, at: string): Refusal | undefined {
  if (!CALL_ID.test(call.id)) return invalid(`Invalid '${at}.id': it must match ${CALL_ID.source}.`, `${at}.id`);
  if (used.has(call.id)) return invalid(`Duplicate tool call id '${call.id}'.`, `${at}.id`);
  if (!TOOL_NAME.test(call.function.name)) {
    return invalid(`Invalid '${at}.function.name': it must match ${TOOL_NAME.source}.`, `${at}.function.name`);
  }
  try {
    const value: unknown = JSON.parse(call.function.arguments);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return undefined;
  } catch {
    // Said below, as for JSON that is not an object.
  }
  return invalid(`Invalid '${at}.function.arguments': it must be a JSON object.`, `${at}.function.arguments`);
}

function checkTools({ tools }: CheckedRequest): Refusal | undefined {
  const names = new Set<string>();
  for (const { function: declared } of tools ?? []) {
    if (names.has(declared.name)) return invalid(`Duplicate tool name '${declared.name}'.`, "tools");
    names.add(declared.name);
  }
  return undefined;
}
