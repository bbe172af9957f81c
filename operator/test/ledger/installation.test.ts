import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { readAgent, recordAgent } from "#ledger/agents.ts";
import { adoptLedger, claimLedger } from "#ledger/installation.ts";
import { holdLeadership, releaseLeadership } from "#ledger/leader.ts";
import { count, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage, NAMESPACE_UID } from "../support/world.ts";
import { ingest } from "#ledger/mailbox.ts";
import { met, RecordingDatabase } from "../support/verdicts.ts";

describe("a ledger", () => {
  const ledger = useLedger();
  const NOW = new Date("2026-03-01T12:00:00.750Z");

  it("belongs to the first cluster that claims it, from that whole second on", async () => {
    const first = { kubeSystemUid: "cluster-a", bornAt: new Date("2026-03-01T12:00:00Z"), epoch: 1 };
    assert.deepEqual(await claimLedger(ledger.db, "cluster-a", NOW), first);
    assert.deepEqual(await claimLedger(ledger.db, "cluster-a", new Date("2027-01-01T00:00:00Z")), first);
  });

  it("refuses another cluster, in words that say what to do", async () => {
    await assert.rejects(claimLedger(ledger.db, "cluster-b", NOW), {
      kind: "terminal",
      reason: "ForeignLedger",
      message: /belongs to another cluster .*cluster-a.*cluster-b.* database of its own, or run `pawl adopt-ledger`/,
    });
    assert.equal(await count(ledger, "installations where kube_system_uid = 'cluster-a'"), 1);
  });

  it("is adopted only when somebody says so, and counts its epochs", async () => {
    const later = new Date("2026-06-01T00:00:00Z");
    const adopted = { kubeSystemUid: "cluster-b", bornAt: later, epoch: 2 };
    assert.deepEqual(await adoptLedger(ledger.db, "cluster-b", later), adopted);
    assert.deepEqual(await claimLedger(ledger.db, "cluster-b", NOW), adopted);
    await assert.rejects(claimLedger(ledger.db, "cluster-a", NOW), { reason: "ForeignLedger" });
  });
});

describe("an agent in the ledger", () => {
  const ledger = useLedger();

  const agent = (name: string, specHash: string, changes: object = {}) => ({
    namespaceUid: NAMESPACE_UID,
    namespace: "demo",
    name,
    spec: { specHash },
    specHash,
    suspended: false,
    ...changes,
  });

  it("gets a generation when it is created, and another one only when its text changes", async () => {
    const created = await recordAgent(ledger.db, agent("a", "1"));
    assert.equal(created.generation, 1);
    assert.deepEqual(await recordAgent(ledger.db, agent("a", "1")), created);
    assert.deepEqual(await recordAgent(ledger.db, agent("a", "2")), { id: created.id, generation: 2 });
    assert.deepEqual(await recordAgent(ledger.db, agent("a", "1")), { id: created.id, generation: 3 });
    const rows = await sql(ledger, "select generation, spec from agent_generations where agent_id = $1 order by 1", [
      created.id,
    ]);
    assert.deepEqual(
      rows,
      ["1", "2", "1"].map((specHash, index) => ({ generation: index + 1, spec: { specHash } })),
    );
    for (const verdict of ["created", "same", "changed"]) assert.ok(met.get("record_agent")?.has(verdict), verdict);
  });

  it("is suspended and resumed without a new generation", async () => {
    const { id } = await recordAgent(ledger.db, agent("b", "1"));
    for (const suspended of [true, false]) {
      assert.deepEqual(await recordAgent(ledger.db, agent("b", "1", { suspended })), { id, generation: 1 });
      assert.equal((await readAgent(ledger.db, { namespaceUid: NAMESPACE_UID, name: "b" }))?.suspended, suspended);
    }
  });

  it("is another one in another namespace, also if that namespace came back under its old name", async () => {
    const [mine, other] = [
      await recordAgent(ledger.db, agent("c", "1")),
      await recordAgent(ledger.db, agent("c", "1", { namespaceUid: "ns-uid-2" })),
    ];
    assert.notEqual(mine.id, other.id);
  });

  it("knows its live runs", async () => {
    const { id } = await recordAgent(ledger.db, agent("d", "1"));
    const opened = await ingest(ledger.db, aMessage(id));
    assert.ok(opened.kind === "new_run");
    const view = await readAgent(ledger.db, { namespaceUid: NAMESPACE_UID, name: "d" });
    assert.deepEqual([view?.active, view?.queued], [0, 1]);
  });
});

describe("leadership", () => {
  const ledger = useLedger();

  it("is opened by whoever asks first, renewed by its holder, and refused to others who learn its name", async () => {
    const name = `leader-${uuidv7()}`;
    assert.deepEqual(await holdLeadership(ledger.db, name, "a", 60_000), { held: true, owner: "a" });
    assert.deepEqual(await holdLeadership(ledger.db, name, "a", 60_000), { held: true, owner: "a" });
    assert.deepEqual(await holdLeadership(ledger.db, name, "b", 60_000), { held: false, owner: "a" });
  });

  it("passes on at once when it is given up, and by database time when it lapsed", async () => {
    const name = `leader-${uuidv7()}`;
    await holdLeadership(ledger.db, name, "a", 60_000);
    await releaseLeadership(ledger.db, name, "b");
    assert.equal((await holdLeadership(ledger.db, name, "b", 60_000)).held, false, "only its holder gives it up");
    await releaseLeadership(ledger.db, name, "a");
    assert.equal((await holdLeadership(ledger.db, name, "b", 60_000)).held, true);
    await using later = new RecordingDatabase({ url: ledger.url, settings: { "pawl.skew": "61 seconds" } });
    assert.deepEqual(await holdLeadership(later, name, "c", 60_000), { held: true, owner: "c" });
    assert.equal(await count(ledger, "leases where name = $1 and owner = 'c' and token >= 2", [name]), 1);
  });
});
