import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { listAgents, recordAgent, suspendAgent } from "#ledger/agents.ts";
import { holdLeadership, releaseLeadership } from "#ledger/leader.ts";
import { ingest } from "#ledger/mailbox.ts";
import { listLiveAppliedKeys, listLiveMessagesOfAgent, listLiveMessagesOfObject } from "#ledger/mirrors.ts";
import { requestStop } from "#ledger/turns.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage, anAgent, NAMESPACE_UID } from "../support/world.ts";

describe("leadership", () => {
  const ledger = useLedger();

  it("goes to one of many who ask at once", async () => {
    const owners = Array.from({ length: 12 }, (_, n) => `owner-${n}`);
    const asked = await Promise.all(owners.map((owner) => holdLeadership(ledger.db, "many", owner, 60_000)));
    const held = asked.filter(({ held }) => held);
    assert.equal(held.length, 1);
    assert.deepEqual(new Set(asked.map(({ owner }) => owner)), new Set([held[0]?.owner]));
  });

  it("stays with whoever renews it, and passes on when he gives it up", async () => {
    assert.equal((await holdLeadership(ledger.db, "passed", "a", 60_000)).held, true);
    assert.equal((await holdLeadership(ledger.db, "passed", "a", 60_000)).held, true);
    assert.equal((await holdLeadership(ledger.db, "passed", "b", 60_000)).held, false);
    await releaseLeadership(ledger.db, "passed", "b");
    assert.equal((await holdLeadership(ledger.db, "passed", "b", 60_000)).held, false, "not his to give up");
    await releaseLeadership(ledger.db, "passed", "a");
    assert.equal((await holdLeadership(ledger.db, "passed", "b", 60_000)).held, true);
    assert.equal((await holdLeadership(ledger.db, "passed", "a", 60_000)).held, false);
  });

  it("lapses", async () => {
    await holdLeadership(ledger.db, "lapsed", "a", -1);
    assert.equal((await holdLeadership(ledger.db, "lapsed", "b", 60_000)).held, true);
  });
});

describe("open messages", () => {
  const ledger = useLedger();

  it("are found by the object, the key and the Agent that they came from, newest first, until they are answered", async () => {
    const agent = await anAgent(ledger.db);
    const uids = [uuidv7(), uuidv7()] as const;
    for (const [n, objectUid] of uids.entries()) {
      const applied = {
        namespaceUid: NAMESPACE_UID,
        key: `demo/${objectUid}`,
        specHash: "h",
        objectUid,
        objectName: `run-${n}`,
      };
      await ingest(ledger.db, aMessage(agent.id, { conversationKey: "talk", extId: objectUid, applied }));
    }
    await ingest(ledger.db, aMessage(agent.id, { conversationKey: "talk" }));
    const key = { namespaceUid: NAMESPACE_UID, name: agent.name };
    const names = async () => (await listLiveMessagesOfAgent(ledger.db, key)).map(({ object }) => object?.name ?? null);
    assert.deepEqual(await names(), [null, "run-1", "run-0"]);
    assert.deepEqual(
      (await listLiveAppliedKeys(ledger.db)).map(({ object }) => object?.uid),
      [uids[1], uids[0]],
    );
    const [message] = await listLiveMessagesOfObject(ledger.db, uids[0]);
    assert.ok(message !== undefined);
    assert.deepEqual(message.actor, { connector: "kubernetes", extId: "alice" });
    await requestStop(ledger.db, { eventId: message.eventId, extId: "stop", actor: message.actor, why: null });
    assert.deepEqual(await listLiveMessagesOfObject(ledger.db, uids[0]), []);
    assert.deepEqual(await names(), [null, "run-1"]);
  });
});

describe("an agent's digest", () => {
  const ledger = useLedger();

  it("changes with everything its status shows, and with nothing else", async () => {
    const agent = await anAgent(ledger.db, "watched");
    const digest = async () => (await listAgents(ledger.db)).find(({ name }) => name === "watched")?.digest;
    const first = await digest();
    assert.equal(await digest(), first);
    await ingest(ledger.db, aMessage(agent.id));
    const queued = await digest();
    assert.notEqual(queued, first);
    const key = { namespaceUid: NAMESPACE_UID, name: "watched" };
    await suspendAgent(ledger.db, key);
    assert.notEqual(await digest(), queued);
    const back = {
      ...key,
      namespace: "demo",
      spec: { instructions: "Be brief." },
      specHash: "hash-1",
      suspended: false,
    };
    assert.deepEqual(await recordAgent(ledger.db, back), { id: agent.id, generation: 1 });
    assert.equal(await digest(), queued);
  });
});
