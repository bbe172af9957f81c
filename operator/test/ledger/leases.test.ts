import assert from "node:assert/strict";
import { claimRun, nextDue, releaseLease, renewLease } from "#ledger/leases.ts";
import { commitResults } from "#ledger/steps.ts";
import { v7 as uuidv7 } from "uuid";
import { alone, count, end, lapse, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aClaimedRun, aRun, CODE, cross, respond } from "../support/world.ts";
import { RecordingDatabase } from "../support/verdicts.ts";

describe("a lease", () => {
  const ledger = useLedger();

  beforeEach(() => alone(ledger));

  const release = (run: { runId: string; token: number }, changes: object = {}) =>
    releaseLease(ledger.db, {
      runId: run.runId,
      token: run.token,
      delayMs: 0,
      reason: null,
      message: null,
      failed: false,
      ...changes,
    });

  it("is given for a due run, with a token of its own", async () => {
    const run = await aRun(ledger.db);
    const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
    assert.deepEqual(claim, { runId: run.runId, token: 1, takeover: false, attempts: 0 });
    const row = await runRow(ledger, run.runId);
    assert.deepEqual([row.lease_owner, row.due_at, row.status], ["worker-1", null, "running"]);
  });

  it("is given for nothing when nothing is due", async () => {
    assert.equal(await claimRun(ledger.db, "worker-1", 10_000, CODE), null);
  });

  it("is taken over when it lapsed, by database time, and not a moment before", async () => {
    const run = await aClaimedRun(ledger.db, {}, 20_000);
    for (const [skew, expected] of [
      ["19 seconds", null],
      ["21 seconds", { runId: run.runId, token: run.token + 1, takeover: true, attempts: 0 }],
    ] as const) {
      await using later = new RecordingDatabase({ url: ledger.url, settings: { "pawl.skew": skew } });
      assert.deepEqual(await claimRun(later, "worker-2", 10_000, CODE), expected);
    }
  });

  it("comes before a run that is merely due, because somebody has waited longer for it", async () => {
    const lapsed = await aClaimedRun(ledger.db);
    await lapse(ledger, lapsed.runId);
    const due = await aRun(ledger.db);
    assert.equal((await claimRun(ledger.db, "worker-2", 10_000, CODE))?.runId, lapsed.runId);
    assert.equal((await claimRun(ledger.db, "worker-2", 10_000, CODE))?.runId, due.runId);
  });

  it("is not given to code that cannot read the run", async () => {
    const run = await aRun(ledger.db);
    await sql(ledger, "update runs set min_code = 2 where id = $1", [run.runId]);
    assert.equal(await claimRun(ledger.db, "old", 10_000, 1), null);
    assert.ok(((await nextDue(ledger.db, 1)) ?? Infinity) > 60_000);
    assert.equal(await nextDue(ledger.db, 2), 0);
    assert.equal((await claimRun(ledger.db, "new", 10_000, 2))?.runId, run.runId);
  });

  it("is renewed by its holder, who hears of a stop in the same breath", async () => {
    const run = await aClaimedRun(ledger.db, {}, 1000);
    assert.deepEqual(await renewLease(ledger.db, run.runId, run.token, 60_000), {
      kind: "renewed",
      stop: false,
      amendSeq: 0,
    });
    assert.equal(
      await count(ledger, "runs where id = $1 and lease_until > pawl_now() + interval '50 seconds'", [run.runId]),
      1,
    );
    const call = aCall();
    await respond(ledger.db, run, [call]);
    await cross(ledger.db, run, call);
    await stop(ledger.db, run.eventId);
    assert.deepEqual(await renewLease(ledger.db, run.runId, run.token, 60_000), {
      kind: "renewed",
      stop: true,
      amendSeq: 0,
    });
  });

  it("shows how much of an answer has come, as a version only when it has grown, and forgets it with the response", async () => {
    const run = await aClaimedRun(ledger.db);
    const shown = async () => (await sql(ledger, "select streamed, version from runs where id = $1", [run.runId]))[0];
    const before = await shown();
    const version = Number(before?.["version"]);
    await renewLease(ledger.db, run.runId, run.token, 10_000, 120);
    assert.deepEqual(await shown(), { streamed: 120, version: version + 1 });
    await renewLease(ledger.db, run.runId, run.token, 10_000, 120);
    assert.deepEqual(await shown(), { streamed: 120, version: version + 1 });
    await respond(ledger.db, run, [aCall()]);
    assert.deepEqual(await shown(), { streamed: 0, version: version + 2 });
  });

  it("is lost once it lapsed, even if nobody took over", async () => {
    const run = await aClaimedRun(ledger.db);
    await lapse(ledger, run.runId);
    assert.deepEqual(await renewLease(ledger.db, run.runId, run.token, 10_000), { kind: "lost" });
  });

  it("is lost to a later token", async () => {
    const run = await aClaimedRun(ledger.db);
    await lapse(ledger, run.runId);
    await claimRun(ledger.db, "worker-2", 10_000, CODE);
    assert.deepEqual(await renewLease(ledger.db, run.runId, run.token, 10_000), { kind: "lost" });
  });

  it("ends with its run", async () => {
    const run = await aClaimedRun(ledger.db);
    await end(ledger.db, run);
    assert.deepEqual(await renewLease(ledger.db, run.runId, run.token, 10_000), { kind: "ended" });
    assert.equal(await release(run), "ended");
  });

  it("is given back with what the run waits for; a failure counts, a commit forgets the count", async () => {
    const run = await aClaimedRun(ledger.db);
    assert.equal(
      await release(run, { delayMs: 5000, reason: "ModelUnavailable", message: "m".repeat(2000), failed: true }),
      "released",
    );
    const row = await runRow(ledger, run.runId);
    assert.deepEqual([row.lease_owner, row.reason, row.attempts], [null, "ModelUnavailable", 1]);
    const wait = await nextDue(ledger.db, CODE);
    assert.ok(wait !== null && wait > 3000 && wait <= 5000, `due in ${wait}`);
    await using later = new RecordingDatabase({ url: ledger.url, settings: { "pawl.skew": "6 seconds" } });
    const claim = await claimRun(later, "worker-2", 60_000, CODE);
    assert.deepEqual([claim?.runId, claim?.attempts, claim?.takeover], [run.runId, 1, false]);
    await respond(ledger.db, { runId: run.runId, token: claim?.token ?? 0 }, []);
    const after = await runRow(ledger, run.runId);
    assert.deepEqual([after.attempts, after.reason], [0, null]);
  });

  it("is given back once: asking again changes nothing, not even the count", async () => {
    const run = await aClaimedRun(ledger.db);
    assert.equal(await release(run, { failed: true }), "released");
    const before = await runRow(ledger, run.runId);
    assert.equal(await release(run, { failed: true, delayMs: 60_000 }), "already");
    assert.deepEqual(await runRow(ledger, run.runId), before);
  });

  it("is not given back by somebody who lost it", async () => {
    const run = await aClaimedRun(ledger.db);
    await lapse(ledger, run.runId);
    assert.equal(await release(run), "fenced");
    await claimRun(ledger.db, "worker-2", 10_000, CODE);
    assert.equal(await release(run), "fenced");
  });

  describe("that was lost leaves its worker without a pen", () => {
    it("after somebody else took over: no write to runs, steps or calls, only the outcome it alone knows", async () => {
      const run = await aClaimedRun(ledger.db);
      const call = aCall();
      await respond(ledger.db, run, [call]);
      await lapse(ledger, run.runId);
      const claim = await claimRun(ledger.db, "worker-2", 10_000, CODE);
      assert.equal(claim?.takeover, true);
      const before = await world(run.runId);
      await everyLateWrite(run, call, "fenced");
      assert.deepEqual(await world(run.runId), before);
    });

    it("after the run was cancelled: it does not come back to life", async () => {
      const run = await aClaimedRun(ledger.db);
      const call = aCall();
      await respond(ledger.db, run, [call]);
      assert.equal(await stop(ledger.db, run.eventId), "cancelled");
      const before = await world(run.runId);
      await everyLateWrite(run, call, "ended");
      assert.deepEqual(await world(run.runId), before);
    });
  });

  async function world(runId: string) {
    return {
      run: await runRow(ledger, runId),
      steps: await sql(ledger, "select * from run_steps where run_id = $1 order by ordinal", [runId]),
      calls: await sql(ledger, "select * from tool_calls where run_id = $1 order by id", [runId]),
      effects: await sql(ledger, "select * from commitment_effects where run_id = $1 order by id", [runId]),
      events: await sql(
        ledger,
        "select e.* from message_events e join run_triggers t on t.event_id = e.id where t.run_id = $1",
        [runId],
      ),
    };
  }

  async function everyLateWrite(
    run: Awaited<ReturnType<typeof aClaimedRun>>,
    call: ReturnType<typeof aCall>,
    expected: string,
  ) {
    const { db } = ledger;
    assert.equal((await respond(db, run, [aCall()], { ordinal: 2 })).kind, expected);
    assert.equal((await cross(db, run, call)).result.kind, expected);
    const results = [{ id: call.id, outcome: "real" as const, result: "late" }];
    assert.equal((await commitResults(db, { ...run, nonce: uuidv7() }, results)).kind, expected);
    assert.equal(await release(run), expected);
    assert.equal((await renewLease(db, run.runId, run.token, 10_000)).kind, expected === "ended" ? "ended" : "lost");
    assert.equal((await end(db, run)).kind, expected);
  }
});
