/** A turn that asks people something and waits, and every answer that somebody can get who answers. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { readEmissions } from "#ledger/emissions.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun, nextDue } from "#ledger/leases.ts";
import { answerQuestion } from "#ledger/questions.ts";
import { readStory } from "#ledger/story.ts";
import { commitResults } from "#ledger/steps.ts";
import { CODE } from "#rules/limits.ts";
import { aGatedRun, decide, park } from "../support/approvals.ts";
import { overlap } from "../support/interleave.ts";
import { alone, count, end, lapse, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { anAskingRun, answer, answers, aQuestion, ask, asking, type Asking, questionOf } from "../support/questions.ts";
import { met, RecordingDatabase } from "../support/verdicts.ts";
import { aCall, NAMESPACE_UID, respond, cross } from "../support/world.ts";

describe("a turn that waits for an answer", () => {
  const ledger = useLedger();
  let other: RecordingDatabase;
  before(() => {
    other = new RecordingDatabase({ url: ledger.url, name: "other" });
  });
  after(() => other.close());
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const asked = async (changes: Parameters<typeof ask>[2] = {}) => {
    const run = await anAskingRun(ledger.db);
    assert.equal(await ask(ledger.db, run, changes), "parked");
    return run;
  };
  const reclaim = async (run: Asking) => {
    const claim = await claimRun(ledger.db, "worker-2", 10_000, CODE);
    assert.equal(claim?.runId, run.runId);
    run.token = claim.token;
  };
  const overdue = (run: Asking) =>
    sql(
      ledger,
      `with q as (update questions set asked_at = pawl_now() - interval '2 hours', expires_at = pawl_now() - interval '1 hour' where run_id = $1)
       update runs set due_at = pawl_now() - interval '1 hour' where id = $1`,
      [run.runId],
    );
  const callOf = async (run: Asking) =>
    (await sql(ledger, "select outcome, result from tool_calls where id = $1", [run.call.id]))[0];
  const requestOf = async (run: { runId: string }) =>
    (await sql<{ id: string }>(ledger, "select request_id as id from runs where id = $1", [run.runId]))[0]?.id ?? "";
  const decisionsOf = (run: Asking) =>
    sql(
      ledger,
      `select d.actor, d.done, d.over, d.text from question_decisions d join questions q on q.id = d.question_id
       where q.run_id = $1 order by d.at`,
      [run.runId],
    );
  const set = (run: Asking, columns: string) => sql(ledger, `update runs set ${columns} where id = $1`, [run.runId]);

  describe("gives the lease back", () => {
    it("and is due when the question expires, with a word that names it, and nobody claims it before", async () => {
      const run = await asked();
      const row = await runRow(ledger, run.runId);
      const question = await questionOf(ledger.db, run.runId);
      assert.deepEqual([row.status, row.reason, row.lease_owner], ["awaiting_input", "Question", null]);
      assert.equal((row as unknown as { message: string }).message, `a person must answer request ${question.id}`);
      assert.equal(row.due_at?.getTime(), question.expiresAt.getTime());
      assert.equal(await claimRun(ledger.db, "worker-2", 10_000, CODE), null);
      const next = await nextDue(ledger.db, CODE);
      assert.ok(next !== null && next > 0 && next <= 60_000, "but somebody looks when its time is over");
    });

    it("with its question as a thing to be said, once, by whoever asked", async () => {
      const run = await anAskingRun(ledger.db);
      const request = await requestOf(run);
      assert.deepEqual(await asking(ledger.db, run), { kind: "parked", reserved: true });
      const [said, ...more] = await readEmissions(ledger.db, request);
      assert.deepEqual([said?.kind, said?.sequence, said?.text, more], ["question", 1, "Which colour?", []]);
      await set(run, "due_at = pawl_now()");
      await reclaim(run);
      assert.deepEqual(await asking(ledger.db, run), { kind: "parked", reserved: false });
      assert.equal(await count(ledger, "questions where run_id = $1", [run.runId]), 1);
      const { due_at: due } = await runRow(ledger, run.runId);
      assert.equal(
        due?.getTime(),
        (await questionOf(ledger.db, run.runId)).expiresAt.getTime(),
        "nor does it wait longer",
      );
    });

    it("not to somebody whose lease lapsed, nor for a turn that ended", async () => {
      const lapsed = await anAskingRun(ledger.db);
      await lapse(ledger, lapsed.runId);
      assert.equal(await ask(ledger.db, lapsed), "fenced");
      const ended = await anAskingRun(ledger.db);
      await end(ledger.db, ended);
      assert.equal(await ask(ledger.db, ended), "ended");
      assert.equal(await count(ledger, "questions where run_id = any ($1)", [[lapsed.runId, ended.runId]]), 0);
    });

    it("not when somebody has said something that the question knows nothing of, or is being understood", async () => {
      const run = await anAskingRun(ledger.db);
      await set(run, "amend_seq = 2");
      assert.equal(await ask(ledger.db, run), "newer_input");
      assert.equal(await ask(ledger.db, run, { seenSeq: 2, nonce: uuidv7() }), "parked", "it knows it by now");
      const held = await anAskingRun(ledger.db);
      await set(held, "hold_seq = 2, hold_until = pawl_now() + interval '1 minute'");
      assert.equal(await ask(ledger.db, held), "hold");
      await set(held, "hold_until = pawl_now()");
      assert.equal(await ask(ledger.db, held), "parked", "nobody waits for a classifier for ever");
      const closed = await anAskingRun(ledger.db);
      await set(closed, "amend_seq = 2, closed_to_interrupts = true");
      assert.equal(await ask(ledger.db, closed), "parked", "a turn that takes nothing in asks all the same");
    });

    it("not when somebody wants it to stop", async () => {
      const run = await anAskingRun(ledger.db);
      await set(run, "stop_requested_at = pawl_now()");
      assert.equal(await ask(ledger.db, run), "stopping");
      assert.equal((await runRow(ledger, run.runId)).lease_owner, "worker-1");
    });
  });

  describe("takes an answer", () => {
    it("from anybody: it is the result of the call, the run is due at once, and who answered is kept", async () => {
      const run = await asked();
      const { version } = await runRow(ledger, run.runId);
      assert.deepEqual(await answer(ledger.db, run), { kind: "answered", runId: run.runId, already: false });
      const row = await runRow(ledger, run.runId);
      assert.deepEqual([row.status, row.reason, row.version], ["running", null, version + 1]);
      assert.deepEqual(await callOf(run), { outcome: "real", result: "[answer of bob] blue" });
      const [kept] = await sql(
        ledger,
        `select w.ext_id as actor, t.role, e.kind, e.state, e.seq, c.head_seq from runs r join actors w on w.id = r.unblocked_by
         join run_triggers t on t.run_id = r.id and t.role = 'answer' join message_events e on e.id = t.event_id
         join conversations c on c.id = r.conversation_id where r.id = $1`,
        [run.runId],
      );
      assert.deepEqual(kept, { actor: "bob", role: "answer", kind: "decision", state: "in_turn", seq: 2, head_seq: 2 });
      assert.equal((await questionOf(ledger.db, run.runId)).state, "answered");
      await reclaim(run);
    });

    it("which gives its author nothing: the requester and whoever may interrupt stay who they were", async () => {
      const run = await asked();
      const who = () => sql(ledger, "select requester, addressed, grants from runs where id = $1", [run.runId]);
      const before = await who();
      await answer(ledger.db, run, { actor: { connector: "kubernetes", extId: "mallory" } });
      assert.deepEqual(await who(), before);
    });

    it("and a name that looks like something else stays a name", async () => {
      const run = await asked();
      await answer(ledger.db, run, { actor: { connector: "kubernetes", extId: "x] y\n[user z" } });
      assert.equal((await callOf(run))?.["result"], "[answer of x  y  user z] blue");
    });

    it("the first only: who comes later hears that, and by whom it was answered", async () => {
      const run = await asked();
      await answer(ledger.db, run);
      const late = await answer(ledger.db, run, { actor: { connector: "kubernetes", extId: "carol" }, text: "red" });
      assert.deepEqual(late, { kind: "late", over: "AlreadyAnswered", by: "bob", already: false });
      assert.equal((await callOf(run))?.["result"], "[answer of bob] blue");
      assert.deepEqual(await decisionsOf(run), [
        { actor: "bob", done: "answered", over: null, text: "blue" },
        { actor: "carol", done: "late", over: "AlreadyAnswered", text: "red" },
      ]);
    });

    it("late once its time was over and noticed, or its turn ended", async () => {
      const run = await asked();
      await overdue(run);
      await reclaim(run);
      assert.deepEqual(await answer(ledger.db, run), { kind: "late", over: "Expired", by: null, already: false });
      const stopped = await asked();
      assert.equal(await stop(ledger.db, stopped.eventId), "cancelled");
      const late = await answer(ledger.db, stopped);
      assert.deepEqual(late, { kind: "late", over: "TurnEnded", by: null, already: false });
    });

    it("even after its time, as long as nobody has given up on it", async () => {
      const run = await asked();
      await overdue(run);
      assert.equal((await answer(ledger.db, run)).kind, "answered");
    });

    it("about another Run than the one it names as about nothing that it knows", async () => {
      const run = await asked();
      const elsewhere = await asked();
      for (const subject of [
        { namespaceUid: NAMESPACE_UID, name: elsewhere.name },
        { namespaceUid: "another namespace", name: run.name },
        { namespaceUid: NAMESPACE_UID, name: run.name, uid: "of one that was deleted" },
      ]) {
        assert.equal((await answer(ledger.db, run, { subject })).kind, "unknown", JSON.stringify(subject));
      }
      assert.equal((await answer(ledger.db, run, { request: uuidv7() })).kind, "unknown");
      assert.equal((await answer(ledger.db, run, { request: "the second one" })).kind, "unknown");
      assert.deepEqual(await decisionsOf(run), []);
    });

    it("the same way when it is applied twice, whatever it was", async () => {
      const run = await asked();
      const word = answers(run, await questionOf(ledger.db, run.runId));
      await answerQuestion(ledger.db, word);
      const before = await runRow(ledger, run.runId);
      assert.deepEqual(await answerQuestion(ledger.db, word), { kind: "answered", runId: run.runId, already: true });
      const second = { ...word, decision: "another" };
      const late = await answerQuestion(ledger.db, second);
      assert.deepEqual(await answerQuestion(ledger.db, second), { ...late, already: true });
      assert.deepEqual(await runRow(ledger, run.runId), before);
      assert.equal((await decisionsOf(run)).length, 2);
    });
  });

  it("is told in its story, with who answered and who came too late", async () => {
    const run = await asked();
    await answer(ledger.db, run);
    await answer(ledger.db, run, { actor: { connector: "kubernetes", extId: "carol" }, text: "red" });
    const story = await readStory(ledger.db, run.runId);
    const [question] = story?.questions ?? [];
    assert.deepEqual(
      [question?.call, question?.state, question?.by, question?.late.map(({ actor, text }) => [actor, text])],
      [run.call.id, "answered", "bob", [["carol", "red"]]],
    );
    assert.ok(question?.late[0]?.at instanceof Date && question.closedAt instanceof Date);
  });

  describe("is told when nobody answered", () => {
    it("by the worker that finds it due, as often as it asks, and the call is open until it says so", async () => {
      const run = await asked();
      await overdue(run);
      assert.equal(await nextDue(ledger.db, CODE), 0);
      await reclaim(run);
      assert.equal((await runRow(ledger, run.runId)).status, "running");
      assert.equal(await ask(ledger.db, run), "expired");
      assert.equal(await ask(ledger.db, run), "expired", "asked again by one whose reply was lost");
      assert.equal((await questionOf(ledger.db, run.runId)).state, "expired");
      assert.equal((await callOf(run))?.["outcome"], null);
    });
  });

  describe("does not count the time in which it waits", () => {
    const deadline = async (run: { runId: string }) =>
      (
        await sql<{ left: number; parked_at: Date | null }>(
          ledger,
          `select extract(epoch from deadline_at - pawl_now())::int as left, parked_at from runs where id = $1`,
          [run.runId],
        )
      )[0];
    const anHourAgo = (run: { runId: string }) =>
      sql(
        ledger,
        "update runs set parked_at = pawl_now() - interval '1 hour', deadline_at = pawl_now() where id = $1",
        [run.runId],
      );

    it("towards its deadline, whether it was answered or nobody came", async () => {
      const run = await asked();
      assert.notEqual((await deadline(run))?.parked_at, null);
      await anHourAgo(run);
      await answer(ledger.db, run);
      assert.deepEqual(await deadline(run), { left: 3_600, parked_at: null });
      const expired = await asked();
      await anHourAgo(expired);
      await set(run, "due_at = due_at + interval '1 year'");
      await overdue(expired);
      await reclaim(expired);
      assert.deepEqual(await deadline(expired), { left: 3_600, parked_at: null });
    });

    it("nor that in which it waited for an approval", async () => {
      const run = await aGatedRun(ledger.db);
      await park(ledger.db, run);
      await anHourAgo(run);
      await decide(ledger.db, run);
      await claimRun(ledger.db, "worker-2", 10_000, CODE);
      assert.deepEqual(await deadline(run), { left: 3_600, parked_at: null });
    });

    it("towards its time at work, nor does it hold a slot or a model call", async () => {
      const run = await asked();
      const [row] = await sql(
        ledger,
        "select leased_at, reserved_calls, worked_ms < 60000 as little from runs where id = $1",
        [run.runId],
      );
      assert.deepEqual(row, { leased_at: null, reserved_calls: 0, little: true });
    });

    it("and leaves a turn that has no deadline without one", async () => {
      const run = await asked();
      await set(run, "deadline_at = null");
      await answer(ledger.db, run);
      assert.equal((await deadline(run))?.left, null);
    });
  });

  describe("is stopped", () => {
    /** Waits for the answer to its second question; a write of its has taken place before. */
    async function askingAfterWrite() {
      const run = await anAskingRun(ledger.db);
      const nothing = { id: run.call.id, outcome: "skipped", result: "no" } as const;
      await commitResults(ledger.db, { ...run, nonce: uuidv7() }, [nothing]);
      const written = aCall();
      await respond(ledger.db, run, [written], { ordinal: 2 });
      await cross(ledger.db, run, written);
      const confirmed = { id: written.id, outcome: "real", result: "201" } as const;
      await commitResults(ledger.db, { ...run, nonce: uuidv7() }, [confirmed]);
      const call = aQuestion();
      await respond(ledger.db, run, [call], { ordinal: 3 });
      assert.equal(await ask(ledger.db, { ...run, call }), "parked");
      return { run, call };
    }

    it("at once when it has changed nothing: its question is taken back", async () => {
      const run = await asked();
      assert.equal(await stop(ledger.db, run.eventId), "cancelled");
      assert.equal((await runRow(ledger, run.runId)).status, "cancelled");
      assert.equal((await questionOf(ledger.db, run.runId)).state, "withdrawn");
    });

    it("to tell what it has changed, when it has: it is due at once, and nobody answers it any more", async () => {
      const { run } = await askingAfterWrite();
      assert.equal(await stop(ledger.db, run.eventId), "stopping");
      assert.equal((await answer(ledger.db, run)).kind, "late");
      assert.equal((await claimRun(ledger.db, "worker-2", 10_000, CODE))?.runId, run.runId);
    });

    it("once its time was over and a worker is about to say so, like any turn at work", async () => {
      const { run, call } = await askingAfterWrite();
      await overdue(run);
      await reclaim(run);
      assert.equal(await stop(ledger.db, run.eventId), "stopping");
      assert.equal(await ask(ledger.db, { ...run, call }), "stopping");
      assert.equal((await questionOf(ledger.db, run.runId)).state, "withdrawn");
    });

    it("also by somebody whose word comes just before its worker lets go to wait for an approval", async () => {
      const run = await aGatedRun(ledger.db);
      await sql(ledger, "update runs set stop_requested_at = pawl_now() where id = $1", [run.runId]);
      assert.equal(await park(ledger.db, run), "parked");
      assert.equal(
        (await claimRun(ledger.db, "worker-2", 10_000, CODE))?.runId,
        run.runId,
        "it does not wait for a day",
      );
    });
  });

  describe("at the same moment", () => {
    it("as another answer: the second waits and is late", async () => {
      const run = await asked();
      const question = await questionOf(ledger.db, run.runId);
      const carol = { actor: { connector: "kubernetes", extId: "carol" } };
      const [first, second] = await overlap(
        { db: ledger.db, body: (tx) => answerQuestion(tx, answers(run, question)) },
        () => answerQuestion(other, answers(run, question, carol)),
      );
      assert.deepEqual([first.kind, second.kind], ["answered", "late"]);
      assert.ok(met.get("answer_question")?.has("again"), "what it knew of the run was older than the run");
    });

    it("as the same answer applied by another controller: once", async () => {
      const run = await asked();
      const word = answers(run, await questionOf(ledger.db, run.runId));
      const [first, second] = await overlap({ db: ledger.db, body: (tx) => answerQuestion(tx, word) }, () =>
        answerQuestion(other, word),
      );
      assert.deepEqual([first.kind, second.kind, second.already], ["answered", "answered", true]);
    });

    it("as the claim of a worker that finds its time over: who comes second is late", async () => {
      const run = await asked();
      await overdue(run);
      const [claim, word] = await overlap({ db: ledger.db, body: (tx) => claimRun(tx, "worker-2", 10_000, CODE) }, () =>
        answer(other, run),
      );
      assert.deepEqual([claim?.runId, word.kind], [run.runId, "late"]);
    });

    it("as a stop: a turn that goes on is cancelled, whatever the answer was", async () => {
      const run = await asked();
      const question = await questionOf(ledger.db, run.runId);
      const [word, stopped] = await overlap(
        { db: ledger.db, body: (tx) => answerQuestion(tx, answers(run, question)) },
        () => stop(other, run.eventId),
      );
      assert.deepEqual([word.kind, stopped], ["answered", "cancelled"]);
    });
  });
});
