import assert from "node:assert/strict";
import { claimUndecided, readUnderWay } from "#ledger/undecided.ts";
import { hold } from "../support/interleave.ts";
import { sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { decideAs, undecidedOf } from "../support/steering.ts";
import { aClaimedRun } from "../support/world.ts";

const CLAIM = { most: 10, askMs: 60_000, except: [] } as const;

describe("messages that wait for a decision", () => {
  const ledger = useLedger();
  afterEach(() => sql(ledger, "update message_events set state = 'withdrawn' where state = 'undecided'"));

  const claimed = async (changes: Partial<Parameters<typeof claimUndecided>[1]> = {}) =>
    (await claimUndecided(ledger.db, { ...CLAIM, ...changes })).map(({ eventId }) => eventId);

  it("are one process's to ask about, the oldest first and no more than it has room for", async () => {
    const run = await aClaimedRun(ledger.db);
    const waits = [await undecidedOf(ledger, run), await undecidedOf(ledger, run), await undecidedOf(ledger, run)];
    const [first, second, third] = waits.map(({ eventId }) => eventId);
    assert.deepEqual(await claimed({ most: 2 }), [first, second]);
    assert.deepEqual(await claimed(), [third]);
    assert.deepEqual(await claimed(), []);
  });

  it("come with what they are asked about: words, author, agent, and the turn that they met", async () => {
    const run = await aClaimedRun(ledger.db);
    const more = await undecidedOf(ledger, run, { by: "bob", text: "for eight" });
    const [found] = await claimUndecided(ledger.db, CLAIM);
    assert.deepEqual(found, {
      ...more,
      kind: "message",
      text: "for eight",
      actor: "bob",
      runId: run.runId,
      agentId: run.agent.id,
      namespace: "demo",
      spec: { instructions: "Be brief." },
    });
    assert.deepEqual(await readUnderWay(ledger.db, run.runId), [{ actor: "alice", text: run.message.text }]);
  });

  it("are somebody else's when the time of the one who asks is over", async () => {
    const more = await undecidedOf(ledger, await aClaimedRun(ledger.db));
    assert.deepEqual(await claimed({ askMs: 0 }), [more.eventId]);
    assert.deepEqual(await claimed(), [more.eventId]);
  });

  it("are not claimed by who knows the answer already, nor once they are decided", async () => {
    const more = await undecidedOf(ledger, await aClaimedRun(ledger.db));
    assert.deepEqual(await claimed({ except: [more.eventId] }), []);
    await decideAs(ledger.db, more, "independent");
    assert.deepEqual(await claimed(), []);
  });

  it("are passed over, not waited for, while somebody decides about them", async () => {
    const run = await aClaimedRun(ledger.db);
    const first = await undecidedOf(ledger, run);
    const second = await undecidedOf(ledger, run);
    const held = await hold(ledger.db, (tx) => decideAs(tx, first, "independent"));
    assert.deepEqual(await claimed(), [second.eventId]);
    await held.commit();
  });
});
