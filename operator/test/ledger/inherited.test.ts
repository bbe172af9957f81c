/** What a restarted turn leaves behind: results that its worker still holds, and calls that nobody will finish. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { withdrawApproval } from "#ledger/approvals.ts";
import { attachResult, closeInherited } from "#ledger/inherited.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { readRun } from "#ledger/reads.ts";
import { requestStop } from "#ledger/turns.ts";
import { aGatedRun, approvalOf, decide, park } from "../support/approvals.ts";
import { amend, supersede } from "../support/newer.ts";
import { alone, end, lapse, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aClaimedRun, CODE, respond } from "../support/world.ts";

describe("what a restarted turn leaves behind", () => {
  const ledger = useLedger();
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const aRead = (idx = 0) => aCall({ idx, class: "pure", kind: "tool.query", target: null });
  const found = (id: string, result = "found") => ({ id, outcome: "real" as const, result });

  /** A run with open reads, restarted. */
  async function restarted(reads = 1) {
    const old = await aClaimedRun(ledger.db);
    const calls = Array.from({ length: reads }, (_, idx) => aRead(idx));
    await respond(ledger.db, old, calls);
    const next = await supersede(ledger.db, old.runId, { text: "blue" });
    return { old, next: next.runId, ids: calls.map(({ id }) => id) as [string, ...string[]] };
  }

  async function claimed(runId: string) {
    const claim = await claimRun(ledger.db, "worker-2", 10_000, CODE);
    assert.equal(claim?.runId, runId);
    return { runId, token: claim?.token ?? 0 };
  }

  const resultOf = async (runId: string, id: string) =>
    (await readRun(ledger.db, runId)).calls.find((call) => call.id === id);

  it("is a finished read that goes to the successor, once; who comes second changes nothing (C67)", async () => {
    const { next, ids } = await restarted();
    const source = {
      id: uuidv7(),
      source: "host.test",
      audience: "agent" as const,
      agentId: uuidv7(),
      conversationId: uuidv7(),
    };
    assert.equal(await attachResult(ledger.db, { ...found(ids[0]), source }), "attached");
    assert.equal(await attachResult(ledger.db, found(ids[0], "other")), "already");
    const run = await readRun(ledger.db, next);
    assert.equal(run.calls[0]?.result, "found");
    assert.deepEqual(
      run.evidence.map(({ id }) => id),
      [source.id],
    );
  });

  it("reaches the newest of several successors", async () => {
    const { next, ids } = await restarted(2);
    await claimed(next);
    const newest = await supersede(ledger.db, next, { text: "green" });
    assert.equal(await attachResult(ledger.db, found(ids[0])), "attached");
    assert.equal((await resultOf(newest.runId, ids[0]))?.result, "found");
  });

  it("comes too late for a run that was not restarted, for a successor that has gone on, and for what is no read", async () => {
    const live = await aClaimedRun(ledger.db);
    const [open, write] = [aRead(), aCall({ idx: 1 })];
    await respond(ledger.db, live, [open, write]);
    assert.equal(await attachResult(ledger.db, found(open.id)), "late");
    assert.equal(await attachResult(ledger.db, found(uuidv7())), "late");
    const { next, ids } = await restarted();
    const run = await claimed(next);
    assert.equal(await closeInherited(ledger.db, { ...run, result: "closed" }), "closed");
    assert.equal(await attachResult(ledger.db, found(ids[0])), "already");
    await respond(ledger.db, run, [], { ordinal: 2, seenSeq: 2 });
    assert.equal((await resultOf(next, ids[0]))?.result, "closed");
  });

  it("is closed by the holder of the successor's lease, as often as he says so, and not what is attached", async () => {
    const { next, ids } = await restarted(2);
    await attachResult(ledger.db, found(ids[0]));
    const run = await claimed(next);
    for (const result of ["closed", "again"]) {
      assert.equal(await closeInherited(ledger.db, { ...run, result }), "closed");
    }
    const calls = (await readRun(ledger.db, next)).calls.map(({ outcome, result }) => [outcome, result]);
    assert.deepEqual(calls, [
      ["real", "found"],
      ["cancelled", "closed"],
    ]);
  });

  it("is closed by nobody else, and is closed with a successor that never began", async () => {
    const lost = await restarted();
    const run = await claimed(lost.next);
    await lapse(ledger, lost.next);
    assert.equal(await closeInherited(ledger.db, { ...run, result: "closed" }), "fenced");
    const [message] = await sql<{ event_id: string }>(
      ledger,
      "select event_id from run_triggers where run_id = $1 order by event_id limit 1",
      [lost.next],
    );
    const stopped = await requestStop(ledger.db, {
      eventId: message?.event_id ?? "",
      extId: `stop-${uuidv7()}`,
      actor: { connector: "kubernetes", extId: "alice" },
      why: null,
    });
    assert.equal(stopped, "cancelled");
    assert.equal(await closeInherited(ledger.db, { ...run, result: "closed" }), "ended");
    assert.equal((await resultOf(lost.next, lost.ids[0]))?.outcome, "cancelled");
  });
});

describe("a call that waits for a person when newer input comes", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));
  const withdraw = (run: Awaited<ReturnType<typeof aGatedRun>>) =>
    withdrawApproval(ledger.db, { runId: run.runId, token: run.token, callId: run.calls[0].id });
  const again = (run: { runId: string }) =>
    sql(
      ledger,
      `update runs set lease_owner = 'worker-1', lease_until = pawl_now() + interval '1 minute', leased_at = pawl_now(), due_at = null
       where id = $1`,
      [run.runId],
    );

  it("does not begin to wait: it would be woken by nobody", async () => {
    const run = await aGatedRun(ledger.db);
    const { seq } = await amend(ledger.db, run.runId, { text: "blue" });
    assert.equal(await park(ledger.db, run, { seenSeq: seq - 1 }), "newer_input");
    assert.equal(await park(ledger.db, run, { seenSeq: seq }), "parked");
  });

  it("is taken back once; a decision about it is late from then on", async () => {
    const run = await aGatedRun(ledger.db);
    await park(ledger.db, run);
    await again(run);
    assert.equal(await withdraw(run), "withdrawn");
    assert.equal(await withdraw(run), "already");
    assert.equal((await approvalOf(ledger.db, run)).state, "withdrawn");
    assert.deepEqual(await decide(ledger.db, run), {
      kind: "late",
      state: "withdrawn",
      by: null,
      over: "Withdrawn",
      already: false,
    });
  });

  it("is taken back in vain when somebody has decided, and by nobody but the holder of the lease", async () => {
    const run = await aGatedRun(ledger.db);
    await park(ledger.db, run);
    assert.equal(await withdraw(run), "fenced");
    await decide(ledger.db, run);
    await again(run);
    assert.equal(await withdraw(run), "decided");
    await end(ledger.db, run);
    assert.equal(await withdraw(run), "ended");
  });
});
