/** Budgets at their edges: what is allowed is done, what is beyond is not, and the end says so in a reply of its own. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { asks, bench, drain, engineAgent, says } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { outcomeOf } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";

describe("a budget", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  /** Asks for one call per response, for ever; each response costs 7 tokens in and 3 out. */
  async function spend(budgets: object, slice: Record<string, number> = {}) {
    const agent = await engineAgent(ledger.db, ["echo"], { budgets });
    const ingested = await ingest(ledger.db, aMessage(agent.id, { slice }));
    if (!("runId" in ingested)) throw new Error("no run");
    const script = Array.from({ length: 80 }, (_, n) => asks(["echo", { n }]));
    const { deps, requests } = bench(ledger.db, script);
    await drain(deps);
    return { asked: requests.length, ...(await outcomeOf(ledger.db, ingested.runId)) };
  }

  // `asked`: with the closing call, where one is left and can be paid for. The script answers it with one more call.
  const cases: [budgets: object, slice: Record<string, number>, asked: number, words: string][] = [
    [{ iterations: 3 }, {}, 4, "3 iterations"],
    [{ modelCalls: 1 }, {}, 1, "1 model call"],
    [{ modelCalls: 4 }, {}, 4, "4 model calls"],
    [{ toolCalls: 2 }, {}, 4, "2 tool calls"],
    [{ inputTokens: 14 }, {}, 2, "14 input tokens"],
    [{ inputTokens: 15 }, {}, 3, "15 input tokens"],
    [{ outputTokens: 7 }, {}, 3, "7 output tokens"],
    [{ iterations: 5 }, { iterations: 2 }, 3, "2 iterations"],
    [{ iterations: 2 }, { iterations: 5 }, 3, "2 iterations"],
    [{ iterations: 2, inputTokens: 20 }, {}, 2, "2 iterations"],
    [{ iterations: 2, outputTokens: 20 }, {}, 2, "2 iterations"],
    [{}, { outputTokens: 3 }, 1, "3 output tokens"],
    [{}, {}, 51, "50 iterations"],
  ];
  for (const [budgets, slice, asked, words] of cases) {
    it(`of ${JSON.stringify(budgets)}, for a run that asks for ${JSON.stringify(slice)}, is ${words}`, async () => {
      const spent = await spend(budgets, slice);
      assert.equal(spent.asked, asked);
      assert.deepEqual(
        [spent.row.status, spent.row.reason, spent.row.message],
        ["budget_exhausted", "BudgetExhausted", `the budget of ${words} is used up`],
      );
      assert.match(
        spent.reply ?? "",
        /^I could not finish this .* Nothing outside was changed\.\nAsk again if I should go on\.$/s,
      );
    });
  }

  it("that the last answer just fits is no reason to end without it", async () => {
    const agent = await engineAgent(ledger.db, ["echo"], { budgets: { iterations: 2, toolCalls: 1, inputTokens: 14 } });
    const ingested = await ingest(ledger.db, aMessage(agent.id));
    if (!("runId" in ingested)) throw new Error("no run");
    await drain(bench(ledger.db, [asks(["echo", {}]), says("made it")], undefined, {}).deps);
    const { row, reply } = await outcomeOf(ledger.db, ingested.runId);
    assert.deepEqual([row.status, reply], ["succeeded", "made it"]);
  });

  it("leaves no word of trouble in the log of a turn that ends well", async () => {
    const agent = await engineAgent(ledger.db, []);
    await ingest(ledger.db, aMessage(agent.id));
    const { deps, logged } = bench(ledger.db, [says("hello")], [], { settings: { renewMs: 1 } });
    await drain(deps);
    assert.deepEqual(
      logged.map(({ level, message }) => [level, message]),
      [["info", "a turn ended"]],
    );
  });
});
