import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Fake, type ModelAnswer, type ScriptBook, startFake } from "@pawl/fakes";
import type { ChatMessage, ModelOutcome, ModelRequest, ToolSchema } from "#engine/ports.ts";
import { MAX_ERROR_BYTES, MAX_RESPONSE_BYTES } from "#models/limits.ts";
import { OpenAiModels } from "#models/openai.ts";
import { ManualClock } from "./manual-clock.ts";

const KEY = "test-key-31337-very-secret";
const TOOLS: ToolSchema[] = ["write_file", "read_file"].map((name) => ({
  name,
  description: `the tool ${name}`,
  parameters: { type: "object", properties: {} },
}));
type Steps = ScriptBook["scripts"][string]["steps"];
type Answer = Partial<ModelAnswer>;

describe("the model adapter, against a strict endpoint", () => {
  let fake: Fake;
  let clock: ManualClock;
  let models: OpenAiModels;

  before(async () => {
    fake = await startFake("model", { arguments: { key: KEY, "context-tokens": "2000" } });
  });
  after(async () => await fake.stop());
  beforeEach(() => {
    clock = new ManualClock();
    models = new OpenAiModels({ clock });
  });
  afterEach(() => assert.equal(clock.sleeping, 0, "a timer of a call outlived it"));

  async function script(...steps: Steps): Promise<void> {
    await fake.control("PUT", "/script", { scripts: { test: { steps } } } satisfies ScriptBook);
  }

  function request(extra: Partial<ModelRequest> = {}): ModelRequest {
    const messages: ChatMessage[] = [{ role: "user", content: "script:test please" }];
    const endpoint = { baseURL: `${fake.url}/v1`, model: "some-model" };
    return { endpoint, apiKey: KEY, messages, tools: TOOLS, ...extra };
  }

  async function ask(extra: Partial<ModelRequest> = {}): Promise<ModelOutcome> {
    return await models.complete(request(extra), new AbortController().signal);
  }

  async function answerTo(answer: Answer): Promise<ModelOutcome> {
    await script(answer);
    return await ask();
  }

  async function failureOf(answer: Answer): Promise<Extract<ModelOutcome, { kind: "failed" }>> {
    const outcome = await answerTo(answer);
    assert.equal(outcome.kind, "failed");
    assert.ok(!outcome.message.includes(KEY), "the key is in the message");
    return outcome;
  }

  async function responseTo(answer: Answer): Promise<Extract<ModelOutcome, { kind: "response" }>> {
    const outcome = await answerTo(answer);
    assert.equal(outcome.kind, "response", JSON.stringify(outcome));
    return outcome;
  }

  const writeCall = { name: "write_file", arguments: { path: "a", text: "b" } };

  it("tells how much of a streamed answer has come, and hands on none of it before it is whole", async () => {
    await script({ text: "Hello, and a longer text than one chunk." });
    const lengths: number[] = [];
    const outcome = await models.complete(request(), new AbortController().signal, (length) => lengths.push(length));
    assert.equal(outcome.kind, "response");
    assert.deepEqual(
      lengths,
      lengths.toSorted((a, b) => a - b),
    );
    assert.ok(lengths.every((length) => length <= 40) && lengths.includes(40), JSON.stringify(lengths));
  });

  it("reads a streamed answer with its usage", async () => {
    const outcome = await responseTo({ text: "Hello, and a longer text than one chunk." });
    assert.equal(outcome.text, "Hello, and a longer text than one chunk.");
    assert.deepEqual(outcome.calls, []);
    assert.equal(outcome.truncated, false);
    assert.equal(outcome.finishReason, "stop");
    assert.ok(outcome.usage !== null && outcome.usage.inputTokens > 0 && outcome.usage.outputTokens > 0);
  });

  it("takes a plain JSON answer from an endpoint that does not stream", async () => {
    const outcome = await responseTo({ text: "whole", calls: [writeCall], streaming: "never" });
    assert.equal(outcome.text, "whole");
    assert.equal(outcome.calls[0]?.argumentsText, '{"path":"a","text":"b"}');
  });

  it("sends no key when the Agent names none, whatever the environment holds", async () => {
    await script({ text: "never reached" });
    const outcome = await ask({ apiKey: undefined });
    assert.equal(outcome.kind === "failed" && outcome.reason, "ModelUnauthorized");
  });

  it("forgives the newline that a Secret made from a file ends in", async () => {
    await script({ text: "fine" });
    assert.equal((await ask({ apiKey: `${KEY}\n` })).kind, "response");
  });

  describe("C23: calls are run whatever the finish reason says", () => {
    for (const finish of ["stop", null, "end_turn", "function_calls", "tool_calls"]) {
      for (const streaming of ["asked", "never"] as const) {
        it(`finish_reason ${finish}, ${streaming === "asked" ? "streamed" : "plain"}`, async () => {
          const outcome = await responseTo({ calls: [writeCall], finish, streaming });
          assert.equal(outcome.calls.length, 1);
          assert.equal(outcome.calls[0]?.name, "write_file");
          assert.equal(outcome.truncated, false);
          assert.equal(outcome.finishReason, finish);
        });
      }
    }
  });

  describe("C24: what was cut is marked and not mended", () => {
    it("length with arguments that parse is truncated", async () => {
      const outcome = await responseTo({ calls: [writeCall], finish: "length" });
      assert.equal(outcome.truncated, true);
      assert.equal(outcome.calls.length, 1);
    });
    it("cut JSON under finish_reason tool_calls is handed on as it came", async () => {
      const outcome = await responseTo({ calls: [{ name: "write_file", argumentsText: '{"path":"a","te' }] });
      assert.equal(outcome.calls[0]?.argumentsText, '{"path":"a","te');
      assert.equal(outcome.truncated, false);
    });
  });

  describe("C25: two calls stay two calls", () => {
    const read = { name: "read_file", arguments: { path: "a" } };
    const other = { name: "read_file", arguments: { path: "b" } };
    const ids: [string, string, string][] = [
      ["empty ids", "", ""],
      ["the same id", "call_1", "call_1"],
      ["the tool's name as id", "read_file", "read_file"],
      ["proper ids", "call_1", "call_2"],
    ];
    for (const [title, first, second] of ids) {
      for (const slots of ["index", "zero", "none"] as const) {
        it(`${title}, numbered ${slots}`, async () => {
          const outcome = await responseTo({
            calls: [
              { ...read, id: first },
              { ...other, id: second },
            ],
            slots,
          });
          assert.deepEqual(
            outcome.calls.map((call) => [call.name, call.argumentsText]),
            [
              ["read_file", '{"path":"a"}'],
              ["read_file", '{"path":"b"}'],
            ],
          );
        });
      }
    }
  });

  describe("C26: an answer that is none fails, transient and named", () => {
    const text = "a text that is long enough to be cut in the middle of it";
    const cases: [string, Answer, string, RegExp][] = [
      ["200 with an error", { fault: { kind: "error-200", error: { message: "boom" } } }, "ModelMalformed", /boom/],
      [
        "200 with an overload",
        { fault: { kind: "error-200", error: { message: "x", type: "overloaded_error" } } },
        "ModelOverloaded",
        /for now/,
      ],
      [
        "an error event in a stream",
        { text, fault: { kind: "error-event", error: { message: "x", type: "server_error" } } },
        "ModelUnavailable",
        /for now/,
      ],
      [
        "200 with a status in error.code",
        { fault: { kind: "error-200", error: { message: "x", code: 502 } } },
        "ModelUnavailable",
        /502/,
      ],
      ["a web page", { fault: { kind: "html" } }, "ModelMalformed", /check baseURL/],
      ["no choices", { fault: { kind: "empty-choices" } }, "ModelMalformed", /without choices/],
      [
        "no choices, plain",
        { fault: { kind: "empty-choices" }, streaming: "never" },
        "ModelMalformed",
        /without choices/,
      ],
      [
        "a plain answer cut by a reset",
        { text, streaming: "never", fault: { kind: "cut", at: 120 } },
        "ModelUnreachable",
        /was lost/,
      ],
      [
        "a plain answer that ends too early",
        { text, streaming: "never", fault: { kind: "eof", at: 120 } },
        "ModelMalformed",
        /cut off/,
      ],
      ["a stream cut by a reset", { text, fault: { kind: "cut", at: 600 } }, "ModelUnreachable", /was lost/],
      [
        "a stream that ends without finish",
        { text, fault: { kind: "eof", at: 600 } },
        "ModelMalformed",
        /ended before/,
      ],
      ["a stream that ends at once", { text, fault: { kind: "eof", at: 0 } }, "ModelMalformed", /ended before/],
      ["a reset before any byte", { fault: { kind: "reset" } }, "ModelUnreachable", /was lost/],
      ["nothing in it", { finish: null }, "ModelMalformed", /nothing in it/],
    ];
    for (const [title, answer, reason, words] of cases) {
      it(title, async () => {
        const outcome = await failureOf(answer);
        assert.equal(outcome.reason, reason, outcome.message);
        assert.equal(outcome.class, "transient");
        assert.match(outcome.message, words);
      });
    }

    it("every cut of a stream with a call, at any byte, is a failure or the whole call", async () => {
      const call = { ...writeCall, id: "call_1" };
      for (let at = 0; at < 1700; at += 97) {
        const outcome = await answerTo({ calls: [call], fault: { kind: "eof", at } });
        if (outcome.kind === "response") assert.equal(outcome.calls[0]?.argumentsText, '{"path":"a","text":"b"}');
        else assert.equal(outcome.class, "transient");
      }
    });
  });

  describe("time limits", () => {
    const until = async (accepted: number): Promise<void> => void (await fake.log(accepted));

    it("silence before the first byte ends after the first-byte limit", async () => {
      await script({ fault: { kind: "stall" } });
      const before = (await fake.log()).length;
      const asked = ask();
      await until(before + 1);
      clock.advance(119_999);
      clock.advance(1);
      const outcome = await asked;
      assert.equal(outcome.kind === "failed" && outcome.reason, "ModelTimeout");
      assert.match(outcome.kind === "failed" ? outcome.message : "", /sent nothing for 120 s/);
    });

    it("silence in the middle of an answer ends after the limit between chunks", async () => {
      await script({ text: "x", fault: { kind: "stall", at: 300 } });
      const begun = Promise.withResolvers<void>();
      clock.onSleep = (ms) => {
        if (ms === 60_000) begun.resolve();
      };
      const asked = ask();
      await begun.promise;
      clock.advance(60_000);
      const outcome = await asked;
      assert.equal(outcome.kind === "failed" && outcome.reason, "ModelTimeout");
      assert.match(outcome.kind === "failed" ? outcome.message : "", /in the middle of an answer for 60 s/);
    });

    it("the Agent's timeout bounds the call as a whole", async () => {
      await script({ fault: { kind: "stall" } });
      const before = (await fake.log()).length;
      const asked = ask({ endpoint: { baseURL: `${fake.url}/v1`, model: "m", timeoutMs: 5_000 } });
      await until(before + 1);
      clock.advance(5_000);
      const outcome = await asked;
      assert.match(outcome.kind === "failed" ? outcome.message : "", /within 5 s/);
    });

    it("a cancelled call ends at once and says so", async () => {
      await script({ text: "x", hold: true });
      const before = (await fake.log()).length;
      const stop = new AbortController();
      const asked = models.complete(request(), stop.signal);
      await until(before + 1);
      stop.abort();
      const outcome = await asked;
      assert.equal(outcome.kind === "failed" && outcome.class, "cancelled");
    });

    it("a call that is cancelled beforehand sends nothing", async () => {
      const before = (await fake.log()).length;
      const outcome = await models.complete(request(), AbortSignal.abort());
      assert.equal(outcome.kind === "failed" && outcome.class, "cancelled");
      assert.equal((await fake.log()).length, before);
    });
  });

  describe("C27 and C72: limits of rate and of money", () => {
    const limited = (headers: Record<string, string>): Answer => ({ fault: { kind: "status", status: 429, headers } });

    it("a 429 with Retry-After 120 waits 120 s, and so does every other run with that key", async () => {
      const outcome = await failureOf(limited({ "retry-after": "120" }));
      assert.deepEqual(
        [outcome.class, outcome.reason, outcome.retryAfterMs],
        ["transient", "ModelRateLimited", 120_000],
      );
      await script({ text: "welcome back" });
      const asked = (await fake.log()).length;
      clock.advance(119_999);
      const early = await ask({ endpoint: { baseURL: `${fake.url}/v1`, model: "another-model" } });
      assert.equal(early.kind === "failed" && early.retryAfterMs, 1);
      assert.equal((await fake.log()).length, asked, "it was asked before its time");
      clock.advance(1);
      assert.equal((await ask()).kind, "response");
    });

    it("another key is not held up by it", async () => {
      await failureOf(limited({ "retry-after": "120" }));
      const outcome = await ask({ apiKey: "another-key" });
      assert.equal(outcome.kind === "failed" && outcome.reason, "ModelUnauthorized");
    });

    for (const code of ["insufficient_quota", "billing_hard_limit_reached"]) {
      it(`a 429 with ${code} is terminal and says what to do`, async () => {
        const error = { message: "You exceeded your current quota.", type: code, param: null, code };
        const fault = { kind: "status", status: 429, headers: { "retry-after": "5" }, body: { error } } as const;
        const outcome = await failureOf({ fault });
        assert.equal(outcome.class, "terminal");
        assert.equal(outcome.reason, "ModelQuotaExhausted");
        assert.match(outcome.message, /add credit/);
      });
    }
  });

  it("a wrong key is terminal, says where to look, and never shows the key", async () => {
    await script({ text: "x" });
    const outcome = await ask({ apiKey: "wrong-key-0815" });
    assert.equal(outcome.kind, "failed");
    assert.deepEqual([outcome.class, outcome.reason], ["terminal", "ModelUnauthorized"]);
    assert.match(outcome.message, /apiKeySecretRef/);
    assert.ok(!outcome.message.includes("wrong-key-0815"));
  });

  it("a key that the endpoint echoes is cut out of the message", async () => {
    const error = { message: `Incorrect API key provided: ${KEY}.`, type: "invalid_request_error" };
    const outcome = await failureOf({ fault: { kind: "status", status: 401, body: { error } } });
    assert.match(outcome.message, /\[key\]/);
  });

  describe("C31: filters and refusals are shown, not retried", () => {
    it("an empty message under content_filter is terminal", async () => {
      const outcome = await failureOf({ text: "", finish: "content_filter" });
      assert.deepEqual([outcome.class, outcome.reason], ["terminal", "ModelContentFiltered"]);
    });
    it("a refusal is the text", async () => {
      for (const streaming of ["asked", "never"] as const) {
        const outcome = await responseTo({ text: "", refusal: "I cannot help with that.", streaming });
        assert.equal(outcome.text, "I cannot help with that.");
      }
    });
  });

  it("a request over the context is an overflow", async () => {
    await script({ text: "x" });
    const outcome = await ask({ messages: [{ role: "user", content: `script:test ${"long ".repeat(2_000)}` }] });
    assert.equal(outcome.kind === "failed" && outcome.class, "overflow");
  });

  it("a redirect is not followed: the key would go along", async () => {
    const outcome = await failureOf({
      fault: { kind: "status", status: 307, headers: { location: "http://127.0.0.1:1/elsewhere" } },
    });
    assert.deepEqual([outcome.class, outcome.reason], ["terminal", "ModelRejected"]);
    assert.match(outcome.message, /set baseURL/);
  });

  it("an endpoint that is not there is transient and says what to check", async () => {
    const outcome = await ask({ endpoint: { baseURL: "http://127.0.0.1:1/v1", model: "m" } });
    assert.equal(outcome.kind, "failed");
    assert.equal(outcome.class, "transient");
    assert.equal(outcome.reason, "ModelUnreachable");
    assert.match(outcome.message, /check that it runs/);
  });

  it("a baseURL that is no address is terminal", async () => {
    const outcome = await ask({ endpoint: { baseURL: "not a url", model: "m" } });
    assert.equal(outcome.kind === "failed" && outcome.class, "terminal");
  });

  it("never sends a request twice by itself", async () => {
    await script([{ fault: { kind: "status", status: 500 } }, { text: "second" }]);
    const before = (await fake.log()).length;
    assert.equal((await ask()).kind, "failed");
    assert.equal((await fake.log()).length, before + 1);
  });
});

