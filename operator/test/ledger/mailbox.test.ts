import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { PawlError } from "#rules/errors.ts";
import { claimRun } from "#ledger/leases.ts";
import { findRunKey, ingest, type Message } from "#ledger/mailbox.ts";
import { finishTurn } from "#ledger/turns.ts";
import { alone, conversationOf, count, end, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aClaimedRun, aMessage, aRun, cross, NAMESPACE_UID, respond } from "../support/world.ts";

type Applied = NonNullable<Message["applied"]>;

describe("the mailbox", () => {
  const ledger = useLedger();

  type EventRow = { seq: number; state: string; run_id: string | null };
  const event = async (id: string): Promise<EventRow> => {
    const [row] = await sql<EventRow>(ledger, "select seq, state, run_id from message_events where id = $1", [id]);
    assert.ok(row !== undefined);
    return row;
  };

  /** One more message of the conversation of `first`. */
  const more = (first: { message: Message }, changes: Partial<Message> = {}) =>
    ingest(ledger.db, aMessage(first.message.agentId, { conversationKey: first.message.conversationKey, ...changes }));

  const applied = (changes: Partial<Applied> = {}): Applied => ({
    namespaceUid: NAMESPACE_UID,
    key: `run-${uuidv7()}`,
    specHash: "spec-1",
    objectUid: "uid-1",
    objectName: "question",
    ...changes,
  });

  describe("takes a message in", () => {
    it("and opens a run with a request when the conversation is idle", async () => {
      const run = await aRun(ledger.db, { slice: { maxSteps: 3 } });
      assert.equal(run.kind, "new_run");
      assert.equal(run.seq, 1);
      const row = await runRow(ledger, run.runId);
      assert.deepEqual([row.status, row.live, row.version], ["queued", true, 1]);
      assert.deepEqual(await event(run.eventId), { seq: 1, state: "in_turn", run_id: run.runId });
      assert.equal(await count(ledger, "conversations where live_run = $1", [run.runId]), 1);
      assert.equal(await count(ledger, "runs where id = $1 and slice = '{\"maxSteps\": 3}'", [run.runId]), 1);
    });

    it("and folds it into a turn that has not begun, with a new version of what is shown", async () => {
      const run = await aRun(ledger.db);
      const folded = await more(run, { actor: { connector: "kubernetes", extId: "bob" } });
      assert.deepEqual({ ...folded, eventId: "" }, { kind: "folded", eventId: "", seq: 2, runId: run.runId });
      assert.equal((await runRow(ledger, run.runId)).version, 2);
      assert.equal(await count(ledger, "run_triggers where run_id = $1", [run.runId]), 2);
    });

    it("and queues it behind a turn in flight, which it does not touch", async () => {
      const run = await aClaimedRun(ledger.db);
      const before = await runRow(ledger, run.runId);
      const queued = await more(run);
      assert.equal(queued.kind, "queued");
      assert.deepEqual(await event((queued as { eventId: string }).eventId), {
        seq: 2,
        state: "pending",
        run_id: null,
      });
      assert.deepEqual(await runRow(ledger, run.runId), before);
    });

    it("once: the same sender's id again writes nothing", async () => {
      const run = await aRun(ledger.db);
      for (const text of [run.message.text, "other words"]) {
        assert.deepEqual(await ingest(ledger.db, { ...run.message, text }), { kind: "duplicate", specHash: null });
      }
      assert.equal(await count(ledger, "run_triggers where run_id = $1", [run.runId]), 1);
    });

    it("once: an applied key tells a replay from a key that was used for something else", async () => {
      const first = applied();
      const run = await aRun(ledger.db, { applied: first, extId: first.key });
      const again = await ingest(ledger.db, run.message);
      assert.deepEqual(again, { kind: "duplicate", specHash: "spec-1" });
      const other = aMessage(run.agent.id, { applied: applied({ key: first.key, specHash: "spec-2" }) });
      assert.deepEqual(await ingest(ledger.db, other), { kind: "duplicate", specHash: "spec-1" });
      assert.equal(await count(ledger, "message_events where ext_id = $1", [other.extId]), 0);
      assert.deepEqual(await findRunKey(ledger.db, NAMESPACE_UID, first.key), {
        specHash: "spec-1",
        eventId: run.eventId,
        objectUid: "uid-1",
        objectName: "question",
      });
      assert.equal(await findRunKey(ledger.db, "another namespace", first.key), null);
    });
  });

  describe("ends a turn", () => {
    it("with nothing to follow when nothing waits", async () => {
      const run = await aClaimedRun(ledger.db);
      await respond(ledger.db, run, []);
      assert.deepEqual(await end(ledger.db, run), { kind: "finished", nextRunId: null });
      assert.deepEqual(await event(run.eventId), { seq: 1, state: "accounted", run_id: run.runId });
      assert.equal(await count(ledger, "conversations where live_run is null and last_version = 4"), 1);
      const next = await more(run);
      assert.equal(next.kind, "new_run");
      assert.equal((await runRow(ledger, (next as { runId: string }).runId)).version, 5, "versions only move forward");
    });

    it("with one next turn that has all five messages that came meanwhile, in order", async () => {
      const run = await aClaimedRun(ledger.db);
      const waiting: string[] = [];
      for (let index = 0; index < 5; index += 1) waiting.push(((await more(run)) as { eventId: string }).eventId);
      await respond(ledger.db, run, []);
      const ended = await end(ledger.db, run);
      assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
      for (const [index, id] of waiting.entries()) {
        assert.deepEqual(await event(id), { seq: index + 2, state: "in_turn", run_id: ended.nextRunId });
      }
      assert.equal((await runRow(ledger, ended.nextRunId)).status, "queued");
      assert.equal(
        await count(ledger, "logical_requests q join runs r on r.request_id = q.id where r.id = $1", [ended.nextRunId]),
        1,
      );
    });

    it("and gives what the model was not shown to the next one, though it was folded into this", async () => {
      const run = await aRun(ledger.db);
      const unseen = (await more(run)) as { eventId: string };
      await alone(ledger, run.runId);
      const claim = await claimRun(ledger.db, "worker-1", 10_000, 1);
      assert.equal(claim?.runId, run.runId);
      const claimed = { ...run, token: claim?.token ?? 0 };
      await respond(ledger.db, claimed, [], { seenSeq: 1 });
      const ended = await end(ledger.db, claimed, { seenSeq: 1 });
      assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
      assert.deepEqual(await event(unseen.eventId), { seq: 2, state: "in_turn", run_id: ended.nextRunId });
      assert.equal((await event(run.eventId)).state, "accounted");
    });

    it("and accounts for what the last request contained even if no endpoint answered it", async () => {
      const run = await aClaimedRun(ledger.db);
      const ended = await end(ledger.db, run, { status: "failed", reason: "ModelRefused", message: "x".repeat(2000) });
      assert.deepEqual(ended, { kind: "finished", nextRunId: null });
      assert.equal((await event(run.eventId)).state, "accounted");
      assert.equal(await count(ledger, "runs where id = $1 and length(message) = 1024", [run.runId]), 1);
    });

    it("and closes every open call: the sent reply as real, an unsent one as withheld, tools as cancelled", async () => {
      for (const sent of [true, false]) {
        const run = await aClaimedRun(ledger.db);
        const tool = aCall({ class: "pure", kind: "tool.query", target: null });
        const reply = aCall({ idx: 1, class: "reply", kind: "reply", target: null, args: { text: "done" } });
        await respond(ledger.db, run, [tool, reply]);
        if (sent) await cross(ledger.db, run, reply, { receipt: { row: true } });
        await end(ledger.db, run);
        const calls = await sql<{ outcome: string; result: string }>(
          ledger,
          "select outcome, result from tool_calls where run_id = $1 order by idx",
          [run.runId],
        );
        assert.deepEqual(calls, [
          { outcome: "cancelled", result: "not run: the turn ended" },
          sent ? { outcome: "real", result: "delivered" } : { outcome: "withheld", result: "not run: the turn ended" },
        ]);
      }
    });

    it("once: the same words again are `already`, anybody else's are `ended`", async () => {
      const run = await aClaimedRun(ledger.db);
      const nonce = uuidv7();
      assert.equal((await end(ledger.db, run, { nonce })).kind, "finished");
      assert.equal((await end(ledger.db, run, { nonce })).kind, "already");
      assert.equal((await end(ledger.db, run)).kind, "ended");
    });

    it("for the holder of the lease only", async () => {
      const run = await aClaimedRun(ledger.db);
      assert.equal((await end(ledger.db, { ...run, token: run.token - 1 })).kind, "fenced");
      assert.equal((await end(ledger.db, { ...run, token: run.token + 1 })).kind, "fenced");
      assert.equal((await runRow(ledger, run.runId)).status, "running");
    });

    it("and says so loudly when it is asked about a run that does not exist", async () => {
      const run = await aClaimedRun(ledger.db);
      const nobody = finishTurn(ledger.db, {
        conversationId: await conversationOf(ledger, run.runId),
        runId: uuidv7(),
        token: 1,
        nonce: uuidv7(),
        status: "succeeded",
        seenSeq: 1,
        reason: null,
        message: null,
      });
      await assert.rejects(nobody, (error) => error instanceof PawlError && error.kind === "invariant");
    });
  });

  describe("takes a message back", () => {
    const decisions = (runId: string) =>
      sql<{ done: string; reason: string }>(
        ledger,
        "select done, reason from interrupts where run_id = $1 order by at",
        [runId],
      );

    it("by ending the turn that it opened, with one decision row and one stop message", async () => {
      const run = await aRun(ledger.db);
      assert.equal(await stop(ledger.db, run.eventId), "cancelled");
      assert.deepEqual(await event(run.eventId), { seq: 1, state: "withdrawn", run_id: null });
      assert.deepEqual(await decisions(run.runId), [{ done: "cancelled", reason: "NotStarted" }]);
      assert.equal(
        await count(
          ledger,
          "message_events where kind = 'stop' and state = 'applied' and seq = 2 and conversation_id = $1",
          [await conversationOf(ledger, run.runId)],
        ),
        1,
      );
      assert.equal(await stop(ledger.db, run.eventId), "already");
    });

    it("without ending a turn that others wait for", async () => {
      const run = await aRun(ledger.db);
      const other = (await more(run, { actor: { connector: "kubernetes", extId: "bob" } })) as { eventId: string };
      assert.equal(await stop(ledger.db, run.eventId), "withdrawn");
      assert.equal((await event(run.eventId)).state, "withdrawn");
      assert.deepEqual(await event(other.eventId), { seq: 2, state: "in_turn", run_id: run.runId });
      const row = await runRow(ledger, run.runId);
      assert.deepEqual([row.status, row.stop_requested_at], ["queued", null], "their turn is not asked to stop");
      assert.deepEqual(await decisions(run.runId), [{ done: "withdrawn", reason: "OtherTriggers" }]);
    });

    it("while it waits for its turn", async () => {
      const run = await aClaimedRun(ledger.db);
      const waiting = (await more(run)) as { eventId: string };
      assert.equal(await stop(ledger.db, waiting.eventId), "withdrawn");
      assert.deepEqual(await event(waiting.eventId), { seq: 2, state: "withdrawn", run_id: null });
      const { rows: told } = await ledger.db.pool.query(
        "select i.done, i.reason from interrupts i join message_events e on e.id = i.event_id where e.conversation_id = (select conversation_id from message_events where id = $1) order by e.seq",
        [waiting.eventId],
      );
      assert.deepEqual(told, [
        { done: "queued", reason: "Enqueue" },
        { done: "withdrawn", reason: "NotStarted" },
      ]);
      assert.equal((await runRow(ledger, run.runId)).status, "running");
      assert.deepEqual(await end(ledger.db, run), { kind: "finished", nextRunId: null });
    });

    it("and lets everybody else's message of the cancelled turn open the next one", async () => {
      const run = await aRun(ledger.db);
      const bob = (await more(run, { actor: { connector: "kubernetes", extId: "bob" } })) as { eventId: string };
      await alone(ledger, run.runId);
      await claimRun(ledger.db, "worker-1", 10_000, 1);
      assert.equal((await runRow(ledger, run.runId)).status, "running");
      assert.equal(await stop(ledger.db, run.eventId), "cancelled");
      const moved = await event(bob.eventId);
      assert.equal(moved.state, "in_turn");
      assert.notEqual(moved.run_id, run.runId);
      assert.equal((await runRow(ledger, moved.run_id ?? "")).status, "queued");
      assert.equal((await event(run.eventId)).state, "withdrawn");
    });

    it("only as far as it goes: past the boundary it asks the turn to stop, once, however often it is asked", async () => {
      const run = await aClaimedRun(ledger.db);
      const call = aCall();
      await respond(ledger.db, run, [call]);
      await cross(ledger.db, run, call);
      for (let times = 0; times < 2; times += 1) {
        assert.equal(await stop(ledger.db, run.eventId, "the same button"), "stopping");
      }
      assert.deepEqual(await decisions(run.runId), [{ done: "stopping", reason: "Committed" }]);
      const row = await runRow(ledger, run.runId);
      assert.ok(row.stop_requested_at !== null && row.live);
    });

    it("never after the answer: that is recorded and changes nothing", async () => {
      const run = await aClaimedRun(ledger.db);
      await end(ledger.db, run);
      const before = await runRow(ledger, run.runId);
      assert.equal(await stop(ledger.db, run.eventId), "nothing_left");
      assert.deepEqual(await runRow(ledger, run.runId), before);
      assert.deepEqual(await decisions(run.runId), [{ done: "nothing_left", reason: "AlreadyAnswered" }]);
    });
  });
});
