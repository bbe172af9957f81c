import assert from "node:assert/strict";
import { BYTES_PER_TOKEN, checkRequest, countTokens } from "../src/model-strict.ts";

const user = { role: "user", content: "hello" };
const call = (id: string, extra: object = {}) => ({
  id,
  type: "function",
  function: { name: "f", arguments: "{}", ...extra },
});
const asks = (...ids: string[]) => ({ role: "assistant", content: null, tool_calls: ids.map((id) => call(id)) });
const result = (id: string) => ({ role: "tool", tool_call_id: id, content: "done" });
const tools = [{ type: "function", function: { name: "f", parameters: { type: "object" } } }];
const body = (messages: object[], extra: object = {}) => ({ model: "m", messages, tools, ...extra });

describe("the strict model fake accepts", () => {
  const accepted: [string, object][] = [
    ["a first question", body([{ role: "system", content: "be kind" }, user])],
    ["a round of calls", body([user, asks("a", "b"), result("b"), result("a")])],
    ["a user message after results", body([user, asks("a"), result("a"), user])],
    ["two user messages in a row", body([user, { ...user, name: "alice" }])],
    ["an answered conversation that goes on", body([user, { role: "assistant", content: "hi" }, user])],
  ];
  for (const [title, request] of accepted) {
    it(title, () =>
      assert.equal(checkRequest(request, undefined).ok, true, JSON.stringify(checkRequest(request, undefined))),
    );
  }
});

describe("the strict model fake refuses", () => {
  const refused: [string, object | undefined, RegExp][] = [
    ["what is not an object", undefined, /Invalid value/],
    ["no messages", body([]), /messages/],
    ["no model", { messages: [user] }, /model/],
    ["an unanswered call", body([user, asks("a", "b"), result("a")]), /did not have response messages: b/],
    [
      "a user message before the results",
      body([user, asks("a"), user, result("a")]),
      /did not have response messages: a/,
    ],
    ["a result without a call", body([user, result("a")]), /must be a response to a preceding message/],
    ["a second result", body([user, asks("a"), result("a"), result("a")]), /must be a response/],
    ["a result for another call", body([user, asks("a"), result("b")]), /must be a response/],
    ["an empty call id", body([user, asks(""), result("")]), /tool_calls\[0\]\.id/],
    ["a call id twice in a message", body([user, asks("a", "a"), result("a")]), /Duplicate tool call id/],
    ["a call id used before", body([user, asks("a"), result("a"), asks("a"), result("a")]), /Duplicate tool call id/],
    ["a long call id", body([user, asks("a".repeat(41)), result("a".repeat(41))]), /\.id/],
    [
      "a bad tool name in a call",
      body([user, { role: "assistant", content: null, tool_calls: [call("a", { name: "a.b" })] }, result("a")]),
      /function\.name/,
    ],
    [
      "malformed arguments",
      body([user, { role: "assistant", content: null, tool_calls: [call("a", { arguments: '{"x' })] }, result("a")]),
      /must be a JSON object/,
    ],
    [
      "arguments that are no object",
      body([user, { role: "assistant", content: null, tool_calls: [call("a", { arguments: "7" })] }, result("a")]),
      /must be a JSON object/,
    ],
    [
      "a bad tool name",
      body([user], { tools: [{ type: "function", function: { name: "a b" } }] }),
      /tools\.0\.function\.name/,
    ],
    ["two tools of one name", body([user], { tools: [...tools, ...tools] }), /Duplicate tool name/],
    ["calls without tools", { model: "m", messages: [user, asks("a"), result("a")] }, /'tools' must be given/],
    ["an empty user message", body([{ role: "user", content: " " }]), /must not be empty/],
    ["an empty system message", body([{ role: "system", content: "" }, user]), /must not be empty/],
    ["an empty result", body([user, asks("a"), { ...result("a"), content: "" }]), /must not be empty/],
    [
      "an empty assistant message",
      body([user, { role: "assistant", content: null }, user]),
      /needs content or tool_calls/,
    ],
    ["an assistant message of nothing", body([user, { role: "assistant", content: "" }, user]), /null or not empty/],
    ["an empty list of calls", body([user, { role: "assistant", content: "x", tool_calls: [] }, user]), /tool_calls/],
    ["an unknown role", body([{ role: "function", content: "x" }]), /role/],
    ["a system message in the middle", body([user, { role: "system", content: "x" }, user]), /at the beginning/],
    ["an assistant message first", body([{ role: "assistant", content: "x" }, user]), /first message/],
    [
      "two assistant messages in a row",
      body([user, { role: "assistant", content: "x" }, { role: "assistant", content: "y" }, user]),
      /in a row/,
    ],
    ["an assistant message last", body([user, { role: "assistant", content: "x" }]), /last role/],
    ["a bad user name", body([{ ...user, name: "alice smith" }]), /name/],
    ["an unknown parameter", body([user], { temprature: 1 }), /Unrecognized request argument supplied: temprature/],
    ["stream options without stream", body([user], { stream_options: { include_usage: true } }), /only allowed when/],
    ["no output at all", body([user], { max_tokens: 0 }), /max_tokens/],
  ];
  for (const [title, request, words] of refused) {
    it(title, () => {
      const checked = checkRequest(request, undefined);
      assert.equal(checked.ok, false);
      assert.equal(checked.refusal.status, 400);
      assert.match(checked.refusal.message, words);
    });
  }

  it("a request over its budget, by one token", () => {
    const request = body([{ role: "user", content: "x".repeat(BYTES_PER_TOKEN * 50) }]);
    const checked = checkRequest(request, undefined);
    assert.ok(checked.ok);
    const tokens = countTokens(checked.request);
    assert.equal(checkRequest(request, tokens).ok, true);
    const over = checkRequest(request, tokens - 1);
    assert.equal(!over.ok && over.refusal.code, "context_length_exceeded");
  });
});