describe("the model adapter, against endless answers", () => {
  it("stops reading an error body and an answer at their limits", async () => {
    let written = 0;
    const filler = Buffer.alloc(64 * 1024, "x");
    const server = createServer((request, response) => {
      response.writeHead(request.url?.startsWith("/error") === true ? 500 : 200, {
        "content-type": "text/event-stream",
      });
      const more = (): void => {
        while (!response.destroyed && response.write(filler)) written += filler.length;
        response.once("drain", more);
      };
      more();
    });
    await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const models = new OpenAiModels({ clock: new ManualClock() });
    const ask = async (path: string): Promise<ModelOutcome> => {
      const endpoint = { baseURL: base + path, model: "m" };
      const messages: ChatMessage[] = [{ role: "user", content: "hi" }];
      return await models.complete({ endpoint, apiKey: "k", messages, tools: [] }, new AbortController().signal);
    };
    const error = await ask("/error");
    assert.equal(error.kind === "failed" && error.reason, "ModelUnavailable");
    assert.ok(written < MAX_ERROR_BYTES + 32 * 1024 * 1024);
    const answer = await ask("/answer");
    assert.equal(answer.kind === "failed" && answer.reason, "ModelMalformed");
    assert.match(answer.kind === "failed" ? answer.message : "", new RegExp(`${MAX_RESPONSE_BYTES}`));
    server.closeAllConnections();
    await new Promise<void>((resolve) => void server.close(() => resolve()));
  });
});
