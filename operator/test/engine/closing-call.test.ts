/** The last word of a turn that has no answer: one model call held back for it, or words of our own; one reply, always. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { LAST_WORDS } from "#rules/closing.ts";
import { asks, bench, done, drain, engineAgent, quick, says, type Script, writer } from "../support/engine.ts";
import { stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { outcomeOf } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";

const PRICES = { input: 1_000_000, output: 1_000_000 }; // a dollar per token: the smallest call costs ten

describe("the closing call", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  async function run(
    script: Script,
    budgets: object,
    options: { settings?: object; agent?: object; model?: object; eventId?: (id: string) => void } = {},
  ) {
    const agent = await engineAgent(ledger.db, ["echo", "write"], {
      budgets,
      models: { primary: { baseURL: "http://model.test/v1", model: "scripted", ...options.model } },
      ...options.agent,
    });
    const ingested = await ingest(ledger.db, aMessage(agent.id));
    if (!("runId" in ingested)) throw new Error("no run");
    options.eventId?.(ingested.eventId);
    const tool = writer([done("written")]);
    const { deps, requests } = bench(ledger.db, script, [quick, tool], { settings: options.settings ?? {} });
    await drain(deps);
    const { rows } = await ledger.db.pool.query<{ model_calls: number; replies: number; input_tokens: number }>(
      `select model_calls, input_tokens, (select count(*)::int from commitment_effects e where e.run_id = r.id and e.kind = 'reply') as replies
       from runs r where id = $1`,
      [ingested.runId],
    );
    return { requests, sent: tool.sent.length, ...(await outcomeOf(ledger.db, ingested.runId)), counted: rows[0] };
  }

  const work = asks(["write", { to: "issue-7" }]);
  const OURS = /^I could not finish this .*https:\/\/world\.test\/issue-7: done/s;

  it("says in the words of the task what was done and asks whether to go on; its answer is the reply", async () => {
    const ended = await run([work, says("I filed issue 7; the label is missing. Shall I go on?")], { iterations: 1 });
    assert.deepEqual(
      [ended.row.status, ended.row.reason, ended.row.message, ended.reply],
      [
        "budget_exhausted",
        "BudgetExhausted",
        "the budget of 1 iteration is used up",
        "I filed issue 7; the label is missing. Shall I go on?",
      ],
    );
    const [, closing] = ended.requests;
    assert.deepEqual(closing?.tools, []);
    assert.equal(closing?.messages.at(-1)?.role, "user");
    assert.ok(closing?.messages.at(-1)?.content?.endsWith(`\n\n${LAST_WORDS}`));
    assert.ok(
      closing?.messages.every(({ role }) => role !== "tool"),
      "strict providers refuse tool messages without tools",
    );
    assert.match(JSON.stringify(closing?.messages), /\(write: written\)/);
    assert.deepEqual(ended.counted, { model_calls: 2, input_tokens: 14, replies: 1 });
  });

  it("is held back: of four model calls three are work", async () => {
    const ended = await run([work, work, work, says("Three writes tried. Go on?"), says("never asked")], {
      modelCalls: 4,
    });
    assert.deepEqual(
      [ended.requests.length, ended.counted?.model_calls, ended.reply],
      [4, 4, "Three writes tried. Go on?"],
    );
  });

  const away: Script[number] = { kind: "failed", class: "transient", reason: "ModelUnavailable", message: "away" };
  const mute: Script[number] = { ...(says("  ") as object), text: "  " } as Script[number];
  const late: Script[number] = (_request, signal) =>
    new Promise((resolve) => {
      const end = () => resolve({ kind: "failed", class: "cancelled", reason: "Cancelled", message: "late" });
      if (signal.aborted) end();
      signal.addEventListener("abort", end, { once: true });
    });
  const cases: Record<string, [Script[number], counted: number]> = {
    fails: [away, 1],
    "says nothing": [mute, 2],
    "asks for a tool all the same": [asks(["write", { to: "more" }]), 2],
    "comes late": [late, 1],
  };
  for (const [title, [answer, counted]] of Object.entries(cases)) {
    it(`that ${title} gives way to words of our own, and is asked once`, async () => {
      const ended = await run([work, answer], { iterations: 1 }, { settings: { closingMs: 30 } });
      assert.equal(ended.row.status, "budget_exhausted");
      assert.match(ended.reply ?? "", OURS);
      assert.deepEqual([ended.requests.length, ended.sent], [2, 1]);
      assert.deepEqual([ended.counted?.model_calls, ended.counted?.replies], [counted, 1]);
    });
  }

  const unpaid: Record<string, [budgets: object, model?: object]> = {
    "input tokens are": [{ inputTokens: 7 }],
    "too few input tokens for the request are": [{ iterations: 1, inputTokens: 50 }],
    "output tokens are": [{ iterations: 1, outputTokens: 500 }],
    "the one model call is": [{ modelCalls: 1 }],
    "money is": [{ maxCostUSD: 10 }, { pricesUSDPerMTok: PRICES }],
    "too little money for it is": [{ iterations: 1, maxCostUSD: 100 }, { pricesUSDPerMTok: PRICES }],
  };
  for (const [title, [budgets, model]] of Object.entries(unpaid)) {
    it(`is not made when ${title} what is left`, async () => {
      const ended = await run([work], budgets, model === undefined ? {} : { model });
      assert.deepEqual([ended.row.status, ended.requests.length], ["budget_exhausted", 1]);
      assert.match(ended.reply ?? "", OURS);
    });
  }

  it("that a person stops in the middle ends as stopped", async () => {
    let eventId = "";
    const stopped: Script[number] = async (request, signal) => {
      await stop(ledger.db, eventId);
      return late(request, signal);
    };
    const ended = await run(
      [work, stopped],
      { iterations: 1 },
      {
        settings: { renewMs: 20 },
        eventId: (id) => {
          eventId = id;
        },
      },
    );
    assert.deepEqual([ended.row.status, ended.row.reason], ["cancelled", "Stopped"]);
    assert.match(ended.reply ?? "", /^Stopped, as you asked\..*issue-7: done/s);
    assert.equal(ended.counted?.replies, 1);
  });

  describe("of a run that fails is none of the model's", () => {
    it("names what was done, in a reply of its own, and the status stays failed with its reason", async () => {
      const refused: Script[number] = {
        kind: "failed",
        class: "terminal",
        reason: "ModelUnauthorized",
        message: "host: 401",
      };
      const ended = await run([work, refused], {});
      assert.deepEqual(
        [ended.row.status, ended.row.reason, ended.row.message],
        ["failed", "ModelUnauthorized", "host: 401 Given up after 1 attempts."],
      );
      assert.match(
        ended.reply ?? "",
        /^I could not answer this: the model that I use does not let me in\..*issue-7: done/s,
      );
      assert.doesNotMatch(ended.reply ?? "", /401|host/);
    });

    it("is said even when no model is named at all", async () => {
      const ended = await run([], {}, { agent: { models: {} } });
      assert.deepEqual([ended.row.status, ended.row.reason], ["failed", "ModelMissing"]);
      assert.match(
        ended.reply ?? "",
        /^I could not answer this: no model is set up for me\. Nothing outside was changed\./,
      );
    });

    it("is said when a limit of money has no prices to count with", async () => {
      const ended = await run([], { maxCostUSD: 1 });
      assert.deepEqual([ended.row.status, ended.row.reason], ["failed", "PricesMissing"]);
      assert.match(ended.row.message ?? "", /pricesUSDPerMTok/);
    });
  });
});
