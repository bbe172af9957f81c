/** What came while a turn was at work and did not concern it, is the next one's: all of it, in one go. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import type { ModelRequest } from "#engine/ports.ts";
import { bench, drain, engineAgent, says } from "../support/engine.ts";
import { sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

const said = ({ messages }: ModelRequest): string[] =>
  messages.flatMap(({ role, content }) => (role === "user" ? [content ?? ""] : []));

describe("messages during one long turn", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  it("all reach the next turn, in their order, and are answered together (C59)", async () => {
    const agent = await engineAgent(ledger.db, []);
    const say = (text: string) => ingest(ledger.db, aMessage(agent.id, { conversationKey: "long", text }));
    const more = ["first", "second", "third", "fourth", "fifth"].map((which) => `the ${which} of five`);
    const { deps, requests } = bench(ledger.db, [
      async () => {
        for (const text of more) assert.equal((await say(text)).kind, "queued");
        return says("That took long.");
      },
      says("All five of you are answered."),
    ]);
    await say("Begin something long.");
    assert.equal(await drain(deps), 2);
    const [, next] = requests.map(said);
    const heard = more.map((text) => next?.join("\n").indexOf(text) ?? -1);
    assert.ok(
      heard.every((place, index) => place > (heard[index - 1] ?? -1)),
      JSON.stringify(next),
    );
    const states = await sql(ledger, "select state, count(*)::int as n from message_events group by state");
    assert.deepEqual(states, [{ state: "accounted", n: 6 }]);
  });
});
