/** Messages that met a turn at work, once somebody has said what they mean: everything that follows, in one commit. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { armFailpoint, disarmFailpoint } from "#src/failpoints.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun, releaseLease, renewLease } from "#ledger/leases.ts";
import { commitResults } from "#ledger/steps.ts";
import { STEERED_CODE } from "#rules/limits.ts";
import { aGatedRun, approvalOf, decide as decideApproval, park } from "../support/approvals.ts";
import { overlap } from "../support/interleave.ts";
import { alone, aRunIn, conversationOf, count, end, lapse, type RunRow, runRow, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aQuestion, ask } from "../support/questions.ts";
import { decideAs, undecidedOf } from "../support/steering.ts";
import { met } from "../support/verdicts.ts";
import { aCall, aClaimedRun, CODE, cross, respond } from "../support/world.ts";

const AMEND = { midTurn: "amend" } as const;
const PREEMPT = { midTurn: "preempt" } as const;
const READ = { class: "pure", kind: "tool.query", target: null, tool: "find" } as const;

describe("a decision about a message that met a turn", () => {
  const ledger = useLedger();

  afterEach(async () => {
    disarmFailpoint();
    assert.deepEqual(await checkInvariants(ledger.db), []);
  });

  type Row = RunRow & { amend_seq: number; hold_seq: number; min_code: number; interruptions: number } & Record<
      string,
      unknown
    >;
  const run = async (id: string): Promise<Row> => (await runRow(ledger, id)) as Row;
  const messages = async (conversation: string): Promise<string[]> =>
    (
      await sql<{ seq: string; state: string; done: string | null; reason: string | null }>(
        ledger,
        `select e.seq, e.state, i.done, i.reason from message_events e left join interrupts i on i.event_id = e.id
         where e.conversation_id = $1 order by e.seq`,
        [conversation],
      )
    ).map(({ seq, state, done, reason }) => [seq, state, done, reason].filter((word) => word !== null).join(" "));
  const effect = () => aCall({ target: `issue/${uuidv7()}` });
  const committedRun = async () => {
    const position = await aClaimedRun(ledger.db);
    const first = effect();
    await respond(ledger.db, position, [first]);
    await cross(ledger.db, position, first);
    return position;
  };

  describe("amend", () => {
    it("gives the running turn the message: what was thought without it may not cross, what knows it may", async () => {
      const position = await aClaimedRun(ledger.db);
      const more = await undecidedOf(ledger, position);
      const found = await decideAs(ledger.db, more, "refines", AMEND);
      assert.deepEqual(found, { kind: "amended", reason: "Amend", runId: position.runId, nextRunId: null });
      const row = await run(position.runId);
      assert.deepEqual([row.status, row.amend_seq, row.hold_seq, row.min_code], ["running", more.seq, 0, STEERED_CODE]);
      assert.equal(await count(ledger, "run_triggers where run_id = $1 and role = 'amend'", [position.runId]), 1);
      const call = effect();
      await respond(ledger.db, position, [call]);
      assert.equal((await cross(ledger.db, position, call)).result.kind, "stale_input");
      assert.equal((await cross(ledger.db, position, call, { seenSeq: more.seq })).result.kind, "crossed");
    });

    it("comes back with the worker's next commit and with its next renewal", async () => {
      const position = await aClaimedRun(ledger.db);
      const more = await undecidedOf(ledger, position);
      await decideAs(ledger.db, more, "refines", AMEND);
      const renewed = await renewLease(ledger.db, position.runId, position.token, 10_000);
      assert.deepEqual(renewed, { kind: "renewed", stop: false, amendSeq: more.seq });
      const answer = await respond(ledger.db, position, [aCall(READ)]);
      assert.deepEqual(answer, { kind: "committed", stop: false, amendSeq: more.seq });
    });

    it("wakes a turn that waits for an approval, and leaves one alone that a model asked for patience", async () => {
      const gated = await aGatedRun(ledger.db);
      await park(ledger.db, gated);
      await decideAs(ledger.db, await undecidedOf(ledger, gated), "refines", AMEND);
      assert.equal(await count(ledger, "runs where id = $1 and due_at <= pawl_now()", [gated.runId]), 1);
      const patient = await aClaimedRun(ledger.db);
      const wait = { reason: "RateLimited", message: "later", failed: true, delayMs: 3_600_000 };
      await releaseLease(ledger.db, { ...patient, ...wait });
      await decideAs(ledger.db, await undecidedOf(ledger, patient), "refines", AMEND);
      assert.equal(await count(ledger, "runs where id = $1 and due_at > pawl_now()", [patient.runId]), 1);
    });

    it("goes to the next turn when this one ends without having read it", async () => {
      const position = await aClaimedRun(ledger.db);
      const more = await undecidedOf(ledger, position);
      await decideAs(ledger.db, more, "refines", AMEND);
      const ended = await end(ledger.db, position);
      assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
      assert.equal(
        await count(ledger, "message_events where id = $1 and run_id = $2", [more.eventId, ended.nextRunId]),
        1,
      );
    });

    it("is open to the next message although one before it was queued (C60)", async () => {
      const position = await aClaimedRun(ledger.db);
      const first = await undecidedOf(ledger, position);
      const second = await undecidedOf(ledger, position);
      assert.equal((await decideAs(ledger.db, first, "independent", AMEND)).kind, "queued");
      assert.equal((await decideAs(ledger.db, second, "refines", AMEND)).kind, "amended");
      assert.deepEqual(await messages(first.conversationId), [
        "1 in_turn",
        "2 pending queued Independent",
        "3 in_turn amended Amend",
      ]);
    });
  });

  it("queues what somebody else writes under same_actor_only, says why, and leaves the requester's turn untouched (C61)", async () => {
    const position = await aClaimedRun(ledger.db);
    const others = await undecidedOf(ledger, position, { by: "bob" });
    const before = await run(position.runId);
    const found = await decideAs(ledger.db, others, "refines", PREEMPT);
    assert.deepEqual(found, { kind: "queued", reason: "NotEntitled", runId: position.runId, nextRunId: null });
    const after = await run(position.runId);
    const touched = { version: 0, changed_at: 0, hold_seq: 0, hold_until: 0 };
    assert.deepEqual({ ...after, ...touched }, { ...before, ...touched });
    assert.equal(
      (await decideAs(ledger.db, await undecidedOf(ledger, position, { by: "bob" }), "cancels")).kind,
      "queued",
    );
  });

  describe("preempt", () => {
    const restarted = async () => {
      const position = await aClaimedRun(ledger.db);
      const done = aCall(READ);
      await respond(ledger.db, position, [done]);
      await commitResults(ledger.db, { ...position, nonce: uuidv7() }, [{ id: done.id, outcome: "real", result: "7" }]);
      const calls = [aCall(READ), effect(), aCall({ class: "reply", kind: "reply", target: null, idx: 2 })];
      calls[1] = { ...(calls[1] as ReturnType<typeof aCall>), idx: 1 };
      await respond(ledger.db, position, calls, { ordinal: 2 });
      const before = await run(position.runId);
      const more = await undecidedOf(ledger, position);
      const found = await decideAs(ledger.db, more, "refines", PREEMPT);
      assert.ok(found.kind === "preempted" && found.nextRunId !== null);
      return { position, before, more, calls, next: found.nextRunId };
    };

    it("ends the turn for a successor that has its request, steps, journal, counters and messages", async () => {
      const { position, before, more, next } = await restarted();
      const old = await run(position.runId);
      const successor = await run(next);
      assert.deepEqual(
        [old.status, old.reason, old["superseded_by"], old.lease_owner, old.due_at],
        ["cancelled", "Superseded", next, null, null],
      );
      const same = [
        "request_id",
        "journal_scope",
        "model_calls",
        "tool_calls",
        "input_tokens",
        "output_tokens",
      ] as const;
      const more_of_it = [
        "spent_micros",
        "cost_micros",
        "charged_calls",
        "next_ordinal",
        "agent_generation",
        "deadline_at",
      ] as const;
      for (const column of [...same, ...more_of_it]) assert.deepEqual(successor[column], before[column], column);
      assert.deepEqual(successor["inherits"], [position.runId]);
      assert.deepEqual(
        [successor["inherits_run"], successor["inherits_through"], successor.status, successor.version],
        [position.runId, 2, "queued", old.version + 1],
      );
      assert.deepEqual([successor.interruptions, successor["trigger_count"], successor.min_code], [1, 2, STEERED_CODE]);
      assert.equal(
        await count(ledger, "logical_requests where id = $1 and interruptions = 1", [successor["request_id"]]),
        1,
      );
      const roles = await sql(
        ledger,
        `select t.role, t.delivered_ordinal, e.run_id = $1 as moved from run_triggers t join message_events e on e.id = t.event_id
         where t.run_id = $1 order by e.seq`,
        [next],
      );
      assert.deepEqual(roles, [
        { role: "inherited", delivered_ordinal: 1, moved: true },
        { role: "trigger", delivered_ordinal: null, moved: true },
      ]);
      assert.deepEqual(await messages(more.conversationId), ["1 in_turn", "2 in_turn preempted Buffering"]);
    });

    it("drops what the old turn still wanted to do; only its reads may yet be finished", async () => {
      const { position, calls } = await restarted();
      const rows = await sql<{ class: string; outcome: string | null }>(
        ledger,
        "select class, outcome from tool_calls where run_id = $1 and ordinal = 2 order by idx",
        [position.runId],
      );
      assert.deepEqual(rows, [
        { class: "pure", outcome: null },
        { class: "effectful", outcome: "cancelled" },
        { class: "reply", outcome: "withheld" },
      ]);
      const result = [{ id: calls[0]?.id ?? "", outcome: "real", result: "8" }] as const;
      assert.deepEqual(await commitResults(ledger.db, { ...position, nonce: uuidv7() }, result), { kind: "ended" });
      assert.equal((await cross(ledger.db, position, calls[1] as ReturnType<typeof aCall>)).result.kind, "ended");
    });

    it("takes back the approvals that the old turn had asked for", async () => {
      const gated = await aGatedRun(ledger.db);
      await park(ledger.db, gated);
      const approval = await approvalOf(ledger.db, gated);
      const found = await decideAs(ledger.db, await undecidedOf(ledger, gated), "refines", PREEMPT);
      assert.equal(found.kind, "preempted");
      assert.equal(await count(ledger, "approvals where id = $1 and state = 'withdrawn'", [approval.id]), 1);
      assert.equal((await decideApproval(ledger.db, gated, approval)).kind, "late");
    });

    it("waits for the person to finish: three corrections in a row are one restart", async () => {
      const position = await aClaimedRun(ledger.db);
      const corrections = [];
      for (let n = 0; n < 3; n += 1) corrections.push(await undecidedOf(ledger, position));
      const done = [];
      for (const correction of corrections) done.push((await decideAs(ledger.db, correction, "refines", PREEMPT)).kind);
      assert.deepEqual(done, ["preempted", "folded", "folded"]);
      const conversation = await conversationOf(ledger, position.runId);
      assert.equal(await count(ledger, "runs where conversation_id = $1", [conversation]), 2);
      const [live] = await sql<{ trigger_count: number; due: boolean; hold_seq: string }>(
        ledger,
        "select trigger_count, due_at > pawl_now() as due, hold_seq from runs where conversation_id = $1 and live",
        [conversation],
      );
      assert.deepEqual({ ...live, hold_seq: Number(live?.hold_seq) }, { trigger_count: 4, due: true, hold_seq: 0 });
    });

    it("has an end: who types without pause gets the answer of the turn that the bound closed (C62)", async () => {
      let position = await aClaimedRun(ledger.db);
      for (let n = 1; n <= 3; n += 1) {
        const found = await decideAs(ledger.db, await undecidedOf(ledger, position), "refines", PREEMPT);
        assert.ok(found.kind === "preempted" && found.nextRunId !== null);
        assert.equal((await run(found.nextRunId))["closed_to_interrupts"], n === 3);
        await sql(ledger, "update runs set due_at = pawl_now() where id = $1", [found.nextRunId]);
        await alone(ledger, found.nextRunId);
        const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
        assert.ok(claim?.runId === found.nextRunId);
        position = { ...position, ...claim };
      }
      const late = await undecidedOf(ledger, position);
      // It is not even waited for: nobody's word counts for this turn any more, but a stop.
      const reply = aCall({ class: "reply", kind: "reply", target: null });
      await respond(ledger.db, position, [reply]);
      assert.equal(
        (await cross(ledger.db, position, reply, { receipt: { delivered: "ledger" } })).result.kind,
        "crossed",
      );
      assert.deepEqual((await decideAs(ledger.db, late, "refines", PREEMPT)).kind, "queued");
      const ended = await end(ledger.db, position, { seenSeq: late.seq - 1 });
      assert.ok(ended.kind === "finished" && ended.nextRunId !== null, "the last message opens the next turn");
    });

    it("and amend both stop at the bound, with the reason; a stop is honoured even then", async () => {
      const position = await aClaimedRun(ledger.db);
      await sql(ledger, "update runs set deadline_at = pawl_now() - interval '1 second' where id = $1", [
        position.runId,
      ]);
      for (const policy of [AMEND, PREEMPT]) {
        const found = await decideAs(ledger.db, await undecidedOf(ledger, position), "refines", policy);
        assert.deepEqual([found.kind, "reason" in found && found.reason], ["queued", "Bound"]);
      }
      assert.equal((await decideAs(ledger.db, await undecidedOf(ledger, position), "cancels")).kind, "cancelled");
    });

    it("counts an answer that newer input kept back as an interruption, in the commit that keeps it back", async () => {
      const position = await aClaimedRun(ledger.db);
      const closed: unknown[] = [];
      for (let ordinal = 1; ordinal <= 2; ordinal += 1) {
        const reply = aCall({ class: "reply", kind: "reply", target: null });
        await respond(ledger.db, position, [reply], { ordinal });
        const withheld = [{ id: reply.id, outcome: "withheld", result: "there is newer input" }] as const;
        const commit = { ...position, nonce: uuidv7() };
        for (let look = 0; look < 2; look += 1) await commitResults(ledger.db, commit, withheld, 2); // its reply was lost
        closed.push((await run(position.runId))["closed_to_interrupts"]);
      }
      assert.deepEqual(closed, [false, true]);
      const row = await run(position.runId);
      assert.equal(row.interruptions, 2);
      assert.equal(await count(ledger, "logical_requests where id = $1 and interruptions = 2", [row["request_id"]]), 1);
      const kept = aCall({ class: "reply", kind: "reply", target: null });
      await respond(ledger.db, position, [kept], { ordinal: 3 });
      await commitResults(ledger.db, { ...position, nonce: uuidv7() }, [
        { id: kept.id, outcome: "withheld", result: "its source is not for here" },
      ]);
      assert.equal((await run(position.runId)).interruptions, 2, "only newer input interrupts");
    });

    it("does not count the time that the turn waited for a person", async () => {
      const gated = await aGatedRun(ledger.db);
      await park(ledger.db, gated);
      await sql(
        ledger,
        `update runs set parked_at = pawl_now() - interval '1 hour', deadline_at = pawl_now() - interval '50 minutes' where id = $1`,
        [gated.runId],
      );
      assert.equal((await decideAs(ledger.db, await undecidedOf(ledger, gated), "refines", AMEND)).kind, "amended");
    });
  });

  describe("a stop", () => {
    it("is decided first, and takes what its author said before with it; others keep their place", async () => {
      const position = await aClaimedRun(ledger.db);
      const pending = await undecidedOf(ledger, position);
      await decideAs(ledger.db, pending, "independent");
      await undecidedOf(ledger, position, { by: "bob" });
      await undecidedOf(ledger, position);
      const stop = await undecidedOf(ledger, position, { text: "stop" });
      const found = await decideAs(ledger.db, stop, "cancels", {}, "stop_word");
      assert.ok(found.kind === "cancelled" && found.nextRunId !== null);
      assert.deepEqual(await messages(stop.conversationId), [
        "1 withdrawn",
        "2 withdrawn queued Independent",
        "3 in_turn queued TurnEnded",
        "4 withdrawn withdrawn Stopped",
        "5 applied cancelled Buffering",
      ]);
      assert.equal((await run(position.runId)).reason, "Stopped");
      assert.equal((await run(found.nextRunId)).status, "queued");
    });

    it("settles although the worker of the turn is dead, and frees lease and slot (C64)", async () => {
      const position = await aClaimedRun(ledger.db);
      await respond(ledger.db, position, [aCall(READ)]);
      await lapse(ledger, position.runId);
      const stop = await undecidedOf(ledger, position);
      assert.equal((await decideAs(ledger.db, stop, "cancels")).kind, "cancelled");
      const row = await run(position.runId);
      assert.deepEqual([row.status, row.lease_owner, row.due_at], ["cancelled", null, null]);
    });

    it("is final: a late write of the worker is refused and brings nothing back (C65)", async () => {
      const position = await aClaimedRun(ledger.db);
      const read = aCall(READ);
      await respond(ledger.db, position, [read]);
      await decideAs(ledger.db, await undecidedOf(ledger, position), "cancels");
      const before = await run(position.runId);
      const result = [{ id: read.id, outcome: "real", result: "late" }] as const;
      assert.deepEqual(await commitResults(ledger.db, { ...position, nonce: uuidv7() }, result), { kind: "ended" });
      assert.deepEqual(await respond(ledger.db, position, [], { ordinal: 2 }), { kind: "ended" });
      assert.deepEqual(await renewLease(ledger.db, position.runId, position.token, 10_000), { kind: "ended" });
      assert.equal((await end(ledger.db, position)).kind, "ended");
      assert.deepEqual(await run(position.runId), before);
    });

    it("after something has crossed lets the turn tell what it did, and nothing else leave", async () => {
      const position = await committedRun();
      await undecidedOf(ledger, position);
      const stop = await undecidedOf(ledger, position);
      const found = await decideAs(ledger.db, stop, "cancels");
      assert.deepEqual([found.kind, "reason" in found && found.reason], ["stopping", "Committed"]);
      assert.deepEqual(await messages(stop.conversationId), [
        "1 in_turn",
        "2 withdrawn withdrawn Stopped",
        "3 applied stopping Committed",
      ]);
      const row = await run(position.runId);
      assert.ok(row.stop_requested_at !== null && row.hold_seq === 0);
      const next = effect();
      await sql(
        ledger,
        "update tool_calls set outcome = 'real', result = '', closed_at = pawl_now() where run_id = $1",
        [position.runId],
      );
      await respond(ledger.db, position, [next], { ordinal: 2 });
      assert.equal((await cross(ledger.db, position, next)).result.kind, "stopping");
    });

    it("of a turn that waits for an approval ends it, and its approval is late", async () => {
      const gated = await aGatedRun(ledger.db);
      await park(ledger.db, gated);
      const approval = await approvalOf(ledger.db, gated);
      assert.equal((await decideAs(ledger.db, await undecidedOf(ledger, gated), "cancels")).kind, "cancelled");
      assert.equal((await decideApproval(ledger.db, gated, approval)).kind, "late");
    });

    it("of a person with other rights is honoured; joining the turn is not", async () => {
      const position = await aClaimedRun(ledger.db);
      const joins = await undecidedOf(ledger, position, { by: "bob", grants: "more" });
      const open = { ...AMEND, who: "thread_scoped" } as const;
      const found = await decideAs(ledger.db, joins, "refines", open);
      assert.deepEqual([found.kind, "reason" in found && found.reason], ["queued", "DifferentGrants"]);
      const stops = await undecidedOf(ledger, position, { by: "carol", grants: "less" });
      assert.equal((await decideAs(ledger.db, stops, "cancels", open)).kind, "cancelled");
    });
  });

  it("comes in the order of the messages: one behind an undecided one waits for it", async () => {
    const position = await aClaimedRun(ledger.db);
    const first = await undecidedOf(ledger, position);
    const second = await undecidedOf(ledger, position);
    assert.deepEqual(await decideAs(ledger.db, second, "refines", AMEND), { kind: "not_yet" });
    assert.equal((await run(position.runId)).hold_seq, second.seq);
    assert.equal((await decideAs(ledger.db, first, "unsure", AMEND)).kind, "queued");
    assert.equal((await run(position.runId)).hold_seq, second.seq, "effects still wait for the second");
    assert.equal((await decideAs(ledger.db, second, "refines", AMEND)).kind, "amended");
    assert.equal((await run(position.runId)).hold_seq, 0);
  });

  it("asks the next turn to put right what this one has already changed, where the agent wants that", async () => {
    const position = await committedRun();
    const late = await undecidedOf(ledger, position);
    const found = await decideAs(ledger.db, late, "refines", { ...PREEMPT, afterCommit: "reconcile" });
    assert.deepEqual([found.kind, "reason" in found && found.reason], ["reconcile", "Committed"]);
    const request = (await run(position.runId))["request_id"];
    assert.equal(
      await count(ledger, "message_events where id = $1 and state = 'pending' and reconciles = $2", [
        late.eventId,
        request,
      ]),
      1,
    );
    await sql(
      ledger,
      "update commitment_effects set state = 'confirmed', receipt = '{}', settled_at = pawl_now() where run_id = $1",
      [position.runId],
    );
    const ended = await end(ledger.db, position);
    assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
    assert.equal(
      await count(
        ledger,
        "logical_requests q join runs r on r.request_id = q.id where r.id = $1 and q.reconciles = $2",
        [ended.nextRunId, request],
      ),
      1,
    );
  });

  it("opens a turn for a message whose turn was ended by code that knew nothing of such messages", async () => {
    const position = await aClaimedRun(ledger.db);
    const left = await undecidedOf(ledger, position);
    await sql(ledger, "update message_events set state = 'observed' where id = $1", [left.eventId]);
    await end(ledger.db, position);
    await sql(ledger, "update message_events set state = 'undecided' where id = $1", [left.eventId]);
    const found = await decideAs(ledger.db, left, "refines", AMEND);
    assert.ok(found.kind === "new_run" && found.nextRunId !== null);
    assert.equal((await run(found.nextRunId)).status, "queued");
  });

  it("is made once: the same one again, a lost reply and a later opinion change nothing", async () => {
    const position = await aClaimedRun(ledger.db);
    const more = await undecidedOf(ledger, position);
    armFailpoint("after:decide_event:1:swallow");
    const swallowed = await decideAs(ledger.db, more, "refines", PREEMPT);
    assert.deepEqual(swallowed, { kind: "already", done: "preempted", reason: "Buffering" });
    assert.deepEqual(await decideAs(ledger.db, more, "cancels"), swallowed);
    assert.equal(await count(ledger, "runs where conversation_id = $1", [more.conversationId]), 2);
  });

  it("looks again when the conversation changed while it waited for it", async () => {
    const position = await aClaimedRun(ledger.db);
    const first = await undecidedOf(ledger, position);
    const second = await undecidedOf(ledger, position);
    // Its snapshot knows the first one as undecided; the row it waited for does not.
    const [, found] = await overlap({ db: ledger.db, body: (tx) => decideAs(tx, first, "refines", PREEMPT) }, () =>
      decideAs(ledger.db, second, "refines", PREEMPT),
    );
    assert.equal(found.kind, "folded");
    assert.ok(met.get("decide_event")?.has("again") === true);
  });

  it("answers a question that was asked while the message waited", async () => {
    const position = await aRunIn(ledger.db, "running");
    const call = aQuestion();
    await respond(ledger.db, position, [call]);
    const more = await undecidedOf(ledger, position, { by: "bob" });
    assert.equal(await ask(ledger.db, { ...position, call }), "hold", "it is not asked while somebody is understood");
    await sql(ledger, "update runs set hold_until = pawl_now() where id = $1", [position.runId]);
    assert.equal(await ask(ledger.db, { ...position, call }), "parked");
    const found = await decideAs(ledger.db, more, "independent");
    assert.deepEqual([found.kind, "reason" in found && found.reason], ["answered", "Waiting"]);
    const row = await run(position.runId);
    assert.deepEqual([row.status, row["parked_at"], row["hold_seq"]], ["running", null, 0]);
    const [closed] = await sql(ledger, "select outcome, result from tool_calls where id = $1", [call.id]);
    assert.equal(closed?.["outcome"], "real");
    assert.match(String(closed?.["result"]), /^\[answer of bob\] /);
    assert.equal(
      await count(ledger, "runs r join actors a on a.id = r.unblocked_by where r.id = $1 and a.ext_id = 'bob'", [
        position.runId,
      ]),
      1,
    );
  });
});
