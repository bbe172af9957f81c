/** Typed questions: an answer of the closed set, or `unsure`, in time, and in a row. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { z } from "zod";
import {
  Classifier,
  CLASSIFY_MS,
  CLASSIFY_TOKENS,
  MAX_CLASSIFIED,
  MAX_KEPT_INPUT,
  type Whose,
} from "#engine/classify.ts";
import type { EngineDeps, EngineSettings } from "#engine/deps.ts";
import { ModelJudge } from "#engine/judge.ts";
import type { ModelEndpoint, ModelOutcome } from "#engine/ports.ts";
import { judgeRefs } from "#engine/refs.ts";
import { ManualClock } from "../models/manual-clock.ts";
import { asks, bench, engineAgent, says, type Script } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";

const fast: ModelEndpoint = { baseURL: "http://fast.test/v1", model: "small" };
const decision: ModelEndpoint = { baseURL: "http://decision.test/v1", model: "decider" };
const failed = (reason: string): ModelOutcome => ({ kind: "failed", class: "terminal", reason, message: "no" });
const schema = z.strictObject({ answer: z.enum(["yes", "no"]) });

describe("a typed question", () => {
  const ledger = useLedger();
  let whose: Whose;
  before(async () => {
    const { id } = await engineAgent(ledger.db, []);
    whose = { agentId: id, namespace: "demo", fast, runId: null };
  });

  const rows = async () =>
    (
      await ledger.db.pool.query<{
        question: string;
        answer: unknown;
        reason: string;
        model: string | null;
        usage: unknown;
        input: string;
        ms: number;
      }>("select question, answer, reason, model, usage, input, ms from classifications order by at, id")
    ).rows;

  function ask(
    script: Script,
    changes: {
      settings?: Partial<EngineSettings>;
      deps?: Partial<EngineDeps>;
      whose?: Partial<Whose>;
      input?: string;
    } = {},
  ) {
    const { deps, requests } = bench(ledger.db, script, [], changes);
    const classifier = new Classifier(deps);
    const question = { name: "test", schema, instruction: "Say yes or no.", input: changes.input ?? "well?" };
    return { requests, classifier, question, answer: () => classifier.ask(question, { ...whose, ...changes.whose }) };
  }

  it("gets the value that the model gave, whatever stands around it, and a row says so", async () => {
    for (const text of ['{"answer":"yes"}', '```json\n{ "answer": "yes" }\n```', 'Sure: {"answer":"yes"}.']) {
      const { answer, requests } = ask([says(text)]);
      assert.deepEqual(await answer(), { sure: true, value: { answer: "yes" } });
      const [request] = requests;
      assert.deepEqual(request?.tools, []);
      assert.deepEqual(request?.endpoint, { ...fast, maxOutputTokens: CLASSIFY_TOKENS, timeoutMs: CLASSIFY_MS });
      assert.equal(request?.responseSchema?.name, "test");
    }
    const row = (await rows()).at(-1);
    assert.deepEqual(
      [row?.question, row?.answer, row?.reason, row?.model, row?.usage, row?.input],
      ["test", { answer: "yes" }, "Answered", "small", { inputTokens: 7, outputTokens: 3 }, "well?"],
    );
  });

  const refused: Readonly<Record<string, [outcome: ModelOutcome, reason: string]>> = {
    "another value": [says('{"answer":"perhaps"}'), "Malformed"],
    "another shape": [says('{"answer":"yes","because":1}'), "Malformed"],
    "no JSON": [says("yes"), "Malformed"],
    "an empty text": [says(""), "Malformed"],
    "a call": [asks(["echo", { answer: "yes" }]), "Malformed"],
    "an answer that was cut": [{ ...says('{"answer":"yes"}'), truncated: true } as ModelOutcome, "Malformed"],
    "a failure": [failed("ModelUnauthorized"), "ModelUnauthorized"],
  };
  for (const [what, [outcome, reason]] of Object.entries(refused)) {
    it(`that gets ${what} is unsure, and is not asked again`, async () => {
      const { answer, requests } = ask([outcome]);
      assert.deepEqual(await answer(), { sure: false, reason });
      assert.equal(requests.length, 1);
      const row = (await rows()).at(-1);
      assert.deepEqual([row?.answer, row?.reason], [null, reason]);
    });
  }

  it("is asked in words alone where an endpoint cannot be held to a schema, and that is remembered", async () => {
    const yes = says('{"answer":"yes"}');
    const { requests, classifier, question } = ask([failed("ModelRejected"), yes, yes]);
    assert.equal((await classifier.ask(question, whose)).sure, true);
    assert.equal((await classifier.ask(question, whose)).sure, true);
    assert.deepEqual(
      requests.map(({ responseSchema }) => responseSchema !== undefined),
      [true, false, false],
    );
    assert.match(requests[1]?.messages[0]?.content ?? "", /fits this schema.*"enum":\["yes","no"\]/);
  });

  it("is unsure when the time is over, also where the endpoint does not notice", async () => {
    const clock = new ManualClock();
    let aborted = false;
    const silent = (_request: unknown, signal: AbortSignal): Promise<ModelOutcome> => {
      signal.addEventListener("abort", () => (aborted = true));
      queueMicrotask(() => clock.advance(CLASSIFY_MS));
      return new Promise(() => {});
    };
    const { answer } = ask([silent], { deps: { clock } });
    assert.deepEqual(await answer(), { sure: false, reason: "ModelTimeout" });
    assert.equal(aborted, true);
    assert.equal((await rows()).at(-1)?.ms, CLASSIFY_MS);
  });

  it("goes to the install's model, else to the agent's fast one, else to nobody", async () => {
    const yes = says('{"answer":"yes"}');
    const install = ask([yes], { settings: { decisionModel: decision } });
    assert.equal((await install.answer()).sure, true);
    assert.equal(install.requests[0]?.endpoint.model, "decider");
    const none = ask([], { whose: { fast: null } });
    assert.deepEqual(await none.answer(), { sure: false, reason: "NoModel" });
    assert.equal((await rows()).at(-1)?.model, null);
    const secret = { ...fast, apiKeySecretRef: { name: "gone", key: "k" } };
    assert.deepEqual(await ask([], { whose: { fast: secret } }).answer(), { sure: false, reason: "SecretMissing" });
  });

  it("is unsure when nobody can write down what was answered", async () => {
    const { answer } = ask([says('{"answer":"yes"}')], { whose: { agentId: uuidv7() } });
    assert.deepEqual(await answer(), { sure: false, reason: "NotRecorded" });
  });

  it("does not fail with the port that it asks through", async () => {
    const { answer } = ask([
      () => {
        throw new Error("a bug");
      },
    ]);
    assert.deepEqual(await answer(), { sure: false, reason: "NotAsked" });
  });

  it("shows a bounded part of a long input, without secrets, and keeps less of it", async () => {
    const token = `ghp_${"aB3dE6gH9".repeat(4)}`;
    const { answer, requests } = ask([says('{"answer":"no"}')], { input: `${token} ${"x".repeat(MAX_CLASSIFIED)}` });
    await answer();
    const asked = requests[0]?.messages[1]?.content ?? "";
    assert.ok(asked.startsWith("[redacted: a GitHub token] xxx") && asked.length < MAX_CLASSIFIED + 100);
    assert.equal((await rows()).at(-1)?.input.length, MAX_KEPT_INPUT);
  });

  it("about consent or sensitivity has the answers of its closed set, and unsure for everything else", async () => {
    const judged = (text: string) => new ModelJudge(new Classifier(bench(ledger.db, [says(text)]).deps));
    const about = { question: "Go on with 20 more calls?", answer: "yes please" };
    assert.equal(await judged('{"answer":"yes"}').consent(about, whose), "yes");
    assert.equal(await judged('{"answer":"no"}').consent(about, whose), "no");
    assert.equal(await judged('{"answer":"sure"}').consent(about, whose), "unsure");
    assert.equal(await judged('{"audience":"agent"}').sensitivity("The office opens at 9.", whose), "agent");
    assert.equal(await judged('{"audience":"public"}').sensitivity("x", whose), "unsure");
    assert.equal(await judged("").sensitivity("x", { ...whose, fast: null }), "unsure");
  });

  it("needs a key that is there: an Agent whose fast model's Secret is missing says so", async () => {
    const { deps } = bench(ledger.db, []);
    const spec = {
      models: {
        primary: { baseURL: "http://model.test/v1", model: "m" },
        fast: { baseURL: "http://fast.test/v1", model: "s", apiKeySecretRef: { name: "fast-key", key: "k" } },
      },
    };
    const found = await judgeRefs(deps, { id: whose.agentId, namespace: "demo", generation: 1, spec });
    assert.equal(found?.reason, "SecretMissing");
  });
});
