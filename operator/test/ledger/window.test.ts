/** When a turn begins, and what it begins with. Time is the database's; where it has to pass, it is moved. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest, type Message } from "#ledger/mailbox.ts";
import { type Policy, policyOf } from "#rules/interrupt.ts";
import { alone, count, end, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { RecordingDatabase } from "../support/verdicts.ts";
import { aClaimedRun, aMessage, anAgent, aRun, CODE } from "../support/world.ts";

const POLICY = policyOf(null);
const bob = { connector: "kubernetes", extId: "bob" };

describe("the window before a turn", () => {
  const ledger = useLedger();
  /** One connection, whose clock a test moves. */
  let later: RecordingDatabase;

  before(() => {
    later = new RecordingDatabase({ url: ledger.url, max: 1 });
  });
  after(() => later.close());
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const clock = (ms: number) => sql(later, "select set_config('pawl.skew', $1, false)", [`${ms} ms`]);
  const claim = async () => (await claimRun(later, "worker-1", 10_000, CODE))?.runId ?? null;
  const more = (run: { message: Message }, changes: Partial<Message> = {}, db = ledger.db) =>
    ingest(db, aMessage(run.message.agentId, { conversationKey: run.message.conversationKey, ...changes }));
  /** Milliseconds from the arrival of this message until the live run of its conversation is due, and at the latest. */
  async function wait(eventId: string) {
    const [row] = await sql<{ due: number; latest: number; n: number }>(
      ledger,
      `select (extract(epoch from r.due_at - e.received_at) * 1000)::int as due,
              (extract(epoch from r.window_until - e.received_at) * 1000)::int as latest, r.trigger_count as n
       from message_events e join conversations c on c.id = e.conversation_id join runs r on r.id = c.live_run where e.id = $1`,
      [eventId],
    );
    return row;
  }
  const idOf = (taken: { kind: string }) => (taken as unknown as { eventId: string }).eventId;
  const stateOf = async (eventId: string) => {
    const [row] = await sql<{ state: string; run_id: string | null }>(
      ledger,
      "select state, run_id from message_events where id = $1",
      [eventId],
    );
    return row;
  };
  const policy = (changes: Partial<Policy> = {}): { policy: Policy } => ({ policy: { ...POLICY, ...changes } });

  it("is the quiet time after the first message, and again after each further one", async () => {
    const given = policy({ quietMs: 60_000, maxWaitMs: 600_000 });
    const run = await aRun(ledger.db, given);
    assert.deepEqual(await wait(run.eventId), { due: 60_000, latest: 600_000, n: 1 });
    const folded = await more(run, { ...given, actor: bob });
    assert.equal(folded.kind, "folded");
    assert.equal((await wait(idOf(folded)))?.due, 60_000);
    await clock(0);
    assert.equal(await claim(), null, "nobody takes the turn before");
    await clock(61_000);
    assert.equal(await claim(), run.runId);
  });

  it("makes three corrections in a row one turn", async () => {
    const run = await aRun(ledger.db, policy());
    for (const text of ["no, in blue", "and two of them", "please"]) {
      assert.equal((await more(run, { ...policy(), text })).kind, "folded");
    }
    assert.equal(await count(ledger, "run_triggers where run_id = $1", [run.runId]), 4);
  });

  it("ends at the longest wait although somebody writes every half second for a minute (C63)", async () => {
    await clock(0);
    const agent = await anAgent(ledger.db);
    const given = policy({ quietMs: 10_000, maxCount: 1_000 });
    const first = aMessage(agent.id, given);
    const opened = await ingest(later, first);
    assert.ok(opened.kind === "new_run");
    for (let ms = 500; ms <= 60_000; ms += 500) {
      await clock(ms);
      const claimed = await claim();
      if (claimed !== null) {
        // The time that the test itself takes is on top of that.
        assert.ok(claimed === opened.runId && ms <= 30_000, `${ms}`);
        assert.equal(await count(ledger, "runs where id = $1 and started_at >= window_until", [claimed]), 1);
        const queued = await more({ message: first }, given, later);
        assert.equal(queued.kind, "queued");
        return;
      }
      assert.equal((await more({ message: first }, given, later)).kind, "folded");
    }
    assert.fail("it never began");
  });

  it("is over at once with as many messages as a turn begins with, and the next one waits for the next turn", async () => {
    const run = await aRun(ledger.db, policy({ maxCount: 2 }));
    const full = await more(run, policy({ maxCount: 2 }));
    assert.deepEqual([full.kind, (await wait(idOf(full)))?.due], ["folded", 0]);
    const waiting = await more(run, policy({ maxCount: 2 }));
    assert.deepEqual([waiting.kind, (waiting as { reason: string }).reason], ["queued", "WindowFull"]);
    const alone1 = await aRun(ledger.db, policy({ maxCount: 1 }));
    assert.equal((await wait(alone1.eventId))?.due, 0);
  });

  it("is three times as long after a thought that is not finished, if the agent wants that", async () => {
    const text = "it is about this:";
    const run = await aRun(ledger.db, { ...policy({ adaptive: true }), text });
    assert.equal((await wait(run.eventId))?.due, 6_000);
    const done = await more(run, { ...policy({ adaptive: true }), text: "the blue one." });
    assert.equal((await wait(idOf(done)))?.due, 2_000);
    const plain = await aRun(ledger.db, { ...policy(), text });
    assert.equal((await wait(plain.eventId))?.due, 2_000);
    const short = await aRun(ledger.db, { ...policy({ adaptive: true, maxWaitMs: 5_000 }), text });
    assert.deepEqual(await wait(short.eventId), { due: 5_000, latest: 5_000, n: 1 });
  });

  it("does not exist for an agent that never waits: its turn keeps its place in the queue", async () => {
    const run = await aRun(ledger.db);
    const before = await wait(run.eventId);
    assert.equal(before?.due, 0);
    await more(run);
    assert.deepEqual(await wait(run.eventId), { ...before, n: 2 });
  });

  it("keeps messages apart whose authors may not do the same", async () => {
    const run = await aRun(ledger.db, { ...policy(), grants: "a" });
    const other = await more(run, { ...policy(), grants: "b", actor: bob });
    assert.deepEqual([other.kind, (other as { reason: string }).reason], ["queued", "DifferentGrants"]);
    const same = await more(run, { ...policy(), grants: "a" });
    assert.equal(same.kind, "folded");
  });

  describe("of the turn that follows another one", () => {
    type Next = {
      id: string;
      due: boolean;
      longest: boolean;
      grants: string;
      many: number;
      requester: string;
      addressed: string;
    };
    const nextOf = async (runId: string): Promise<Next> => {
      const [row] = await sql<Next>(
        ledger,
        `select n.id, n.due_at <= pawl_now() as due, n.due_at = (select min(e.wait_until) from message_events e where e.run_id = n.id) as longest, n.grants,
                n.trigger_count as many, q.ext_id as requester, w.ext_id as addressed
         from runs r join conversations c on c.id = r.conversation_id join runs n on n.id = c.live_run
         join actors q on q.id = n.requester join actors w on w.id = n.addressed where r.id = $1`,
        [runId],
      );
      assert.ok(row !== undefined);
      return row;
    };

    it("is over when the newest message has been quiet for long enough", async () => {
      const run = await aClaimedRun(ledger.db);
      const waiting = await more(run, policy());
      await sql(
        ledger,
        "update message_events set quiet_until = quiet_until - interval '5 s', wait_until = wait_until - interval '5 s' where id = $1",
        [idOf(waiting)],
      );
      await end(ledger.db, run);
      assert.equal((await nextOf(run.runId)).due, true);
    });

    it("goes on where the newest message is fresh, as long as the first one may wait", async () => {
      const run = await aClaimedRun(ledger.db);
      await more(run, policy({ quietMs: 20_000 }));
      await more(run, { ...policy({ quietMs: 60_000 }), actor: bob });
      await end(ledger.db, run);
      const next = await nextOf(run.runId);
      assert.deepEqual([next.due, next.longest, next.many], [false, true, 2]);
      assert.deepEqual([next.requester, next.addressed], ["alice", "bob"]);
      assert.equal((await more(run, policy())).kind, "folded");
    });

    it("is over at once when it is full, and what is too much waits on", async () => {
      const run = await aClaimedRun(ledger.db);
      const waiting = [];
      for (let n = 0; n < 3; n += 1) waiting.push(idOf(await more(run, policy({ maxCount: 2 }))));
      await end(ledger.db, run);
      const next = await nextOf(run.runId);
      assert.deepEqual([next.due, next.many], [true, 2]);
      const states = await Promise.all(waiting.map((id) => stateOf(id)));
      assert.deepEqual(states, [
        { state: "in_turn", run_id: next.id },
        { state: "in_turn", run_id: next.id },
        { state: "pending", run_id: null },
      ]);
    });

    it("takes in the first author's messages and those of the same rights; the others are the turn after", async () => {
      const run = await aClaimedRun(ledger.db);
      const waiting = [];
      for (const grants of ["a", "b", "a"]) waiting.push(idOf(await more(run, { grants })));
      await end(ledger.db, run);
      const next = await nextOf(run.runId);
      assert.deepEqual([next.grants, next.many], ["a", 2]);
      assert.deepEqual(
        (await Promise.all(waiting.map((id) => stateOf(id)))).map((row) => row?.state),
        ["in_turn", "pending", "in_turn"],
      );
      await alone(ledger, next.id);
      const claimed = await claimRun(ledger.db, "worker-1", 10_000, CODE);
      await end(ledger.db, { runId: next.id, token: claimed?.token ?? 0 }, { seenSeq: 99 });
      assert.equal((await nextOf(run.runId)).grants, "b");
    });

    it("takes in what nobody has decided about yet, and says so (C58)", async () => {
      const run = await aClaimedRun(ledger.db);
      const waiting = [];
      for (const grants of ["", "b"]) {
        waiting.push(
          idOf(await more(run, { grants, askable: true, policy: { ...POLICY, quietMs: 0, midTurn: "amend" } })),
        );
      }
      await end(ledger.db, run);
      const next = await nextOf(run.runId);
      assert.deepEqual(await Promise.all(waiting.map((id) => stateOf(id))), [
        { state: "in_turn", run_id: next.id },
        { state: "pending", run_id: null },
      ]);
      const told = await sql(
        ledger,
        "select asked, relation, done, reason, run_id from interrupts where event_id = any ($1)",
        [waiting],
      );
      const row = { asked: "amend", relation: "none", done: "queued", reason: "TurnEnded", run_id: run.runId };
      assert.deepEqual(told, [row, row]);
    });

    it("puts right what the turn before did, where a message came too late to change it", async () => {
      const run = await aClaimedRun(ledger.db);
      const waiting = [idOf(await more(run)), idOf(await more(run))];
      const [before] = await sql<{ request_id: string }>(ledger, "select request_id from runs where id = $1", [
        run.runId,
      ]);
      await sql(ledger, "update message_events set reconciles = $2 where id = $1", [waiting[1], before?.request_id]);
      await end(ledger.db, run);
      const next = await nextOf(run.runId);
      assert.equal(
        await count(
          ledger,
          "logical_requests q join runs r on r.request_id = q.id where r.id = $1 and q.reconciles = $2",
          [next.id, before?.request_id],
        ),
        1,
      );
    });

    it("has the deadline of the agent that its first message met", async () => {
      const run = await aClaimedRun(ledger.db);
      await more(run, policy({ deadlineMs: 60_000 }));
      await end(ledger.db, run);
      const next = await nextOf(run.runId);
      assert.equal(
        await count(
          ledger,
          "runs r join logical_requests q on q.id = r.request_id where r.id = $1 and r.deadline_at = q.deadline_at and r.deadline_at - r.queued_at between interval '59 s' and interval '60 s'",
          [next.id],
        ),
        1,
      );
    });
  });
});
