/** Edits and deletes of messages, in every position that their message can be in. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { type Change, type Changed, ingestDelete, ingestEdit } from "#ledger/changes.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import type { Runner } from "#ledger/database.ts";
import { ingest, type Message } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { finishTurn } from "#ledger/turns.ts";
import { type Policy, policyOf } from "#rules/interrupt.ts";
import { hold, overlap, pausedBefore, untilBlocked } from "../support/interleave.ts";
import { aRunIn, alone, count, end, runRow, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { met, RecordingDatabase } from "../support/verdicts.ts";
import { aCall, aClaimedRun, aMessage, aRun, CODE, cross, respond } from "../support/world.ts";

const POLICY: Policy = { ...policyOf(null), quietMs: 0 };
const bob = { connector: "kubernetes", extId: "bob" };
type Started = { message: Message; runId: string; eventId: string };

describe("a message that was changed", () => {
  const ledger = useLedger();
  let other: RecordingDatabase;

  before(() => {
    other = new RecordingDatabase({ url: ledger.url, name: "other" });
  });
  after(() => other.close());
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  let revisions = 0;
  const changeOf = (message: Message, changes: Partial<Change> = {}): Change => {
    revisions += 1;
    const { agentId, generation, connector, conversationKey, actor, extId, orderKey } = message;
    const extRev = String(revisions).padStart(8, "0");
    return { agentId, generation, connector, conversationKey, actor, extId, extRev, orderKey, ...changes };
  };
  const edit = (message: Message, text = "new words", changes: Partial<Change> = {}, db: Runner = ledger.db) =>
    ingestEdit(db, { ...changeOf(message, changes), text });
  const remove = (message: Message, changes: Partial<Change> = {}, db: Runner = ledger.db) =>
    ingestDelete(db, changeOf(message, changes));

  async function more(run: { message: Message }, changes: Partial<Message> = {}) {
    const message = aMessage(run.message.agentId, { conversationKey: run.message.conversationKey, ...changes });
    const taken = (await ingest(ledger.db, message)) as { kind: string; eventId: string; runId: string };
    return { ...taken, message };
  }
  type Row = {
    state: string;
    run_id: string | null;
    body: string | null;
    shown: string | null;
    reconciles: string | null;
  };
  const rowOf = async (id: string): Promise<Row> => {
    const [row] = await sql<Row>(
      ledger,
      "select state, run_id, body, shown, reconciles from message_events where id = $1",
      [id],
    );
    assert.ok(row !== undefined);
    return row;
  };
  const told = async (changed: Changed) => {
    assert.ok(changed.kind !== "duplicate");
    const [row] = await sql<{ relation: string; done: string; reason: string; source: string }>(
      ledger,
      "select relation, done, reason, source from interrupts where event_id = $1",
      [changed.eventId],
    );
    return row;
  };
  const kindOf = (changed: Changed) => (changed.kind === "duplicate" ? ["duplicate"] : [changed.kind, changed.reason]);
  const idOf = (changed: Changed) => (changed as { eventId: string }).eventId;

  async function crossed(reply: boolean) {
    const run = await aClaimedRun(ledger.db);
    const calls = [aCall(), aCall({ idx: 1, class: "reply", kind: "reply", target: null })] as const;
    await respond(ledger.db, run, calls);
    await cross(ledger.db, run, calls[0]);
    if (reply) await cross(ledger.db, run, calls[1], { receipt: { row: true } });
    return run;
  }

  describe("before anybody read it", () => {
    it("is read as it is now, and kept as it was", async () => {
      const run = await aRun(ledger.db);
      const { version } = await runRow(ledger, run.runId);
      assert.deepEqual(kindOf(await edit(run.message)), ["replaced", "Window"]);
      assert.deepEqual(kindOf(await edit(run.message, "newer words")), ["replaced", "Window"]);
      const row = await rowOf(run.eventId);
      assert.deepEqual([row.state, row.body, row.shown], ["in_turn", run.message.text, "newer words"]);
      assert.equal((await runRow(ledger, run.runId)).version, version + 2, "what is shown of the turn has changed");
      await alone(ledger, run.runId);
      const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
      assert.equal(claim?.runId, run.runId);
      const work = await readRun(ledger.db, run.runId);
      assert.deepEqual(
        work.triggers.map(({ text }) => text),
        ["newer words"],
      );
    });

    it("is read as it is now by the next turn, where it waits for that", async () => {
      const run = await aClaimedRun(ledger.db);
      for (const askable of [false, true]) {
        const waiting = await more(run, { askable });
        assert.deepEqual(kindOf(await edit(waiting.message)), ["replaced", "Waits"]);
        const row = await rowOf(waiting.eventId);
        assert.deepEqual([row.state, row.shown], [askable ? "undecided" : "pending", "new words"]);
      }
    });

    it("takes a turn that nobody else wrote for with it when it is deleted", async () => {
      const run = await aRun(ledger.db);
      const gone = await remove(run.message);
      assert.deepEqual(kindOf(gone), ["cancelled", "NotStarted"]);
      assert.deepEqual(await told(gone), {
        relation: "cancels",
        done: "cancelled",
        reason: "NotStarted",
        source: "delete",
      });
      assert.equal((await rowOf(run.eventId)).state, "withdrawn");
      assert.equal((await runRow(ledger, run.runId)).status, "cancelled");
    });

    it("leaves a turn to those who wrote for it too", async () => {
      const run = await aRun(ledger.db);
      await more(run, { actor: bob });
      assert.deepEqual(kindOf(await remove(run.message)), ["withdrawn", "OtherTriggers"]);
      assert.equal((await runRow(ledger, run.runId)).status, "queued");
      assert.equal(await count(ledger, "runs where id = $1 and trigger_count = 1", [run.runId]), 1);
    });

    it("never becomes a turn when it is deleted while it waits, and holds nothing any more", async () => {
      const run = await aClaimedRun(ledger.db);
      for (const askable of [false, true]) {
        const waiting = await more(run, { askable });
        assert.deepEqual(kindOf(await remove(waiting.message)), ["withdrawn", "Waits"]);
        assert.equal((await rowOf(waiting.eventId)).state, "withdrawn");
        assert.equal(await count(ledger, "interrupts where event_id = $1", [waiting.eventId]), 1);
      }
      assert.equal(await count(ledger, "runs where id = $1 and hold_seq = 0", [run.runId]), 1);
      assert.deepEqual(await end(ledger.db, run), { kind: "finished", nextRunId: null });
    });

    it("is changed in silence where the agent only listens", async () => {
      const run = await aClaimedRun(ledger.db);
      const overheard = await more(run, { addressed: false });
      assert.deepEqual(kindOf(await edit(overheard.message)), ["replaced", "NotAddressed"]);
      assert.equal((await rowOf(overheard.eventId)).shown, "new words");
      assert.deepEqual(kindOf(await remove(overheard.message)), ["withdrawn", "NotAddressed"]);
    });
  });

  describe("while its turn is at work", () => {
    const table = [
      ["enqueue", "enqueue", "buffering", "queued", "Enqueue"],
      ["amend", "enqueue", "buffering", "amended", "Amend"],
      ["preempt", "enqueue", "buffering", "preempted", "Buffering"],
      ["enqueue", "enqueue", "committed", "queued", "Committed"],
      ["amend", "enqueue", "committed", "amended", "Amend"],
      ["preempt", "enqueue", "committed", "queued", "Committed"],
      ["preempt", "reconcile", "committed", "reconcile", "Committed"],
    ] as const;
    for (const [midTurn, afterCommit, position, done, reason] of table) {
      it(`is ${done} by an edit: ${midTurn}, ${position}, ${afterCommit}`, async () => {
        const run = position === "buffering" ? await aClaimedRun(ledger.db) : await crossed(false);
        const changed = await edit(run.message, "in blue", { policy: { ...POLICY, midTurn, afterCommit } });
        assert.deepEqual(kindOf(changed), [done, reason]);
        assert.deepEqual(await told(changed), { relation: "refines", done, reason, source: "edit" });
        const row = await rowOf(idOf(changed));
        assert.equal(row.body, "in blue");
        assert.match(row.shown ?? "", new RegExp(`edited an earlier message.*${run.message.text}.*\\nin blue$`, "s"));
        assert.equal((await rowOf(run.eventId)).shown, null, "what may have been read stays as it was read");
      });
    }

    it("waits for a message before it that a model is asked about", async () => {
      const run = await aClaimedRun(ledger.db);
      await more(run, { askable: true });
      assert.equal((await edit(run.message)).kind, "undecided");
    });

    it("stops it when it is deleted and was all that was asked", async () => {
      const buffering = await aClaimedRun(ledger.db);
      assert.deepEqual(kindOf(await remove(buffering.message)), ["cancelled", "Buffering"]);
      assert.equal((await rowOf(buffering.eventId)).state, "withdrawn");
      const waiting = await aRunIn(ledger.db, "awaiting_input");
      assert.deepEqual(kindOf(await remove(waiting.message)), ["cancelled", "Waiting"]);
      const committed = await crossed(false);
      assert.deepEqual(kindOf(await remove(committed.message)), ["stopping", "Committed"]);
      assert.ok((await runRow(ledger, committed.runId)).stop_requested_at !== null);
    });

    it("is told to it when it is deleted and others wrote for it too", async () => {
      const run = await aRun(ledger.db);
      await more(run);
      await alone(ledger, run.runId);
      await claimRun(ledger.db, "worker-1", 10_000, CODE);
      const gone = await remove(run.message, { policy: { ...POLICY, midTurn: "amend" } });
      assert.deepEqual(kindOf(gone), ["amended", "Amend"]);
      assert.equal((await rowOf(idOf(gone))).body, `(took back an earlier message: "${run.message.text}")`);
    });
  });

  describe("after it was answered", () => {
    const reconcile: Partial<Change> = { policy: { ...POLICY, afterCommit: "reconcile" } };
    async function answered(): Promise<Started> {
      const run = await crossed(true);
      await end(ledger.db, run);
      return run;
    }

    it("is only noted", async () => {
      for (const run of [await answered(), await crossed(true)]) {
        for (const change of [edit, remove]) {
          const changed = await change(run.message);
          assert.deepEqual(kindOf(changed), ["observed", "AlreadyAnswered"]);
          assert.equal((await rowOf(idOf(changed))).state, "observed");
        }
        assert.equal((await rowOf(run.eventId)).shown, null);
      }
    });

    it("opens a turn that puts right what was done, where the agent says so", async () => {
      const run = await answered();
      const changed = await edit(run.message, "in blue", reconcile);
      assert.equal(changed.kind, "new_run");
      const { request_id: before } =
        (await sql<{ request_id: string }>(ledger, "select request_id from runs where id = $1", [run.runId]))[0] ?? {};
      assert.equal(
        await count(
          ledger,
          "logical_requests q join runs r on r.request_id = q.id join message_events e on e.run_id = r.id where e.id = $1 and q.reconciles = $2",
          [idOf(changed), before],
        ),
        1,
      );
    });

    it("does so in the next turn, where another one is about to begin or at work", async () => {
      for (const begun of [false, true]) {
        const run = await answered();
        const next = await more(run);
        if (begun) {
          await alone(ledger, next.runId);
          await claimRun(ledger.db, "worker-1", 10_000, CODE);
        }
        const changed = await edit(run.message, "in blue", reconcile);
        assert.equal(changed.kind, begun ? "queued" : "folded");
        const row = await rowOf(idOf(changed));
        assert.ok(row.reconciles !== null);
        const put = "logical_requests q join runs r on r.request_id = q.id where r.id = $1 and q.reconciles = $2";
        if (!begun) assert.equal(await count(ledger, put, [next.runId, row.reconciles]), 1);
      }
    });
  });

  describe("changes nothing", () => {
    it("when the same change comes again", async () => {
      const run = await aRun(ledger.db);
      const once = { ...changeOf(run.message), text: "new words" };
      assert.equal((await ingestEdit(ledger.db, once)).kind, "replaced");
      assert.equal((await ingestEdit(ledger.db, once)).kind, "duplicate");
      const working = await aClaimedRun(ledger.db);
      const twice = { ...changeOf(working.message), text: "new words" };
      assert.equal((await ingestEdit(ledger.db, twice)).kind, "queued");
      assert.equal((await ingestEdit(ledger.db, twice)).kind, "duplicate");
    });

    it("when an older version comes after a newer one, or anything after the delete", async () => {
      const run = await aRun(ledger.db);
      await more(run);
      const [first, second] = [changeOf(run.message), changeOf(run.message)];
      assert.equal((await ingestEdit(ledger.db, { ...second, text: "second" })).kind, "replaced");
      assert.deepEqual(kindOf(await ingestEdit(ledger.db, { ...first, text: "first" })), ["observed", "Outdated"]);
      assert.equal((await rowOf(run.eventId)).shown, "second");
      assert.equal((await remove(run.message)).kind, "withdrawn");
      assert.deepEqual(kindOf(await edit(run.message)), ["observed", "Outdated"]);
      assert.deepEqual(kindOf(await remove(run.message)), ["observed", "Outdated"]);
    });

    it("when nobody knows the message, or it was taken back before", async () => {
      const run = await aClaimedRun(ledger.db);
      const never = await edit({ ...run.message, extId: uuidv7() });
      assert.deepEqual(kindOf(never), ["observed", "UnknownMessage"]);
      const waiting = await more(run);
      await sql(ledger, "update message_events set state = 'withdrawn' where id = $1", [waiting.eventId]);
      assert.deepEqual(kindOf(await edit(waiting.message)), ["observed", "NothingLeft"]);
    });
  });

  describe("at the same moment", () => {
    it("as its turn is claimed: claimed first, the turn is told of the change", async () => {
      const run = await aRun(ledger.db);
      await alone(ledger, run.runId);
      const [claim, changed] = await overlap(
        { db: ledger.db, body: (tx) => claimRun(tx, "worker-1", 10_000, CODE) },
        () => edit(run.message, "in blue", { policy: { ...POLICY, midTurn: "amend" } }, other),
      );
      assert.equal(claim?.runId, run.runId);
      assert.equal(changed.kind, "amended");
      assert.ok(met.get("change_event")?.has("again"));
    });

    it("as its turn is claimed: changed first, the turn begins with the new text", async () => {
      const run = await aRun(ledger.db);
      await alone(ledger, run.runId);
      const held = await hold(ledger.db, (tx) => edit(run.message, "in blue", {}, tx));
      assert.equal(await claimRun(other, "worker-1", 10_000, CODE), null);
      assert.equal((await held.commit()).kind, "replaced");
      const claim = await claimRun(other, "worker-1", 10_000, CODE);
      assert.equal(claim?.runId, run.runId);
      const work = await readRun(ledger.db, run.runId);
      assert.deepEqual(
        work.triggers.map(({ text }) => text),
        ["in blue"],
      );
    });

    it("as its turn ends: ended first, the message was answered", async () => {
      const run = await crossed(true);
      const [row] = await sql<{ conversation_id: string }>(ledger, "select conversation_id from runs where id = $1", [
        run.runId,
      ]);
      assert.ok(row !== undefined);
      const paused = pausedBefore(other, "change_event");
      const changing = remove(run.message, {}, paused.runner);
      await paused.arrived;
      const held = await hold(ledger.db, (tx) =>
        finishTurn(tx, {
          conversationId: row.conversation_id,
          runId: run.runId,
          token: run.token,
          nonce: uuidv7(),
          status: "succeeded",
          seenSeq: 1,
          reason: null,
          message: null,
        }),
      );
      paused.go();
      await untilBlocked(ledger.url);
      assert.equal((await held.commit()).kind, "finished");
      assert.deepEqual(kindOf(await changing), ["observed", "AlreadyAnswered"]);
    });

    it("as another one deletes the same message: once", async () => {
      const run = await aRun(ledger.db);
      const gone = changeOf(run.message);
      const [first, second] = await overlap({ db: ledger.db, body: (tx) => ingestDelete(tx, gone) }, () =>
        ingestDelete(other, gone),
      );
      assert.deepEqual([first.kind, second.kind], ["cancelled", "duplicate"]);
    });
  });
});
