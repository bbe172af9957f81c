import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { runIdOf } from "#cli/run-id.ts";
import { whyOf } from "#cli/why.ts";
import { settleEffect } from "#ledger/effects.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readStory } from "#ledger/story.ts";
import { requestStop } from "#ledger/turns.ts";
import { aCall, aClaimedRun, aMessage, cross, NAMESPACE_UID, respond } from "../support/world.ts";
import { useLedger } from "../support/postgres.ts";

const applied = (name: string) => ({
  namespaceUid: NAMESPACE_UID,
  key: `demo/${name}`,
  specHash: "s",
  objectUid: uuidv7(),
  objectName: name,
});

describe("the story of a turn", () => {
  const ledger = useLedger();

  it("has every row with its time: message, steps, calls, effects in the order of their crossings, interrupts", async () => {
    const run = await aClaimedRun(ledger.db, { text: "Order twice.", applied: applied("twice") });
    const calls = [aCall({ target: "https://a.test/1" }), aCall({ idx: 1, target: "https://a.test/2" })];
    await respond(ledger.db, run, calls);
    for (const call of calls) {
      const { request } = await cross(ledger.db, run, call, { keyed: true });
      const { effectId, nonce } = request;
      await settleEffect(ledger.db, { effectId, nonce, state: "confirmed", receipt: {}, observation: "HTTP 201" });
    }
    const stop = { eventId: run.eventId, extId: uuidv7(), actor: { connector: "kubernetes", extId: "bob" } };
    assert.equal(await requestStop(ledger.db, { ...stop, why: "enough" }), "stopping");

    const story = await readStory(ledger.db, run.runId);
    assert.ok(story !== null);
    const [message] = story.messages;
    assert.deepEqual(
      [message?.actor, message?.text, message?.object, message?.step],
      ["alice", "Order twice.", "twice", 1],
    );
    assert.deepEqual(
      story.steps.map(({ ordinal, token }) => [ordinal, token]),
      [[1, run.token]],
    );
    assert.deepEqual(
      story.effects.map(({ target, state, keyed }) => [target, state, keyed]),
      [
        ["https://a.test/1", "confirmed", true],
        ["https://a.test/2", "confirmed", true],
      ],
    );
    const [interrupt] = story.interrupts;
    assert.deepEqual(
      [interrupt?.actor, interrupt?.text, interrupt?.asked, interrupt?.done, interrupt?.reason],
      ["bob", "enough", "cancel", "stopping", "Committed"],
    );
    for (const time of [
      message?.at,
      story.steps[0]?.at,
      story.effects[0]?.settledAt,
      interrupt?.at,
      story.committedAt,
    ]) {
      assert.ok(time instanceof Date && Math.abs(time.getTime() - Date.now()) < 600_000, String(time));
    }
  });

  it("names what a reply was built on, each source once", async () => {
    const run = await aClaimedRun(ledger.db);
    const own = { agentId: run.agent.id, conversationId: uuidv7(), audience: "public" } as const;
    const sources = ["b.test", "a.test", "b.test"].map((source) => ({ id: uuidv7(), source, ...own }));
    const read = { class: "pure", kind: "tool.query", target: null, outcome: "real", result: "200" } as const;
    await respond(
      ledger.db,
      run,
      sources.map((source, idx) => aCall({ idx, ...read, source })),
    );
    const answer = aCall({ class: "reply", kind: "reply", target: null });
    await respond(ledger.db, run, [answer], { ordinal: 2 });
    await cross(ledger.db, run, answer, { receipt: {}, builtOn: sources.map(({ id }) => id) });
    const story = await readStory(ledger.db, run.runId);
    assert.deepEqual(
      story?.effects.map((effect) => effect.sources),
      [["a.test", "b.test"]],
    );
  });

  it("is found by the name of its Run and by its id, and is the same text", async () => {
    const run = await aClaimedRun(ledger.db, { text: "Who am I?", applied: applied("who") });
    const byName = await whyOf(ledger.db, "demo", "who");
    assert.match(byName, /alice asked \(Run who\)/);
    assert.match(byName, /No point of no return yet/);
    assert.equal(await whyOf(ledger.db, "elsewhere", run.runId), byName);
  });

  it("says of a message that still waits why it does, which the turn tells that it met", async () => {
    const run = await aClaimedRun(ledger.db, { applied: applied("first") });
    const { agent, message } = run;
    const { conversationKey } = message;
    await ingest(ledger.db, aMessage(agent.id, { conversationKey, applied: applied("second") }));
    assert.match(
      await whyOf(ledger.db, "demo", "second"),
      /alice wrote \(Run second\)[^]*→ waits for the next turn: the agent takes nothing into a turn at work/,
    );
    await assert.rejects(runIdOf(ledger.db, "demo", "second"), /waits in its conversation's mailbox \(pending\)/);
  });

  it("says what it does not know", async () => {
    await assert.rejects(whyOf(ledger.db, "demo", "nobody"), /knows no Run demo\/nobody; -n names another namespace/);
    const id = uuidv7();
    await assert.rejects(whyOf(ledger.db, "demo", id), new RegExp(`knows no turn ${id}`));
  });
});
