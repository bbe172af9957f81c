/** A live turn that meets what a person said about one of its writes, and goes on from it. */
import assert from "node:assert/strict";
import { resolveEffect } from "#ledger/effects.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readEffects } from "#ledger/reads.ts";
import { asks, bench, done, drain, engineAgent, lost, says, type Script, writer } from "../support/engine.ts";
import { runRow } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

describe("a turn with a write of unknown outcome", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const write = (text: string) => asks(["write", { to: "a", text }]);

  /** Three writes to one target; between the second and the third a person says what became of the first. */
  async function told(landed: boolean, third: string) {
    const agent = await engineAgent(ledger.db, ["write"]);
    const ingested = await ingest(ledger.db, aMessage(agent.id));
    assert.ok("runId" in ingested);
    const tool = writer([lost(), done("written")]);
    const resolved = async () => {
      const [first] = await readEffects(ledger.db, ingested.runId);
      const word = { effectId: first?.id ?? "", landed, by: "alice", reason: "looked at it" };
      assert.equal((await resolveEffect(ledger.db, word)).kind, "resolved");
      return write(third);
    };
    const script: Script = [write("tea"), write("tea, please"), resolved, says("done")];
    const { deps, requests } = bench(ledger.db, script, [tool]);
    assert.equal(await drain(deps), 1, "its lease was not disturbed");
    const seen = requests.slice(1).map((request) => String(request.messages.at(-1)?.content));
    assert.match(seen[0] ?? "", /^Outcome unknown/);
    assert.match(seen[1] ?? "", /^NOT run now/);
    const states = (await readEffects(ledger.db, ingested.runId))
      .filter(({ kind }) => kind !== "reply")
      .map(({ state }) => state);
    return { row: await runRow(ledger, ingested.runId), sent: tool.sent.length, states, last: seen[2] };
  }

  it("is answered from its row once a person says that it landed, and ends with nothing unknown", async () => {
    const { row, sent, states, last } = await told(true, "tea");
    assert.match(last ?? "", /^\(Not sent again: .*\)\nalice looked and says: it took place\. looked at it/);
    assert.deepEqual([sent, states, row.status, row.reason], [1, ["confirmed"], "succeeded", "Answered"]);
  });

  it("may write other words to that target then: nothing is open on it", async () => {
    const { sent, states, last } = await told(true, "milk");
    assert.deepEqual([sent, states, last], [2, ["confirmed", "confirmed"], "written"]);
  });

  it("may send the same again once a person says that it did not land", async () => {
    const { row, sent, states, last } = await told(false, "tea");
    assert.deepEqual([sent, states, last], [2, ["failed", "confirmed"], "written"]);
    assert.deepEqual([row.status, row.reason], ["succeeded", "Answered"]);
  });
});
