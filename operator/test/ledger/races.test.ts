/** Two writers at once, in every order that matters: one has done its statement and not committed, the other waits. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { recordAgent } from "#ledger/agents.ts";
import { redispatchEffect, settleEffect } from "#ledger/effects.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun, releaseLease } from "#ledger/leases.ts";
import { ingest, type Message } from "#ledger/mailbox.ts";
import { policyOf } from "#rules/interrupt.ts";
import { finishTurn, requestStop, type TurnEnd } from "#ledger/turns.ts";
import type { Runner } from "#ledger/database.ts";
import { hold, overlap, pausedBefore, untilBlocked } from "../support/interleave.ts";
import { alone, count, conversationOf, end, lapse, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { met, RecordingDatabase } from "../support/verdicts.ts";
import { aCall, aClaimedRun, aMessage, anAgent, aRun, CODE, cross, NAMESPACE_UID, respond } from "../support/world.ts";

describe("two writers at once", () => {
  const ledger = useLedger();
  let other: RecordingDatabase;

  before(() => {
    other = new RecordingDatabase({ url: ledger.url, name: "other" });
  });
  after(() => other.close());
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const next = (run: { message: Message }, changes: Partial<Message> = {}) =>
    aMessage(run.message.agentId, { conversationKey: run.message.conversationKey, ...changes });
  const bob = { connector: "kubernetes", extId: "bob" };
  const stateOf = async (eventId: string) => {
    const [row] = await sql<{ state: string; run_id: string | null }>(
      ledger,
      "select state, run_id from message_events where id = $1",
      [eventId],
    );
    return row;
  };
  const stopIn = (tx: Runner, eventId: string) =>
    requestStop(tx, { eventId, extId: uuidv7(), actor: { connector: "kubernetes", extId: "alice" }, why: null });
  /** How often the `again` of this statement was met; the snapshot was older than the lock. */
  const againOf = (name: string) => met.get(name)?.has("again") === true;

  describe("a message and the end of the turn before it", () => {
    it("accepted first: the end sees it and makes it the next turn", async () => {
      const run = await aClaimedRun(ledger.db);
      await respond(ledger.db, run, []);
      const message = next(run);
      const [queued, ended] = await overlap({ db: ledger.db, body: (tx) => ingest(tx, message) }, () =>
        end(other, run),
      );
      assert.equal(queued.kind, "queued");
      assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
      assert.deepEqual(await stateOf((queued as { eventId: string }).eventId), {
        state: "in_turn",
        run_id: ended.nextRunId,
      });
      assert.ok(againOf("finish_turn"));
    });

    it("ended first: the message opens the next turn itself", async () => {
      const run = await aClaimedRun(ledger.db);
      await respond(ledger.db, run, []);
      const conversation = await conversationOf(ledger, run.runId);
      const message = next(run);
      // The message is past the opening of its conversation, its insert has not begun.
      const paused = pausedBefore(other, "ingest_event");
      const arriving = ingest(paused.runner, message);
      await paused.arrived;
      const held = await hold(ledger.db, (tx) => endIn(tx, run, conversation));
      paused.go();
      await untilBlocked(ledger.url);
      assert.deepEqual(await held.commit(), { kind: "finished", nextRunId: null });
      const opened = await arriving;
      assert.equal(opened.kind, "new_run");
      assert.equal((await runRow(ledger, (opened as { runId: string }).runId)).status, "queued");
    });

    it("ended first with a next turn: the message folds into that, though it could not see it at first", async () => {
      const run = await aClaimedRun(ledger.db);
      await ingest(ledger.db, next(run));
      const conversation = await conversationOf(ledger, run.runId);
      const paused = pausedBefore(other, "ingest_event");
      const arriving = ingest(paused.runner, next(run));
      await paused.arrived;
      const held = await hold(ledger.db, (tx) => endIn(tx, run, conversation));
      paused.go();
      await untilBlocked(ledger.url);
      const ended = await held.commit();
      assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
      const folded = await arriving;
      assert.deepEqual({ ...folded, eventId: "" }, { kind: "folded", eventId: "", seq: 3, runId: ended.nextRunId });
      assert.ok(againOf("ingest_event"));
    });
  });

  describe("two messages to an idle conversation", () => {
    it("open one run: the second folds into the first one's", async () => {
      const agent = await anAgent(ledger.db);
      const first = aMessage(agent.id);
      const [opened, folded] = await overlap({ db: ledger.db, body: (tx) => ingest(tx, first) }, () =>
        ingest(other, aMessage(agent.id, { conversationKey: first.conversationKey })),
      );
      assert.deepEqual([opened.kind, folded.kind], ["new_run", "folded"]);
    });

    it("are one if they are the same message twice", async () => {
      const agent = await anAgent(ledger.db);
      const message = aMessage(agent.id);
      const [opened, again] = await overlap({ db: ledger.db, body: (tx) => ingest(tx, message) }, () =>
        ingest(other, message),
      );
      assert.equal(opened.kind, "new_run");
      assert.deepEqual(again, { kind: "duplicate", specHash: null });
    });

    it("are one if they carry the same key, even to two conversations", async () => {
      const agent = await anAgent(ledger.db);
      const applied = { namespaceUid: NAMESPACE_UID, key: uuidv7(), specHash: "1", objectUid: "u", objectName: "n" };
      const [opened, again] = await overlap(
        { db: ledger.db, body: (tx) => ingest(tx, aMessage(agent.id, { applied })) },
        () => ingest(other, aMessage(agent.id, { applied })),
      );
      assert.equal(opened.kind, "new_run");
      assert.deepEqual(again, { kind: "duplicate", specHash: "1" });
    });
  });

  describe("a message and the claim of its turn", () => {
    it("claimed first: the message waits for the next turn", async () => {
      const run = await aRun(ledger.db);
      const [claim, queued] = await overlap(
        { db: ledger.db, body: (tx) => claimRun(tx, "worker-1", 10_000, CODE) },
        () => ingest(other, next(run)),
      );
      assert.equal(claim?.runId, run.runId);
      assert.equal(queued.kind, "queued");
    });

    it("folded first: the claim passes it by, and takes the turn with both messages afterwards", async () => {
      const run = await aRun(ledger.db);
      const held = await hold(ledger.db, (tx) => ingest(tx, next(run)));
      assert.equal(held.result.kind, "folded");
      assert.equal(await claimRun(other, "worker-1", 10_000, CODE), null, "it does not wait");
      await held.commit();
      assert.equal((await claimRun(other, "worker-1", 10_000, CODE))?.runId, run.runId);
      assert.equal(await count(ledger, "run_triggers where run_id = $1", [run.runId]), 2);
    });
  });

  describe("two workers", () => {
    it("never claim the same due run", async () => {
      const run = await aRun(ledger.db);
      const held = await hold(ledger.db, (tx) => claimRun(tx, "worker-1", 10_000, CODE));
      assert.equal(held.result?.runId, run.runId);
      assert.equal(await claimRun(other, "worker-2", 10_000, CODE), null);
      await held.commit();
      assert.equal(await claimRun(other, "worker-2", 10_000, CODE), null);
    });

    it("never take over the same lapsed run", async () => {
      const run = await aClaimedRun(ledger.db);
      await lapse(ledger, run.runId);
      const held = await hold(ledger.db, (tx) => claimRun(tx, "worker-2", 10_000, CODE));
      assert.deepEqual([held.result?.runId, held.result?.takeover], [run.runId, true]);
      assert.equal(await claimRun(other, "worker-3", 10_000, CODE), null);
      await held.commit();
    });

    it("never share one: twenty claims at once of ten runs are ten runs and ten times nothing", async () => {
      const runs = await Promise.all(Array.from({ length: 10 }, () => aRun(ledger.db)));
      const claims: (string | undefined)[] = [];
      // A claim passes by what another one has locked at that instant, so each asks until it gets nothing alone.
      await Promise.all(
        Array.from({ length: 20 }, async (_, index) => {
          claims.push((await claimRun(index % 2 === 0 ? ledger.db : other, `worker-${index}`, 60_000, CODE))?.runId);
        }),
      );
      for (;;) {
        const claim = await claimRun(other, "sweeper", 60_000, CODE);
        if (claim === null) break;
        claims.push(claim.runId);
      }
      const got = claims.filter((id) => id !== undefined);
      assert.equal(got.length, 10);
      assert.deepEqual(new Set(got), new Set(runs.map(({ runId }) => runId)));
    });

    it("of which one was paused: its late response waits for the takeover and is refused", async () => {
      const run = await aClaimedRun(ledger.db);
      await lapse(ledger, run.runId);
      const [claim, late] = await overlap({ db: ledger.db, body: (tx) => claimRun(tx, "worker-2", 10_000, CODE) }, () =>
        respond(other, run, [aCall()]),
      );
      assert.equal(claim?.takeover, true);
      assert.equal(late.kind, "fenced");
      assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 0);
    });

    it("of which one was paused with an effect in flight: it may still say once how that ended", async () => {
      const run = await aClaimedRun(ledger.db);
      const call = aCall();
      await respond(ledger.db, run, [call]);
      const { request } = await cross(ledger.db, run, call);
      await lapse(ledger, run.runId);
      const claim = await claimRun(other, "worker-2", 10_000, CODE);
      const taken = { ...run, token: claim?.token ?? 0 };
      assert.equal((await respond(ledger.db, run, [], { ordinal: 2 })).kind, "fenced");
      const news = { ...request, state: "confirmed", receipt: { status: 201 }, observation: "201" } as const;
      assert.equal(await settleEffect(ledger.db, news), "settled");
      assert.equal(await settleEffect(ledger.db, news), "already");
      const same = await cross(other, taken, { ...aCall(), argsHash: call.argsHash });
      assert.ok(same.result.kind === "replayed");
      assert.equal(await count(ledger, "commitment_effects where run_id = $1", [run.runId]), 1);
    });
  });

  describe("a stop and a crossing", () => {
    it("stopped first: the turn is over and nothing leaves", async () => {
      const run = await aClaimedRun(ledger.db);
      const call = aCall();
      await respond(ledger.db, run, [call]);
      const [stopped, crossing] = await overlap({ db: ledger.db, body: (tx) => stopIn(tx, run.eventId) }, () =>
        cross(other, run, call),
      );
      assert.equal(stopped, "cancelled");
      assert.equal(crossing.result.kind, "ended");
      assert.equal(await count(ledger, "commitment_effects where run_id = $1", [run.runId]), 0);
    });

    it("crossed first: the effect stands, and the turn only tells what it did", async () => {
      const run = await aClaimedRun(ledger.db);
      const call = aCall();
      await respond(ledger.db, run, [call]);
      const [crossing, stopped] = await overlap({ db: ledger.db, body: (tx) => cross(tx, run, call) }, () =>
        stop(other, run.eventId),
      );
      assert.equal(crossing.result.kind, "crossed");
      assert.equal(stopped, "stopping");
      assert.equal((await runRow(ledger, run.runId)).status, "awaiting_tool");
    });

    it("stopped first in a committed turn: the next tool does not leave, the reply does", async () => {
      const run = await aClaimedRun(ledger.db);
      const calls = [
        aCall(),
        aCall({ idx: 1, target: "issue/2" }),
        aCall({ idx: 2, class: "reply", kind: "reply", target: null }),
      ] as const;
      await respond(ledger.db, run, calls);
      await cross(ledger.db, run, calls[0]);
      const [stopped, tool] = await overlap({ db: ledger.db, body: (tx) => stopIn(tx, run.eventId) }, () =>
        cross(other, run, calls[1]),
      );
      assert.equal(stopped, "stopping");
      assert.equal(tool.result.kind, "stopping");
      assert.equal((await cross(other, run, calls[2], { receipt: { row: true } })).result.kind, "crossed");
    });
  });

  describe("a stop and a response", () => {
    it("answered first: the calls that just came are closed with the turn", async () => {
      const run = await aClaimedRun(ledger.db);
      const [answered, stopped] = await overlap({ db: ledger.db, body: (tx) => respond(tx, run, [aCall()]) }, () =>
        stop(other, run.eventId),
      );
      assert.equal(answered.kind, "committed");
      assert.equal(stopped, "cancelled");
      assert.equal(await count(ledger, "tool_calls where run_id = $1 and outcome = 'cancelled'", [run.runId]), 1);
      assert.equal((await stateOf(run.eventId))?.state, "accounted", "the model was shown it");
      assert.ok(againOf("request_stop"));
    });

    it("stopped first: the response is refused", async () => {
      const run = await aClaimedRun(ledger.db);
      const [stopped, answered] = await overlap({ db: ledger.db, body: (tx) => stopIn(tx, run.eventId) }, () =>
        respond(other, run, [aCall()]),
      );
      assert.deepEqual([stopped, answered.kind], ["cancelled", "ended"]);
    });
  });

  describe("a stop and the end of the turn", () => {
    it("ended first: nothing is left to stop", async () => {
      const run = await aClaimedRun(ledger.db);
      const conversation = await conversationOf(ledger, run.runId);
      const [ended, stopped] = await overlap({ db: ledger.db, body: (tx) => endIn(tx, run, conversation) }, () =>
        stop(other, run.eventId),
      );
      assert.equal(ended.kind, "finished");
      assert.equal(stopped, "nothing_left");
    });

    it("stopped first: the end finds the turn ended", async () => {
      const run = await aClaimedRun(ledger.db);
      const [stopped, ended] = await overlap({ db: ledger.db, body: (tx) => stopIn(tx, run.eventId) }, () =>
        end(other, run),
      );
      assert.equal(stopped, "cancelled");
      assert.deepEqual(ended, { kind: "ended" });
    });

    it("of a message that waits: ended first, it is taken back from the turn that it just opened", async () => {
      const run = await aClaimedRun(ledger.db);
      const waiting = await ingest(ledger.db, next(run));
      assert.ok(waiting.kind === "queued");
      const conversation = await conversationOf(ledger, run.runId);
      const [ended, stopped] = await overlap({ db: ledger.db, body: (tx) => endIn(tx, run, conversation) }, () =>
        stop(other, waiting.eventId),
      );
      assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
      assert.equal(stopped, "cancelled");
      assert.ok(met.get("withdraw_event")?.has("moved"));
      assert.equal((await runRow(ledger, ended.nextRunId)).status, "cancelled");
      assert.deepEqual(await stateOf(waiting.eventId), { state: "withdrawn", run_id: null });
    });

    it("of a message that the turn never read: ended first, it is taken back from the turn that it was handed on to", async () => {
      const run = await aClaimedRun(ledger.db);
      const conversation = await conversationOf(ledger, run.runId);
      const unread = { seenSeq: 0, status: "failed" } as const;
      const [ended, stopped] = await overlap(
        { db: ledger.db, body: (tx) => endIn(tx, run, conversation, unread) },
        () => stop(other, run.eventId),
      );
      assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
      assert.equal(stopped, "cancelled");
      assert.deepEqual(await stateOf(run.eventId), { state: "withdrawn", run_id: null });
    });

    it("of a message that waits: taken back first, there is no next turn", async () => {
      const run = await aClaimedRun(ledger.db);
      const waiting = await ingest(ledger.db, next(run));
      assert.ok(waiting.kind === "queued");
      const [stopped, ended] = await overlap({ db: ledger.db, body: (tx) => stopIn(tx, waiting.eventId) }, () =>
        end(other, run),
      );
      assert.equal(stopped, "withdrawn");
      assert.deepEqual(ended, { kind: "finished", nextRunId: null });
    });
  });

  describe("a message that says stop", () => {
    const word = (run: { message: Message }) => next(run, { stops: true });

    it("and the claim of its turn: claimed first, the turn ends in its worker's hands", async () => {
      const run = await aRun(ledger.db);
      await alone(ledger, run.runId);
      const [claim, stopped] = await overlap(
        { db: ledger.db, body: (tx) => claimRun(tx, "worker-1", 10_000, CODE) },
        () => ingest(other, word(run)),
      );
      assert.equal(claim?.runId, run.runId);
      assert.equal(stopped.kind, "cancelled");
      assert.equal((await respond(ledger.db, { ...run, token: claim?.token ?? 0 }, [])).kind, "ended");
    });

    it("and the end of its turn: ended first, there is nothing to stop, and it is a message like any other", async () => {
      const run = await aClaimedRun(ledger.db);
      await respond(ledger.db, run, []);
      const conversation = await conversationOf(ledger, run.runId);
      const paused = pausedBefore(other, "request_stop");
      const arriving = ingest(paused.runner, word(run));
      await paused.arrived;
      const held = await hold(ledger.db, (tx) => endIn(tx, run, conversation));
      paused.go();
      await untilBlocked(ledger.url);
      await held.commit();
      assert.equal((await arriving).kind, "new_run");
    });

    it("and a write: crossed first, the turn tells what it did; stopped first, nothing leaves", async () => {
      for (const crossedFirst of [true, false]) {
        const run = await aClaimedRun(ledger.db);
        const call = aCall();
        await respond(ledger.db, run, [call]);
        if (crossedFirst) {
          const [crossing, stopped] = await overlap({ db: ledger.db, body: (tx) => cross(tx, run, call) }, () =>
            ingest(other, word(run)),
          );
          assert.deepEqual([crossing.result.kind, stopped.kind], ["crossed", "stopping"]);
        } else {
          const [stopped, crossing] = await overlap({ db: ledger.db, body: (tx) => ingest(tx, word(run)) }, () =>
            cross(other, run, call),
          );
          assert.deepEqual([stopped.kind, crossing.result.kind], ["cancelled", "ended"]);
        }
      }
    });
  });

  describe("a message that a model is asked about", () => {
    it("and a write: asked first, the write waits; written first, it has left", async () => {
      for (const asked of [true, false]) {
        const run = await aClaimedRun(ledger.db);
        const call = aCall();
        await respond(ledger.db, run, [call]);
        const message = next(run, { askable: true });
        const [first, second] = asked
          ? await overlap({ db: ledger.db, body: (tx) => ingest(tx, message) }, () => cross(other, run, call))
          : await overlap({ db: ledger.db, body: (tx) => cross(tx, run, call) }, () => ingest(other, message));
        const taken = "result" in first ? second : first;
        const crossing = "result" in first ? first : second;
        assert.equal((taken as { kind: string }).kind, "undecided");
        assert.equal((crossing as { result: { kind: string } }).result.kind, asked ? "hold" : "crossed");
      }
    });

    it("and the end of the turn: asked first, it is in the next turn (C58)", async () => {
      const run = await aClaimedRun(ledger.db);
      await respond(ledger.db, run, []);
      const message = next(run, { askable: true });
      const [asked, ended] = await overlap({ db: ledger.db, body: (tx) => ingest(tx, message) }, () => end(other, run));
      assert.equal(asked.kind, "undecided");
      assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
      assert.equal((await stateOf((asked as { eventId: string }).eventId))?.run_id, ended.nextRunId);
    });
  });

  it("two messages to a turn that can take one more: one folds, the other is of the next turn", async () => {
    const policy = { ...policyOf(null), quietMs: 60_000, maxCount: 2 };
    const run = await aRun(ledger.db, { policy });
    const [folded, queued] = await overlap({ db: ledger.db, body: (tx) => ingest(tx, next(run, { policy })) }, () =>
      ingest(other, next(run, { policy })),
    );
    assert.deepEqual([folded.kind, queued.kind], ["folded", "queued"]);
  });

  it("a fold and a stop: the stop ends the turn for its author, the other's message opens the next", async () => {
    const run = await aRun(ledger.db);
    const [folded, stopped] = await overlap(
      { db: ledger.db, body: (tx) => ingest(tx, next(run, { actor: bob })) },
      () => stop(other, run.eventId),
    );
    assert.equal(folded.kind, "folded");
    assert.equal(stopped, "withdrawn");
    assert.deepEqual(await stateOf((folded as { eventId: string }).eventId), { state: "in_turn", run_id: run.runId });
    assert.equal((await runRow(ledger, run.runId)).status, "queued");
  });

  describe("an outcome and a second sending", () => {
    async function lost() {
      const run = await aClaimedRun(ledger.db);
      const call = aCall();
      await respond(ledger.db, run, [call]);
      const { request } = await cross(ledger.db, run, call, { keyed: true });
      await sql(
        ledger,
        "update commitment_effects set send_by = pawl_now() - interval '1 s', settle_at = pawl_now() where id = $1",
        [request.effectId],
      );
      const again = { ...run, effectId: request.effectId, nonce: uuidv7(), sendMs: 100, settleMs: 200, maxAttempts: 5 };
      const news = { ...request, state: "confirmed", receipt: { status: 201 }, observation: "201" } as const;
      return { again, news };
    }

    it("settled first: it does not go again", async () => {
      const { again, news } = await lost();
      const [settled, sent] = await overlap({ db: ledger.db, body: (tx) => settleEffect(tx, news) }, () =>
        redispatchEffect(other, again),
      );
      assert.equal(settled, "settled");
      assert.deepEqual(sent, { kind: "refused" });
    });

    it("sent first: the earlier sender's news is of another attempt", async () => {
      const { again, news } = await lost();
      const [sent, settled] = await overlap({ db: ledger.db, body: (tx) => redispatchEffect(tx, again) }, () =>
        settleEffect(other, news),
      );
      assert.deepEqual(sent, { kind: "crossed", attempt: 2 });
      assert.equal(settled, "conflict");
      assert.equal(await settleEffect(other, { ...news, nonce: again.nonce }), "settled");
    });
  });

  describe("two controllers that record one agent", () => {
    const agent = (name: string, specHash: string) => ({
      namespaceUid: NAMESPACE_UID,
      namespace: "demo",
      name,
      spec: {},
      specHash,
      suspended: false,
    });

    it("create it once", async () => {
      const name = uuidv7();
      const [first, second] = await overlap({ db: ledger.db, body: (tx) => recordAgent(tx, agent(name, "1")) }, () =>
        recordAgent(other, agent(name, "1")),
      );
      assert.deepEqual(second, first);
      assert.ok(againOf("record_agent"));
    });

    it("count its generations one by one", async () => {
      const { id } = await recordAgent(ledger.db, agent("shared", "1"));
      const [first, second] = await overlap(
        { db: ledger.db, body: (tx) => recordAgent(tx, agent("shared", "2")) },
        () => recordAgent(other, agent("shared", "3")),
      );
      assert.deepEqual(
        [first, second],
        [
          { id, generation: 2 },
          { id, generation: 3 },
        ],
      );
    });
  });

  it("a lease given back and the run's stop: whoever is first, the run ends once", async () => {
    const run = await aClaimedRun(ledger.db);
    const release = { ...run, delayMs: 0, reason: null, message: null, failed: false };
    const [released, stopped] = await overlap({ db: ledger.db, body: (tx) => releaseLease(tx, release) }, () =>
      stop(other, run.eventId),
    );
    assert.deepEqual([released, stopped], ["released", "cancelled"]);
    assert.equal(await releaseLease(ledger.db, release), "ended");
  });
});

function endIn(
  tx: Runner,
  run: { runId: string; token: number },
  conversationId: string,
  changes: Partial<TurnEnd> = {},
) {
  return finishTurn(tx, {
    conversationId,
    runId: run.runId,
    token: run.token,
    nonce: uuidv7(),
    status: "succeeded",
    seenSeq: 1,
    reason: null,
    message: null,
    ...changes,
  });
}
