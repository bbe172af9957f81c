import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { claimRun, releaseLease } from "#ledger/leases.ts";
import { MAX_REPEATS, redispatchEffect, type Settlement, settleEffect } from "#ledger/effects.ts";
import { readRun } from "#ledger/reads.ts";
import type { CallRow } from "#ledger/steps.ts";
import { alone, count, end, lapse, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aClaimedRun, cross, respond } from "../support/world.ts";

type Run = { runId: string; token: number };

describe("an effect", () => {
  const ledger = useLedger();

  /** A claimed run whose first response has these calls. */
  async function withCalls(...changes: Partial<CallRow>[]) {
    const run = await aClaimedRun(ledger.db);
    const calls = changes.map((change, idx) => aCall({ idx, target: "issue/1", ...change }));
    await respond(ledger.db, run, calls);
    return { run, calls: calls as [CallRow, ...CallRow[]] };
  }

  const settle = (request: { effectId: string; nonce: string }, changes: Partial<Settlement> = {}) =>
    settleEffect(ledger.db, {
      effectId: request.effectId,
      nonce: request.nonce,
      state: "confirmed",
      receipt: { status: 201 },
      observation: "201 created",
      ...changes,
    });

  const unknown = { state: "unknown", receipt: null, observation: "no answer" } as const;
  const failed = { state: "failed", receipt: null, observation: "connection refused" } as const;

  async function crossedAndConfirmed(run: Run, call: CallRow, observation = "201 created") {
    const { request, result } = await cross(ledger.db, run, call);
    assert.equal(result.kind, "crossed");
    assert.equal(await settle(request, { observation }), "settled");
    return request;
  }

  const effect = async (id: string) => {
    const [row] = await sql(ledger, "select * from commitment_effects where id = $1", [id]);
    assert.ok(row !== undefined);
    return row;
  };

  /** Its settle time has passed. */
  const overdue = (id: string) =>
    sql(
      ledger,
      `update commitment_effects set send_by = pawl_now() - interval '2 s', settle_at = pawl_now() - interval '1 s' where id = $1`,
      [id],
    );

  describe("crosses", () => {
    it("once, before its first byte, and stamps the boundary with its id and step", async () => {
      const { run, calls } = await withCalls({});
      const { request, result } = await cross(ledger.db, run, calls[0]);
      assert.deepEqual(result, { kind: "crossed" });
      const row = await effect(request.effectId);
      assert.deepEqual(
        [row["state"], row["attempt"], row["nonce"], Number(row["lease_token"]), row["journal_scope"]],
        ["dispatched", 1, request.nonce, run.token, run.runId],
      );
      assert.ok(row["send_by"] < row["settle_at"]);
      const after = await runRow(ledger, run.runId);
      assert.deepEqual([after.committed_by, after.committed_step, after.reply_at], [request.effectId, 1, null]);
      assert.ok(after.committed_at !== null);
    });

    it("as already, under its own id, in whatever state it is now", async () => {
      for (const change of [null, {}, unknown]) {
        const { run, calls } = await withCalls({});
        const { request } = await cross(ledger.db, run, calls[0]);
        if (change !== null) await settle(request, change);
        assert.deepEqual((await cross(ledger.db, run, calls[0], request)).result, { kind: "already" });
        assert.equal(await count(ledger, "commitment_effects where run_id = $1", [run.runId]), 1);
      }
    });

    it("as already even when a stop, newer input or a hold came after it", async () => {
      const { run, calls } = await withCalls({});
      const { request } = await cross(ledger.db, run, calls[0]);
      for (const later of [
        "amend_seq = 9",
        "amend_seq = 0, hold_seq = 9, hold_until = pawl_now() + interval '1 minute'",
        "stop_requested_at = pawl_now()",
      ]) {
        await sql(ledger, `update runs set ${later} where id = $1`, [run.runId]);
        assert.deepEqual((await cross(ledger.db, run, calls[0], request)).result, { kind: "already" }, later);
      }
      assert.equal((await cross(ledger.db, run, aCall())).result.kind, "stopping");
    });

    it("not twice for the same call: thirty identical writes are one effect and one observation", async () => {
      const same = Array.from({ length: 30 }, () => ({ argsHash: "the same" }));
      const { run, calls } = await withCalls(...same);
      const first = await crossedAndConfirmed(run, calls[0], "created 7");
      for (const call of calls.slice(1)) {
        assert.deepEqual((await cross(ledger.db, run, call)).result, {
          kind: "replayed",
          effectId: first.effectId,
          observation: "created 7",
        });
      }
      assert.equal(await count(ledger, "commitment_effects where run_id = $1", [run.runId]), 1);
    });

    it("not while another one is under way on its target, reworded or not", async () => {
      const { run, calls } = await withCalls({ argsHash: "A" }, { argsHash: "A" }, { argsHash: "B" });
      const { request } = await cross(ledger.db, run, calls[0], { settleMs: 60_000 });
      for (const call of calls.slice(1)) {
        const { result } = await cross(ledger.db, run, call);
        assert.ok(result.kind === "busy" && result.effectId === request.effectId);
        assert.ok(result.waitMs > 50_000 && result.waitMs <= 60_000);
      }
    });

    it("not after another one on its target was lost, reworded or not", async () => {
      const { run, calls } = await withCalls({ argsHash: "A" }, { argsHash: "A" }, { argsHash: "B" });
      const { request } = await cross(ledger.db, run, calls[0]);
      await settle(request, unknown);
      for (const call of calls.slice(1)) {
        assert.deepEqual((await cross(ledger.db, run, call)).result, { kind: "ambiguous", effectId: request.effectId });
      }
    });

    it("anew when its own sender says that no byte left, as an effect of its own; not after any other failure", async () => {
      const { run, calls } = await withCalls({});
      const { request } = await cross(ledger.db, run, calls[0]);
      assert.equal(await settle(request, { ...failed, unsent: true }), "settled");
      const again = await cross(ledger.db, run, calls[0]);
      assert.equal(again.result.kind, "crossed");
      await settle(again.request, failed);
      assert.equal((await cross(ledger.db, run, calls[0])).result.kind, "ambiguous");
      const { effects } = await readRun(ledger.db, run.runId);
      assert.deepEqual(
        effects.map(({ id, unsent }) => [id, unsent]),
        [[again.request.effectId, 0]],
      );
      const after = await runRow(ledger, run.runId);
      assert.equal(after.committed_by, request.effectId, "the boundary was crossed when the first row was written");
    });

    it("beside others on other targets, and after one that provably failed", async () => {
      const { run, calls } = await withCalls(
        { argsHash: "A" },
        { argsHash: "B", target: "issue/2" },
        { argsHash: "A" },
      );
      const { request } = await cross(ledger.db, run, calls[0]);
      assert.equal((await cross(ledger.db, run, calls[1] ?? calls[0])).result.kind, "crossed");
      await settle(request, failed);
      assert.equal((await cross(ledger.db, run, calls[2] ?? calls[0])).result.kind, "crossed");
    });

    it("again as a new one when another changed its target in between: on, off, on, off", async () => {
      const hashes = ["on", "off", "on", "off", "on"];
      const { run, calls } = await withCalls(...hashes.map((argsHash) => ({ argsHash })));
      for (const call of calls) await crossedAndConfirmed(run, call);
      const rows = await sql<{ args_hash: string; repeat: number }>(
        ledger,
        "select args_hash, repeat from commitment_effects where run_id = $1 order by settled_at",
        [run.runId],
      );
      assert.deepEqual(
        rows,
        [0, 0, 1, 1, 2].map((repeat, index) => ({ args_hash: hashes[index], repeat })),
      );
    });

    it("not for ever: the same call after its hundredth repeat is a loop", async () => {
      const { run, calls } = await withCalls({ argsHash: "on" }, { argsHash: "off" }, { argsHash: "on" });
      const first = await crossedAndConfirmed(run, calls[0]);
      await crossedAndConfirmed(run, calls[1] ?? calls[0]);
      await sql(ledger, "update commitment_effects set repeat = $2 where id = $1", [first.effectId, MAX_REPEATS]);
      // Repeat 0 is free again in this table, so the call would cross: put another row there, older than the first.
      await sql(
        ledger,
        `insert into commitment_effects select (jsonb_populate_record(e, jsonb_build_object('id', $2::text, 'part', 9, 'repeat', 0))).*
         from commitment_effects e where id = $1`,
        [first.effectId, uuidv7()],
      );
      await assert.rejects(cross(ledger.db, run, calls[2] ?? calls[0]), { reason: "EffectLoop" });
    });

    it("not after the reply, but the reply itself is told as what it was", async () => {
      const { run, calls } = await withCalls({}, { class: "reply", kind: "reply", target: null });
      const reply = calls[1] ?? calls[0];
      const first = await cross(ledger.db, run, reply, { receipt: { row: true } });
      assert.deepEqual(first.result, { kind: "crossed" });
      assert.deepEqual((await cross(ledger.db, run, reply, first.request)).result, { kind: "already" });
      assert.deepEqual((await cross(ledger.db, run, reply, { receipt: { row: true } })).result, { kind: "reply_sent" });
      assert.deepEqual((await cross(ledger.db, run, calls[0])).result, { kind: "reply_sent" });
      const row = await effect(first.request.effectId);
      assert.deepEqual([row["state"], row["receipt"]], ["confirmed", { row: true }]);
    });
  });

  describe("is settled", () => {
    it("by its sender, without a lease: the outcome is a fact", async () => {
      const { run, calls } = await withCalls({});
      const { request } = await cross(ledger.db, run, calls[0]);
      await lapse(ledger, run.runId);
      await claimRun(ledger.db, "worker-2", 10_000, 1);
      assert.equal(await settle(request), "settled");
      const row = await effect(request.effectId);
      assert.deepEqual(
        [row["state"], row["observation"], row["receipt"]],
        ["confirmed", "201 created", { status: 201 }],
      );
    });

    it("once: the same outcome again is `already`, another one is a conflict and changes nothing", async () => {
      const { run, calls } = await withCalls({});
      const { request } = await cross(ledger.db, run, calls[0]);
      await settle(request);
      const before = await effect(request.effectId);
      assert.equal(await settle(request, { observation: "other words" }), "already");
      assert.equal(await settle(request, failed), "conflict");
      assert.equal(await settle(request, unknown), "conflict");
      assert.deepEqual(await effect(request.effectId), before);
    });

    it("from unknown to what was found later, by whoever found it", async () => {
      const { run, calls } = await withCalls({});
      const { request } = await cross(ledger.db, run, calls[0]);
      assert.equal(await settle(request, unknown), "settled");
      assert.equal(await settle(request, unknown), "already");
      assert.equal(await settle(request, { resolvedBy: "alice" }), "settled");
      assert.equal((await effect(request.effectId))["resolved_by"], "alice");
    });

    it("by nobody who names another attempt", async () => {
      const { run, calls } = await withCalls({});
      const { request } = await cross(ledger.db, run, calls[0]);
      assert.equal(await settle({ ...request, nonce: uuidv7() }), "conflict");
      assert.equal((await effect(request.effectId))["state"], "dispatched");
    });
  });

  describe("is sent again", () => {
    const again = (
      run: Run,
      effectId: string,
      changes: { nonce?: string; absent?: boolean; maxAttempts?: number } = {},
    ) =>
      redispatchEffect(ledger.db, {
        runId: run.runId,
        token: run.token,
        effectId,
        nonce: changes.nonce ?? uuidv7(),
        sendMs: 10_000,
        settleMs: 20_000,
        maxAttempts: changes.maxAttempts ?? 5,
        ...(changes.absent === undefined ? {} : { absent: changes.absent }),
      });

    async function lost(keyed = true) {
      const { run, calls } = await withCalls({});
      const { request } = await cross(ledger.db, run, calls[0], { keyed });
      await overdue(request.effectId);
      return { run, request };
    }

    it("under its key after its settle time, whether its outcome was given up or never told", async () => {
      for (const given of [false, true]) {
        const { run, request } = await lost();
        if (given) await settle(request, unknown);
        const nonce = uuidv7();
        assert.deepEqual(await again(run, request.effectId, { nonce }), { kind: "crossed", attempt: 2 });
        const row = await effect(request.effectId);
        assert.deepEqual(
          [row["state"], row["attempt"], row["nonce"], row["settled_at"], row["observation"]],
          ["dispatched", 2, nonce, null, null],
        );
        assert.equal(await settle(request), "conflict", "the first sender's news is of another attempt");
        assert.equal(await settle({ ...request, nonce }), "settled");
      }
    });

    it("once: the same words again are `already`", async () => {
      const { run, request } = await lost();
      const nonce = uuidv7();
      await again(run, request.effectId, { nonce });
      assert.deepEqual(await again(run, request.effectId, { nonce }), { kind: "already", attempt: 2 });
      assert.equal((await effect(request.effectId))["attempt"], 2);
    });

    it("not before its settle time: its sender may only be asleep", async () => {
      const { run, calls } = await withCalls({});
      const { request } = await cross(ledger.db, run, calls[0], { keyed: true, settleMs: 60_000 });
      const answer = await again(run, request.effectId);
      assert.ok(answer.kind === "too_early" && answer.waitMs > 50_000 && answer.waitMs <= 60_000);
    });

    it("not without a key, not once it is final, not more often than allowed, not in a stopped turn", async () => {
      const unkeyed = await lost(false);
      assert.deepEqual(await again(unkeyed.run, unkeyed.request.effectId), { kind: "refused" });
      for (const outcome of [{}, failed]) {
        const final = await lost();
        await settle(final.request, outcome);
        assert.deepEqual(await again(final.run, final.request.effectId), { kind: "refused" });
      }
      const tired = await lost();
      assert.deepEqual(await again(tired.run, tired.request.effectId, { maxAttempts: 1 }), { kind: "refused" });
      const stopped = await lost();
      assert.equal(await stop(ledger.db, stopped.run.eventId), "stopping");
      assert.deepEqual(await again(stopped.run, stopped.request.effectId), { kind: "refused" });
    });

    it("without a key where a look proved that nothing is there", async () => {
      const { run, request } = await lost(false);
      assert.deepEqual(await again(run, request.effectId, { absent: true }), { kind: "crossed", attempt: 2 });
      assert.equal((await again(run, request.effectId, { absent: true })).kind, "too_early");
    });

    it("by the holder of the lease only, of a run that is alive", async () => {
      const { run, request } = await lost();
      assert.deepEqual(await again({ ...run, token: run.token + 1 }, request.effectId), { kind: "fenced" });
      await releaseLease(ledger.db, { ...run, delayMs: 0, reason: null, message: null, failed: false });
      assert.deepEqual(await again(run, request.effectId), { kind: "fenced" });
      await alone(ledger, run.runId);
      const claim = await claimRun(ledger.db, "worker-2", 10_000, 1);
      const next = { ...run, token: claim?.token ?? 0 };
      await end(ledger.db, next, { status: "failed" });
      assert.deepEqual(await again(next, request.effectId), { kind: "ended" });
    });
  });

  it("is undone once: a second compensation of it is occupied, in any run, unless the first failed", async () => {
    const { run, calls } = await withCalls({}, { target: "issue/1" }, { target: "issue/1" });
    const write = await crossedAndConfirmed(run, calls[0]);
    const undo = { kind: "compensation", compensates: write.effectId } as const;
    const [, first, second] = calls as [CallRow, CallRow, CallRow];
    const crossed = await cross(ledger.db, run, first, undo);
    assert.equal(crossed.result.kind, "crossed");
    assert.equal(await settle(crossed.request, failed), "settled");
    const again = await cross(ledger.db, run, second, undo);
    assert.equal(again.result.kind, "crossed");
    assert.equal(await settle(again.request), "settled");
    assert.equal((await effect(again.request.effectId))["compensates"], write.effectId);
    const other = await withCalls({ target: "issue/1" });
    assert.equal((await cross(ledger.db, other.run, other.calls[0], undo)).result.kind, "ambiguous");
  });
});
