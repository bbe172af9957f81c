/** Ceilings of runs at work: held by leases and only by leases, counted under the agent's row. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { recordAgent } from "#ledger/agents.ts";
import type { Runner } from "#ledger/database.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun, releaseLease } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readMirror } from "#ledger/mirrors.ts";
import { hold, untilBlocked } from "../support/interleave.ts";
import { alone, count, end, lapse, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { met, RecordingDatabase } from "../support/verdicts.ts";
import { aMessage, CODE, NAMESPACE_UID } from "../support/world.ts";

describe("a ceiling of runs at work", () => {
  const ledger = useLedger();
  let other: RecordingDatabase;
  before(() => {
    other = new RecordingDatabase({ url: ledger.url, name: "other" });
  });
  after(() => other.close());
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const agentOf = (maxRuns?: number) =>
    recordAgent(ledger.db, {
      namespaceUid: NAMESPACE_UID,
      namespace: "demo",
      name: `agent-${uuidv7()}`,
      spec: maxRuns === undefined ? {} : { concurrency: { maxRuns } },
      specHash: uuidv7(),
      suspended: false,
    });
  async function queue(agentId: string, runs: number): Promise<string[]> {
    const ids: string[] = [];
    for (let n = 0; n < runs; n += 1) {
      const ingested = await ingest(ledger.db, aMessage(agentId));
      if (!("runId" in ingested)) throw new Error("no run");
      ids.push(ingested.runId);
    }
    return ids;
  }
  const claim = (db: Runner = ledger.db, maxRuns = 0) => claimRun(db, "worker-1", 10_000, CODE, maxRuns);
  const leases = (agentId: string) =>
    count(ledger, "runs where live and lease_owner is not null and agent_id = $1", [agentId]);
  const park = (run: { runId: string; token: number }, delayMs = 3_600_000) =>
    releaseLease(ledger.db, { ...run, delayMs, reason: "SecretMissing", message: null, failed: false });
  const taken = <T>(value: T | null): T => {
    if (value === null) throw new Error("nothing was claimed");
    return value;
  };

  it("of an agent lets in as many as it says, and the next one when a lease is given back", async () => {
    const agent = await agentOf(2);
    const runs = await queue(agent.id, 3);
    const first = taken(await claim());
    assert.deepEqual([first.runId, (await claim())?.runId, await claim()], [runs[0], runs[1], null]);
    await end(ledger.db, first);
    assert.equal((await claim())?.runId, runs[2]);
  });

  it("is ten where the Agent says nothing", async () => {
    const agent = await agentOf();
    await queue(agent.id, 11);
    for (let n = 0; n < 10; n += 1) taken(await claim());
    assert.equal(await claim(), null);
  });

  it("is never passed: ten runs, a ceiling of two, eight claimers at once", async () => {
    const agent = await agentOf(2);
    await queue(agent.id, 10);
    let ended = 0;
    let most = 0;
    const claimer = async (db: RecordingDatabase | typeof ledger.db) => {
      while (ended < 10) {
        const claimed = await claimRun(db, "worker", 60_000, CODE);
        if (claimed === null) {
          await new Promise((resolve) => setImmediate(resolve));
          continue;
        }
        // Whoever is one too many sees himself here.
        most = Math.max(most, await leases(agent.id));
        await end(ledger.db, claimed);
        ended += 1;
      }
    };
    await Promise.all(Array.from({ length: 8 }, (_, n) => claimer(n % 2 === 0 ? ledger.db : other)));
    assert.deepEqual([ended, await leases(agent.id)], [10, 0]);
    assert.equal(most, 2, "both places were used, and no third");
  });

  it("holds between a claim that is not committed yet and one that waits for it", async () => {
    const agent = await agentOf(1);
    await queue(agent.id, 2);
    const held = await hold(ledger.db, (tx) => claim(tx));
    assert.notEqual(held.result, null);
    const second = claim(other);
    await untilBlocked(ledger.url);
    await held.commit();
    assert.equal(await second, null);
    assert.ok(met.get("claim_run")?.has("again"), "it counted in vain, and counted again");
    assert.equal(await leases(agent.id), 1);
  });

  it("does not make the claims of one agent wait for those of another", async () => {
    const [one, another] = [await agentOf(1), await agentOf(1)];
    await queue(one.id, 1);
    const [wanted] = await queue(another.id, 1);
    const held = await hold(ledger.db, (tx) => claim(tx));
    assert.equal((await claim(other))?.runId, wanted);
    await held.commit();
  });

  it("that one agent has reached leaves those behind it alone", async () => {
    const busy = await agentOf(1);
    await queue(busy.id, 5);
    const [wanted] = await queue((await agentOf(1)).id, 1);
    taken(await claim());
    assert.equal((await claim())?.runId, wanted);
    assert.equal(await claim(), null);
  });

  it("lets runs that were begun in before new ones, however long those have waited", async () => {
    const agent = await agentOf(1);
    await queue(agent.id, 2);
    const begun = taken(await claim());
    await park(begun, 0);
    await sql(
      ledger,
      "update runs set due_at = due_at - interval '1 hour' where agent_id = $1 and started_at is null",
      [agent.id],
    );
    assert.equal((await claim())?.runId, begun.runId);
  });

  it("needs no second place for a run whose worker died", async () => {
    const agent = await agentOf(1);
    await queue(agent.id, 2);
    const first = taken(await claim());
    await lapse(ledger, first.runId);
    const again = taken(await claim());
    assert.deepEqual([again.runId, again.takeover, await claim()], [first.runId, true, null]);
  });

  it("is not held by runs that wait without a lease: three are parked, the fourth begins", async () => {
    const agent = await agentOf(1);
    const runs = await queue(agent.id, 4);
    for (let n = 0; n < 3; n += 1) await park(taken(await claim()));
    assert.equal((await claim())?.runId, runs[3]);
    assert.equal(await leases(agent.id), 1);
  });

  describe("of the install", () => {
    const all = () => count(ledger, "runs where live and lease_owner is not null");

    it("counts the leases of all agents; 0 is none", async () => {
      const runs = [...(await queue((await agentOf(5)).id, 1)), ...(await queue((await agentOf(5)).id, 1))];
      const ceiling = (await all()) + 1;
      assert.equal((await claim(ledger.db, ceiling))?.runId, runs[0]);
      assert.equal(await claim(ledger.db, ceiling), null);
      assert.equal((await claim(ledger.db, 0))?.runId, runs[1]);
    });

    it("holds between claims of different agents at once", async () => {
      const [one, another] = [await agentOf(5), await agentOf(5)];
      await queue(one.id, 1);
      await queue(another.id, 1);
      const ceiling = (await all()) + 1;
      const held = await hold(ledger.db, (tx) => claim(tx, ceiling));
      assert.notEqual(held.result, null);
      const second = claim(other, ceiling);
      await untilBlocked(ledger.url);
      await held.commit();
      assert.equal(await second, null);
    });
  });

  it("shows a run its place and what it waits under", async () => {
    const agent = await agentOf(1);
    await queue(agent.id, 1);
    taken(await claim());
    await queue(agent.id, 2);
    const applied = {
      namespaceUid: NAMESPACE_UID,
      key: uuidv7(),
      specHash: "s",
      objectUid: uuidv7(),
      objectName: "one",
    };
    await ingest(ledger.db, aMessage(agent.id, { applied }));
    const mirror = await readMirror(ledger.db, NAMESPACE_UID, applied.key);
    assert.deepEqual([mirror?.ahead, mirror?.agent_held, mirror?.agent_runs], [2, 1, 1]);
    assert.ok((mirror?.install_held ?? 0) >= 1);
  });
});
