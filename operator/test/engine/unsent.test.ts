/** A write that crossed and was given up before its first byte crosses anew; the model is not asked about it. */
import assert from "node:assert/strict";
import type { ToolOutcome } from "#engine/ports.ts";
import { driveRun } from "#engine/drive.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { requestStop } from "#ledger/turns.ts";
import { CODE } from "#rules/limits.ts";
import { MAX_EFFECT_ATTEMPTS } from "#rules/journal.ts";
import { systemClock } from "#src/clock.ts";
import { asks, bench, done, drain, engineAgent, lost, says, type Script, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { withChanges } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";

const notSent: ToolOutcome = { kind: "failed", observation: "Nothing was sent. It was too late.", unsent: true };

describe("a write that was given up before its first byte", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  /** A clock that a tool can move on beyond `send_by`, as a pause of its worker does. */
  function paused() {
    let ahead = 0;
    return {
      clock: { ...systemClock, monotonic: () => systemClock.monotonic() + ahead },
      tooLate: (): ToolOutcome => {
        ahead += 1_000;
        return notSent;
      },
    };
  }

  async function start(agent: Record<string, unknown> = {}) {
    const { id } = await engineAgent(ledger.db, ["write", "close"], agent);
    const ingested = await ingest(ledger.db, aMessage(id, { text: "please" }));
    assert.ok("runId" in ingested);
    return ingested;
  }

  async function effects(runId: string) {
    const { rows } = await ledger.db.pool.query<{ id: string; state: string; unsent: boolean; attempt: number }>(
      "select id, state, unsent, attempt from commitment_effects where run_id = $1 and kind <> 'reply' order by dispatched_at",
      [runId],
    );
    return rows;
  }
  const shape = (rows: Awaited<ReturnType<typeof effects>>) =>
    rows.map(({ state, unsent, attempt }) => [state, unsent, attempt]);

  const calls: Script = [asks(["write", { to: "a" }]), says("written")];

  it("because its worker was away crosses again under an id of its own, and is written once", async () => {
    const { runId } = await start();
    const { clock, tooLate } = paused();
    const tool = writer([tooLate, done("created")]);
    const { deps, requests } = bench(ledger.db, calls, [tool], { deps: { clock } });
    await drain(deps);
    const rows = await effects(runId);
    assert.deepEqual(shape(rows), [
      ["failed", true, 1],
      ["confirmed", false, 1],
    ]);
    assert.deepEqual(
      tool.sent.map(({ context }) => context.effectId),
      rows.map(({ id }) => id),
    );
    assert.equal(requests.length, 2);
    assert.equal(requests[1]?.messages.at(-1)?.content, "created");
    const run = await readRun(ledger.db, runId);
    assert.deepEqual(
      run.effects.filter(({ kind }) => kind !== "reply").map(({ id }) => id),
      [rows[1]?.id],
    );
  });

  it("because its worker had to let go is written by the next one, without asking the model", async () => {
    const { runId } = await start();
    const first = writer([]);
    const shutdown = new AbortController();
    const db = withChanges(ledger.db, {
      transaction: async (body) => {
        const answer = await ledger.db.transaction(body);
        // Its lease is gone before the send.
        await ledger.db.pool.query("update runs set lease_token = lease_token + 1 where id = $1", [runId]);
        while (!logged.some((line) => line.message === "lease lost")) await ledger.db.ping();
        return answer;
      },
    });
    const settings = { renewMs: 15 };
    const { deps, logged } = bench(ledger.db, [calls[0] ?? says("")], [first], { settings });
    const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
    assert.equal(claim?.runId, runId);
    await driveRun({ ...deps, db }, claim, shutdown.signal);
    assert.deepEqual([first.sent.length, shape(await effects(runId))], [0, [["failed", true, 1]]]);
    await ledger.db.pool.query("update runs set lease_until = pawl_now() - interval '1 s' where id = $1", [runId]);
    const next = writer([done("created")]);
    const heir = bench(ledger.db, [says("written")], [next]);
    await drain(heir.deps);
    assert.deepEqual([next.sent.length, heir.requests.length], [1, 1]);
    assert.deepEqual(shape(await effects(runId)), [
      ["failed", true, 1],
      ["confirmed", false, 1],
    ]);
  });

  it("whose next sending is lost is unknown like any other, and was sent once", async () => {
    const { runId } = await start();
    const { clock, tooLate } = paused();
    const { deps, requests } = bench(ledger.db, calls, [writer([tooLate, lost()])], { deps: { clock } });
    await drain(deps);
    assert.match(String(requests[1]?.messages.at(-1)?.content), /^Outcome unknown: .* It was not sent again\./);
    assert.equal((await readRun(ledger.db, runId)).calls[0]?.outcome, "unknown");
  });

  it("whose next sending is refused has failed: an earlier one that never left makes nothing unknown", async () => {
    const { runId } = await start();
    const { clock, tooLate } = paused();
    const tool = writer([tooLate, { kind: "failed", observation: "HTTP 422" }]);
    const { deps, requests } = bench(ledger.db, calls, [tool], { deps: { clock } });
    await drain(deps);
    assert.deepEqual(shape(await effects(runId)), [
      ["failed", true, 1],
      ["failed", false, 1],
    ]);
    assert.equal(requests[1]?.messages.at(-1)?.content, "HTTP 422");
  });

  it("every time is told to the model after a bounded number of crossings", async () => {
    const { runId } = await start();
    const { clock, tooLate } = paused();
    const tool = writer([tooLate]);
    const { deps, requests } = bench(ledger.db, calls, [tool], { deps: { clock } });
    await drain(deps);
    assert.equal(tool.sent.length, MAX_EFFECT_ATTEMPTS);
    assert.match(String(requests[1]?.messages.at(-1)?.content), /^Nothing was sent\./);
    // What a person sees is one write, not five.
    assert.equal((await readRun(ledger.db, runId)).effects.filter(({ kind }) => kind !== "reply").length, 1);
  });

  it("because its place could not be reached is told at once: that is for the model to hear", async () => {
    await start();
    const tool = writer([{ kind: "failed", observation: "Nothing was sent. ECONNREFUSED", unsent: true }]);
    const { deps, requests } = bench(ledger.db, calls, [tool], { settings: { sendMs: 60_000 } });
    await drain(deps);
    assert.equal(tool.sent.length, 1);
    assert.match(String(requests[1]?.messages.at(-1)?.content), /ECONNREFUSED/);
  });

  it("is not written when a person has asked to stop meanwhile", async () => {
    const { runId, eventId } = await start();
    const { clock, tooLate } = paused();
    const tool = writer([
      async () => {
        const actor = { connector: "kubernetes", extId: "bob" };
        assert.equal(await requestStop(ledger.db, { eventId, extId: `stop-${eventId}`, actor, why: null }), "stopping");
        return tooLate();
      },
    ]);
    const { deps } = bench(ledger.db, calls, [tool], { deps: { clock } });
    await drain(deps);
    assert.equal(tool.sent.length, 1);
    const run = await readRun(ledger.db, runId);
    assert.deepEqual([run.status, run.calls[0]?.outcome], ["cancelled", "cancelled"]);
  });

  it("is not written when there is newer input: the model reads that first", async () => {
    const { runId } = await start();
    const { clock, tooLate } = paused();
    const tool = writer([
      async () => {
        await ledger.db.pool.query("update runs set amend_seq = 99 where id = $1", [runId]);
        return tooLate();
      },
    ]);
    const { deps, requests } = bench(
      ledger.db,
      [
        calls[0] ?? says(""),
        async () => {
          await ledger.db.pool.query("update runs set amend_seq = 0 where id = $1", [runId]);
          return says("ok");
        },
      ],
      [tool],
      { deps: { clock } },
    );
    await drain(deps);
    assert.equal(tool.sent.length, 1);
    assert.match(String(requests[1]?.messages.at(-1)?.content), /^Not run: there is newer input/);
  });

  it("holds for an undo, too: it is looked at anew, and takes back once", async () => {
    const compensate = { tool: "close", arguments: { to: "{to}" } };
    const { runId } = await start({ tools: { effects: [{ tool: "write", target: "note {to}", compensate }] } });
    const { clock, tooLate } = paused();
    const write = writer([done("created")]);
    const close = { ...writer([tooLate, done("closed")]), name: "close" };
    const undo = () => asks(["undo", { effect: write.sent[0]?.context.effectId }]);
    const { deps, requests } = bench(ledger.db, [calls[0] ?? says(""), undo, says("ok")], [write, close], {
      deps: { clock },
    });
    await drain(deps);
    assert.deepEqual(shape(await effects(runId)), [
      ["confirmed", false, 1],
      ["failed", true, 1],
      ["confirmed", false, 1],
    ]);
    assert.equal(requests[2]?.messages.at(-1)?.content, "closed");
  });
});
