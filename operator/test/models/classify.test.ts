import assert from "node:assert/strict";
import { classifyError, classifyNetwork, failure, quote, withoutKey } from "#models/classify.ts";
import { MAX_QUOTE } from "#models/limits.ts";

const host = "models.example";

describe("classification of a model endpoint's errors", () => {
  type Row = [number | undefined, { code?: string; type?: string; message?: string }, string, string];
  const table: Row[] = [
    [401, { code: "invalid_api_key" }, "terminal", "ModelUnauthorized"],
    [403, {}, "terminal", "ModelUnauthorized"],
    [402, {}, "terminal", "ModelQuotaExhausted"],
    [429, { code: "insufficient_quota" }, "terminal", "ModelQuotaExhausted"],
    [
      429,
      { type: "insufficient_quota", message: "You exceeded your current quota" },
      "terminal",
      "ModelQuotaExhausted",
    ],
    [429, { message: "You exceeded your current quota, please check your plan" }, "terminal", "ModelQuotaExhausted"],
    [400, { code: "billing_not_active" }, "terminal", "ModelQuotaExhausted"],
    [429, {}, "transient", "ModelRateLimited"],
    [429, { code: "rate_limit_exceeded", type: "tokens" }, "transient", "ModelRateLimited"],
    [undefined, { code: "429" }, "transient", "ModelRateLimited"],
    [undefined, { type: "rate_limit_error" }, "transient", "ModelRateLimited"],
    [undefined, { type: "authentication_error" }, "terminal", "ModelUnauthorized"],
    [undefined, { code: "401" }, "terminal", "ModelUnauthorized"],
    [500, {}, "transient", "ModelUnavailable"],
    [502, {}, "transient", "ModelUnavailable"],
    [503, {}, "transient", "ModelOverloaded"],
    [529, { type: "overloaded_error" }, "transient", "ModelOverloaded"],
    [504, {}, "transient", "ModelTimeout"],
    [408, {}, "transient", "ModelTimeout"],
    [409, {}, "transient", "ModelUnavailable"],
    [501, {}, "terminal", "ModelRejected"],
    [404, { code: "model_not_found" }, "terminal", "ModelNotFound"],
    [400, { type: "invalid_request_error", message: "bad role" }, "terminal", "ModelRejected"],
    [422, {}, "terminal", "ModelRejected"],
    [undefined, { type: "invalid_request_error" }, "terminal", "ModelRejected"],
    [undefined, { type: "server_error" }, "transient", "ModelUnavailable"],
    [undefined, { message: "something else" }, "transient", "ModelMalformed"],
    [301, {}, "terminal", "ModelRejected"],
    // A server's failure is not an overflow or a bill because its words sound like one.
    [500, { message: "internal error while checking billing" }, "transient", "ModelUnavailable"],
    [503, { message: "context window service is down" }, "transient", "ModelOverloaded"],
  ];
  for (const [status, facts, failureClass, reason] of table) {
    it(`${status ?? "in a 200"} ${JSON.stringify(facts)} is ${failureClass} ${reason}`, () => {
      const outcome = classifyError({ host, status, message: "", ...facts });
      assert.deepEqual([outcome.class, outcome.reason], [failureClass, reason]);
      assert.ok(outcome.message.includes(host));
    });
  }

  describe("C30: overflow, however it is said", () => {
    const dialects: [number | undefined, { code?: string; type?: string; message: string }][] = [
      [400, { code: "context_length_exceeded", message: "This model's maximum context length is 8192 tokens." }],
      [
        400,
        {
          type: "BadRequestError",
          message: "This model's maximum context length is 4096 tokens. However, you requested 5000",
        },
      ],
      [400, { type: "invalid_request_error", message: "prompt is too long: 210000 tokens > 200000 maximum" }],
      [400, { type: "exceed_context_size_error", message: "the request exceeds the available context size" }],
      [400, { message: "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)." }],
      [400, { message: "Input is too long for requested model." }],
      [413, { message: "Request too large" }],
      [undefined, { code: "context_length_exceeded", message: "too long" }],
    ];
    for (const [status, facts] of dialects) {
      it(`${status ?? "in a 200"}: ${facts.message}`, () => {
        const outcome = classifyError({ host, status, ...facts });
        assert.deepEqual([outcome.class, outcome.reason], ["overflow", "ContextOverflow"]);
      });
    }
  });

  it("keeps the wait that was asked for", () => {
    assert.equal(classifyError({ host, status: 429, message: "", retryAfterMs: 120_000 }).retryAfterMs, 120_000);
    assert.equal(Object.hasOwn(classifyError({ host, status: 429, message: "" }), "retryAfterMs"), false);
  });

  it("quotes a provider in one line of bounded length", () => {
    assert.equal(quote(" a\n\n b "), "a b");
    assert.equal(quote("x".repeat(10_000)).length, MAX_QUOTE + 1);
  });
});

describe("classification of a connection's failures", () => {
  const table: [string | undefined, string, string][] = [
    ["ENOTFOUND", "transient", "ModelUnreachable"],
    ["EAI_AGAIN", "transient", "ModelUnreachable"],
    ["ECONNREFUSED", "transient", "ModelUnreachable"],
    ["ECONNRESET", "transient", "ModelUnreachable"],
    ["UND_ERR_SOCKET", "transient", "ModelUnreachable"],
    [undefined, "transient", "ModelUnreachable"],
    ["ETIMEDOUT", "transient", "ModelTimeout"],
    ["UND_ERR_CONNECT_TIMEOUT", "transient", "ModelTimeout"],
    ["CERT_HAS_EXPIRED", "terminal", "ModelCertificateRejected"],
    ["DEPTH_ZERO_SELF_SIGNED_CERT", "terminal", "ModelCertificateRejected"],
    ["ERR_TLS_CERT_ALTNAME_INVALID", "terminal", "ModelCertificateRejected"],
    ["UNABLE_TO_VERIFY_LEAF_SIGNATURE", "terminal", "ModelCertificateRejected"],
  ];
  for (const [code, failureClass, reason] of table) {
    it(`${code ?? "no code"} is ${failureClass} ${reason}`, () => {
      const outcome = classifyNetwork(host, code);
      assert.deepEqual([outcome.class, outcome.reason], [failureClass, reason]);
    });
  }
});

describe("a message", () => {
  const of = (message: string, key?: string): string => withoutKey(failure("terminal", "X", message), key).message;
  it("does not contain the key, nor what looks like one", () => {
    assert.equal(of("key abc$1 was wrong, abc$1!", "abc$1"), "key [key] was wrong, [key]!");
    assert.equal(of("Incorrect: sk-proj-abcdef123456."), "Incorrect: [key]");
    assert.equal(of("masked sk-abcd****************wxyz", "other"), "masked [key]");
    assert.equal(of("task-force is no key", ""), "task-force is no key");
  });
});
