/** The commit boundary in SQL against the pure table: every cell, on one row that is put where the cell speaks of. */
import assert from "node:assert/strict";
import {
  BOUNDARIES,
  BOUNDARY,
  type Boundary,
  boundaryOf,
  type Crossing,
  crossingVerdict,
  STOP,
} from "#rules/boundary.ts";
import { claimRun } from "#ledger/leases.ts";
import { aRunIn, count, end, lapse, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aClaimedRun, cross, respond } from "../support/world.ts";

type Lease = "held" | "lapsed" | "taken over" | "given back" | "ended";
const LEASES: readonly Lease[] = ["held", "lapsed", "taken over", "given back", "ended"];
const NO_LEASE = "lease_owner = null, lease_until = null, lease_token = $2";
const LIVE = "live = true, status = 'running', ended_at = null";
const LEASE_SQL: Record<Lease, string> = {
  held: `${LIVE}, due_at = null, lease_owner = 'w', lease_until = pawl_now() + interval '1 hour', lease_token = $2`,
  lapsed: `${LIVE}, due_at = null, lease_owner = 'w', lease_until = pawl_now() - interval '1 ms', lease_token = $2`,
  "taken over": `${LIVE}, due_at = null, lease_owner = 'v', lease_until = pawl_now() + interval '1 hour', lease_token = $2::bigint + 1`,
  "given back": `${LIVE}, due_at = pawl_now(), ${NO_LEASE}`,
  ended: `live = false, status = 'failed', ended_at = pawl_now(), due_at = null, ${NO_LEASE}`,
};
const EARLIER = "00000000-0000-7000-8000-000000000001";
const BOUNDARY_SQL: Record<Boundary, string> = {
  buffering: "committed_at = null, committed_by = null, committed_step = null, reply_at = null",
  committed_by_tool: `committed_at = '2020-01-01', committed_by = '${EARLIER}', committed_step = 7, reply_at = null`,
  committed_by_reply: `committed_at = '2020-01-01', committed_by = '${EARLIER}', committed_step = 7, reply_at = '2020-01-02'`,
};

