/** Endpoints that misbehave: every fault ends in a status, a reason and a sentence, after a bounded number of requests. */
import assert from "node:assert/strict";
import { createServer } from "node:net";
import type { ModelScript } from "@pawl/fakes";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { CODE } from "#rules/limits.ts";
import { MAX_ATTEMPTS } from "#rules/retry.ts";
import { drain } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { driveToTheEnd, later, outcomeOf, realBench, rowOf, scene, useReality } from "../support/reality.ts";

type Steps = ModelScript["steps"];
type Answer = Exclude<Steps[number], readonly unknown[]>;

const text = "an answer that is long enough to be cut somewhere in its middle";
const error = (message: string, more: object = {}) => ({ message, type: null, param: null, code: null, ...more });
const status = (code: number, body?: object, headers?: Record<string, string>): Answer => ({
  fault: {
    kind: "status",
    status: code,
    ...(body === undefined ? {} : { body: { error: body as Record<string, string> } }),
    ...(headers === undefined ? {} : { headers }),
  },
});

type Case = { title: string; answer: Answer; reason: string; words: RegExp; requests: number; model?: object };

const overflow = (who: string, body: object, code = 400): Case => ({
  title: `a context overflow as ${who} says it (C30)`,
  answer: status(code, body),
  reason: "ContextOverflow",
  words: /longer than the model takes: start a new one/,
  requests: 1,
});

const AGAIN = MAX_ATTEMPTS;
const GIVEN_UP = String.raw`.*Given up after 7 attempts\.$`;
const CASES: readonly Case[] = [
  {
    title: "a web page with status 200",
    answer: { fault: { kind: "html" } },
    reason: "ModelMalformed",
    words: new RegExp(`web page instead of JSON: check baseURL${GIVEN_UP}`),
    requests: AGAIN,
  },
  {
    title: "an error with status 200",
    answer: { fault: { kind: "error-200", error: error("busy", { type: "overloaded_error" }) } },
    reason: "ModelOverloaded",
    words: new RegExp(`“busy”${GIVEN_UP}`),
    requests: AGAIN,
  },
  {
    title: "no choices",
    answer: { fault: { kind: "empty-choices" } },
    reason: "ModelMalformed",
    words: new RegExp(`without choices${GIVEN_UP}`),
    requests: AGAIN,
  },
  {
    title: "cut JSON",
    answer: { text, streaming: "never", fault: { kind: "eof", at: 120 } },
    reason: "ModelMalformed",
    words: new RegExp(`cut off${GIVEN_UP}`),
    requests: AGAIN,
  },
  {
    title: "a stream without a finish",
    answer: { text, fault: { kind: "eof", at: 600 } },
    reason: "ModelMalformed",
    words: new RegExp(`ended before the answer was complete${GIVEN_UP}`),
    requests: AGAIN,
  },
  {
    title: "a reset connection",
    answer: { fault: { kind: "reset" } },
    reason: "ModelUnreachable",
    words: new RegExp(`check that it runs and can be reached${GIVEN_UP}`),
    requests: AGAIN,
  },
  {
    title: "a hanging endpoint",
    answer: { fault: { kind: "stall" } },
    reason: "ModelTimeout",
    words: new RegExp(`did not finish within 0.05 s: raise the Agent's model timeout${GIVEN_UP}`),
    requests: AGAIN,
    model: { timeout: "50ms" },
  },
  {
    title: "a server that fails",
    answer: status(500, error("boom")),
    reason: "ModelUnavailable",
    words: new RegExp(`answered 500: “boom”${GIVEN_UP}`),
    requests: AGAIN,
  },
  {
    title: "a refused key",
    answer: status(401, error("bad key", { code: "invalid_api_key" })),
    reason: "ModelUnauthorized",
    words: /Check the key in the Secret that apiKeySecretRef names/,
    requests: 1,
  },
  {
    title: "an unknown model",
    answer: status(404, error("no such model", { code: "model_not_found" })),
    reason: "ModelNotFound",
    words: /Check the model's name and the baseURL/,
    requests: 1,
  },
  {
    title: "an exhausted quota (C27, C72)",
    answer: status(429, error("You exceeded your current quota", { code: "insufficient_quota" })),
    reason: "ModelQuotaExhausted",
    words: /add credit or raise the limit at the provider/,
    requests: 1,
  },
  {
    title: "a wait that no run can bear",
    answer: status(429, error("slow down"), { "retry-after": "7200" }),
    reason: "ModelRateLimited",
    words: /It asked for a wait of 120 min; a run waits 30 min at most\.$/,
    requests: 1,
  },
  {
    title: "a filter that withheld everything (C31)",
    answer: { text: "", finish: "content_filter" },
    reason: "ModelContentFiltered",
    words: /Rephrase the input, or relax the filter/,
    requests: 1,
  },
  overflow("OpenAI", error("This model's maximum context length is 8192.", { code: "context_length_exceeded" })),
  overflow("Anthropic", error("prompt is too long: 201000 tokens > 200000", { type: "invalid_request_error" })),
  overflow("llama.cpp", error("the request exceeds the available context size", { type: "exceed_context_size_error" })),
  overflow("Gemini", error("The input token count (1048577) exceeds the maximum number of tokens allowed")),
  overflow("a proxy", error("Request Entity Too Large"), 413),
];