describe("the commit boundary in SQL", () => {
  const ledger = useLedger();

  for (const boundary of BOUNDARIES) {
    for (const crossing of ["tool", "reply"] as const satisfies Crossing[]) {
      it(`treats a ${crossing} that crosses from ${boundary} as the table does, whatever else is true`, async () => {
        const run = await aClaimedRun(ledger.db);
        const call =
          crossing === "reply"
            ? aCall({ class: "reply", kind: "reply", target: null, args: { text: "done" } })
            : aCall({ target: "issue/1" });
        await respond(ledger.db, run, [call]);
        const position = async (lease: Lease, stopping: boolean, newer: boolean, held: boolean) => {
          await sql(ledger, "delete from commitment_effects where run_id = $1", [run.runId]);
          await sql(
            ledger,
            `update runs set ${LEASE_SQL[lease]}, ${BOUNDARY_SQL[boundary]},
               stop_requested_at = ${stopping ? "pawl_now()" : "null"}, amend_seq = ${newer ? 2 : 1},
               hold_seq = ${held ? 2 : 1}, hold_until = pawl_now() + interval '1 minute' where id = $1`,
            [run.runId, run.token],
          );
        };
        let cells = 0;
        for (const lease of LEASES) {
          for (let bits = 0; bits < 8; bits += 1) {
            const [stopRequested, newerInput, held] = [(bits & 1) > 0, (bits & 2) > 0, (bits & 4) > 0];
            await position(lease, stopRequested, newerInput, held);
            const before = await runRow(ledger, run.runId);
            const facts = {
              live: lease !== "ended",
              leaseHeld: lease === "held",
              boundary,
              stopRequested,
              newerInput,
              held,
            };
            const expected = crossingVerdict(facts, crossing);
            const { request, result } = await cross(ledger.db, run, call);
            assert.equal(result.kind, expected, JSON.stringify(facts));
            const after = await runRow(ledger, run.runId);
            const effects = await count(ledger, "commitment_effects where run_id = $1", [run.runId]);
            assert.equal(effects, expected === "crossed" ? 1 : 0);
            if (expected !== "crossed") {
              assert.deepEqual(after, before);
            } else {
              assert.equal(
                boundaryOf({ committedAt: after.committed_at, replyAt: after.reply_at }),
                BOUNDARY[boundary][crossing],
              );
              const mine = crossing === "reply" || boundary === "buffering";
              assert.equal(after.committed_by, mine ? request.effectId : EARLIER);
              assert.equal(after.committed_step, mine ? 1 : 7);
              if (boundary !== "buffering") assert.deepEqual(after.committed_at, before.committed_at);
            }
            cells += 1;
          }
        }
        assert.equal(cells, 40);
      });
    }
  }

  it("no longer holds a crossing back when the time for a decision is over", async () => {
    const run = await aClaimedRun(ledger.db);
    const call = aCall();
    await respond(ledger.db, run, [call]);
    const held = "update runs set hold_seq = 2, hold_until = pawl_now() + $2::interval where id = $1";
    await sql(ledger, held, [run.runId, "1 minute"]);
    assert.equal((await cross(ledger.db, run, call)).result.kind, "hold");
    await sql(ledger, held, [run.runId, "-1 ms"]);
    assert.equal((await cross(ledger.db, run, call)).result.kind, "crossed");
  });

  it("asks a turn that takes in nothing more about neither newer input nor undecided messages", async () => {
    const run = await aClaimedRun(ledger.db);
    const call = aCall();
    await respond(ledger.db, run, [call]);
    await sql(
      ledger,
      `update runs set amend_seq = 9, hold_seq = 9, hold_until = pawl_now() + interval '1 minute',
         closed_to_interrupts = true where id = $1`,
      [run.runId],
    );
    assert.equal((await cross(ledger.db, run, call)).result.kind, "crossed");
  });

  it("nor one whose request has taken as long as it may take anything in", async () => {
    const run = await aClaimedRun(ledger.db);
    const call = aCall();
    await respond(ledger.db, run, [call]);
    const until = `update runs set amend_seq = 9, hold_seq = 9, hold_until = pawl_now() + interval '1 minute',
                          deadline_at = pawl_now() + $2::interval where id = $1`;
    await sql(ledger, until, [run.runId, "1 minute"]);
    assert.equal((await cross(ledger.db, run, call)).result.kind, "stale_input");
    await sql(ledger, until, [run.runId, "-1 ms"]);
    assert.equal((await cross(ledger.db, run, call)).result.kind, "crossed");
  });

  describe("and a stop", () => {
    for (const boundary of BOUNDARIES) {
      it(`is answered with ${STOP[boundary]} where the turn is ${boundary}`, async () => {
        const run = await aClaimedRun(ledger.db);
        const tool = aCall();
        const reply = aCall({ idx: 1, class: "reply", kind: "reply", target: null, args: { text: "done" } });
        await respond(ledger.db, run, [tool, reply]);
        if (boundary !== "buffering") await cross(ledger.db, run, tool);
        if (boundary === "committed_by_reply") await cross(ledger.db, run, reply, { receipt: { row: true } });
        const before = await runRow(ledger, run.runId);
        assert.equal(await stop(ledger.db, run.eventId), STOP[boundary]);
        const after = await runRow(ledger, run.runId);
        assert.equal(after.status, boundary === "buffering" ? "cancelled" : before.status);
        assert.equal(after.stop_requested_at !== null, boundary === "committed_by_tool");
        assert.equal(after.lease_owner, boundary === "buffering" ? null : "worker-1");
      });
    }

    it("frees lease and conversation of a run whose worker is dead", async () => {
      const run = await aClaimedRun(ledger.db);
      await lapse(ledger, run.runId);
      assert.equal(await stop(ledger.db, run.eventId), "cancelled");
      const after = await runRow(ledger, run.runId);
      assert.deepEqual([after.status, after.lease_owner, after.due_at], ["cancelled", null, null]);
      assert.equal(await count(ledger, "conversations where live_run = $1", [run.runId]), 0);
    });

    it("of a committed run whose worker is dead is carried out by the next one: reply, then the end", async () => {
      const run = await aClaimedRun(ledger.db);
      const [tool, reply] = [aCall(), aCall({ idx: 1, class: "reply", kind: "reply", target: null })];
      await respond(ledger.db, run, [tool, reply]);
      await cross(ledger.db, run, tool);
      await lapse(ledger, run.runId);
      assert.equal(await stop(ledger.db, run.eventId), "stopping");
      const claim = await claimRun(ledger.db, "worker-2", 10_000, 1);
      assert.equal(claim?.runId, run.runId);
      const next = { ...run, token: claim?.token ?? 0 };
      assert.equal((await cross(ledger.db, next, aCall({ target: "issue/2" }))).result.kind, "stopping");
      assert.equal((await cross(ledger.db, next, reply, { receipt: { row: true } })).result.kind, "crossed");
      assert.deepEqual(await end(ledger.db, next, { status: "cancelled" }), { kind: "finished", nextRunId: null });
    });

    it("of a turn that ended before says that nothing is left", async () => {
      const run = await aRunIn(ledger.db, "failed");
      assert.equal(await stop(ledger.db, run.eventId), "nothing_left");
    });
  });
});