describe("a model endpoint that misbehaves", function () {
  this.timeout(20_000);
  const ledger = useLedger();
  const fakes = useReality();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  for (const { title, answer, reason, words, requests, model } of CASES) {
    it(`by ${title} ends as ${reason}`, async () => {
      const run = await scene(ledger.db, fakes, [answer], model === undefined ? {} : { model: { ...model } });
      const claims = await driveToTheEnd(ledger.url, run, realBench);
      const { row, effects, reply } = await outcomeOf(ledger.db, run.runId);
      assert.deepEqual([row.status, row.reason, effects.length], ["failed", reason, 0]);
      assert.match(reply ?? "", /^I could not answer this: (?!something).*\. Nothing outside was changed\.\n/);
      assert.doesNotMatch(reply ?? "", /127\.0\.0\.1|[A-Z][a-z]+[A-Z]/, "no address and no word of the ledger");
      assert.match(row.message ?? "", words);
      assert.equal((await run.requests()).length, requests);
      assert.equal(claims, requests, "a claim asks once");
      const { rows } = await ledger.db.pool.query("select state from message_events where id = $1", [run.eventId]);
      assert.deepEqual(rows, [{ state: "accounted" }]);
    });
  }

  it("by not being there ends as ModelUnreachable, and says where it looked", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as { port: number };
    await new Promise((resolve) => server.close(resolve));
    const run = await scene(ledger.db, fakes, [{ text }], { model: { baseURL: `http://127.0.0.1:${port}/v1` } });
    assert.equal(await driveToTheEnd(ledger.url, run, realBench), MAX_ATTEMPTS);
    const row = await rowOf(ledger.db, run.runId);
    assert.equal(row.reason, "ModelUnreachable");
    assert.match(row.message ?? "", new RegExp(`127.0.0.1:${port}.*ECONNREFUSED`));
  });

  it("shows a refusal as the answer and asks no more (C31)", async () => {
    const run = await scene(ledger.db, fakes, [{ text: "", refusal: "I will not do that." }]);
    await drain(realBench(ledger.db).deps);
    const { row, reply } = await outcomeOf(ledger.db, run.runId);
    assert.deepEqual([row.status, reply], ["succeeded", "I will not do that."]);
    assert.equal((await run.requests()).length, 1);
  });

  it("forgets its failures once it has answered", async () => {
    const run = await scene(ledger.db, fakes, [
      [status(503), status(503), { calls: [{ name: "calculate", arguments: { expression: "1+1" } }] }],
      [status(503), { text: "two" }],
    ]);
    assert.equal(await driveToTheEnd(ledger.url, run, realBench), 4);
    const { row, reply } = await outcomeOf(ledger.db, run.runId);
    assert.deepEqual([row.status, row.attempts, row.message], ["succeeded", 0, null]);
    assert.match(reply ?? "", /two$/);
  });

  describe("with 429 and Retry-After 120 (C27, C72)", () => {
    it("is not asked before, by no run with that key, and by nobody in a busy loop", async () => {
      const slow = status(429, error("slow down"), { "retry-after": "120" });
      const run = await scene(ledger.db, fakes, [[slow, { text: "thanks" }]]);
      const { deps } = realBench(ledger.db);
      assert.equal(await drain(deps), 1);
      const row = await rowOf(ledger.db, run.runId);
      assert.deepEqual([row.status, row.reason, row.lease_owner], ["running", "ModelRateLimited", null]);
      assert.match(row.message ?? "", /It is asked again in 121 s\.$|It is asked again in 2 min\.$/);
      assert.ok((row.due_ms ?? 0) > 119_000 && (row.due_ms ?? 0) < 121_500, `${row.due_ms}`);

      const other = await scene(ledger.db, fakes, [{ text: "never mind" }]);
      assert.equal(await drain(deps), 1, "the other run is looked at, and waits with it");
      const waits = await rowOf(ledger.db, other.runId);
      assert.equal(waits.reason, "ModelRateLimited");
      assert.ok((waits.due_ms ?? 0) > 118_000, `${waits.due_ms}`);
      assert.equal((await other.requests()).length, 0);

      await using early = later(ledger.url, 118);
      assert.equal(await claimRun(early, "w", 1_000, CODE), null);
      assert.equal((await run.requests()).length, 1);

      await using due = later(ledger.url, 125);
      await fakes.model.control("PUT", "/script", {
        scripts: { [run.id]: { steps: [{ text: "thanks" }] }, [other.id]: { steps: [{ text: "never mind" }] } },
      });
      assert.equal(await drain(realBench(due).deps), 2);
      assert.equal((await outcomeOf(ledger.db, run.runId)).reply, "thanks");
      assert.equal((await outcomeOf(ledger.db, other.runId)).reply, "never mind");
    });
  });
});
