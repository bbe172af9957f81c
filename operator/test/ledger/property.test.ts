/** Random sequences of everything that two workers and some people can do, on real PostgreSQL, against a model. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { v7 as uuidv7 } from "uuid";
import { armFailpoint, disarmFailpoint } from "#src/failpoints.ts";
import { redispatchEffect, settleEffect } from "#ledger/effects.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun, releaseLease } from "#ledger/leases.ts";
import { ingest, type Message as Incoming } from "#ledger/mailbox.ts";
import { commitResults } from "#ledger/steps.ts";
import * as model from "../support/model.ts";
import { end, lapse, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aMessage, anAgent, CODE, cross, respond } from "../support/world.ts";

const WEIGHTS = {
  ingest: 5,
  duplicate: 1,
  claim: 6,
  respond: 6,
  cross: 7,
  settle: 4,
  overdue: 2,
  redispatch: 3,
  results: 4,
  finish: 2,
  stop: 1,
  release: 2,
  lapse: 2,
} as const;
type Op = keyof typeof WEIGHTS;
const STATEMENT: Partial<Record<Op, string>> = {
  ingest: "ingest_event",
  respond: "commit_response",
  cross: "cross_effect",
  settle: "settle_effect",
  redispatch: "redispatch_effect",
  results: "commit_results",
  finish: "finish_turn",
  stop: "request_stop",
  release: "release_lease",
};
const step = fc.record({
  op: fc.oneof(...Object.entries(WEIGHTS).map(([op, weight]) => ({ weight, arbitrary: fc.constant(op as Op) }))),
  worker: fc.nat(1),
  pick: fc.nat(1000),
  /** Is the reply of its commit lost? */
  lost: fc.nat(19).map((n) => n === 0),
});
type Step = { op: Op; worker: number; pick: number; lost: boolean };
const MAX_ATTEMPTS = 3;
const AUTHORS = ["alice", "bob"] as const;
const OUTCOMES = ["confirmed", "failed", "unknown"] as const;
const SEED = Date.now() % 2 ** 31;

describe("any sequence of operations", function () {
  this.timeout(120_000);
  const ledger = useLedger();
  const reached = new Map<string, number>();

  class World {
    readonly agentId: string;
    readonly incoming: Incoming[] = [];
    readonly conversations: model.Conversation[] = ["a", "b"].map((key) => ({ key, seq: 0, messages: [], runs: [] }));
    readonly workers: model.Worker[] = [0, 1].map((index) => ({ index, run: null, token: 0 }));

    constructor(agentId: string) {
      this.agentId = agentId;
    }

    /** Compares, and notes that this answer was reached. A lost reply may come back as `already`. */
    expect({ op, lost }: Step, answer: string, expected: string): void {
      reached.set(`${op} ${expected}`, (reached.get(`${op} ${expected}`) ?? 0) + 1);
      if (!(lost && answer === "already")) assert.equal(answer, expected, op);
    }

    messages = () => this.conversations.flatMap(({ messages }) => messages);
    runs = () => this.conversations.flatMap(({ runs }) => runs);
    effects = () => this.runs().flatMap(({ calls }) => calls.flatMap(({ effect }) => effect ?? []));

    /** What to do instead where there is nothing to do it to, so that sequences go somewhere. */
    applicable(s: Step): Op {
      const { run } = pick(this.workers, s.worker);
      const idle = run === null || (!run.live && s.pick % 6 > 0);
      const claims = model.claimable(this.conversations);
      const nothingDue = claims.lapsed.length + claims.due.length === 0 && s.pick % 6 > 0;
      if (s.op === "claim") return nothingDue ? "ingest" : "claim";
      if (
        ["respond", "cross", "redispatch", "results", "finish", "release", "settle", "overdue"].includes(s.op) &&
        idle
      ) {
        return nothingDue ? "ingest" : "claim";
      }
      const open = run?.calls.filter((call) => call.open) ?? [];
      const ready = open.some(({ effect }) => effect === null);
      if (s.op === "respond" && open.length > 0) return ready && s.pick % 3 > 0 ? "cross" : "results";
      if (s.op === "cross" && !ready) return open.length > 0 ? "settle" : "respond";
      if (["settle", "overdue", "redispatch"].includes(s.op) && this.effects().length === 0) {
        return ready ? "cross" : open.length > 0 ? "results" : "respond";
      }
      return s.op;
    }

    async run(step: Step): Promise<void> {
      const s = { ...step, op: this.applicable(step) };
      const lossy = s.lost ? STATEMENT[s.op] : undefined;
      if (lossy !== undefined) armFailpoint(`after:${lossy}:1:swallow`);
      try {
        await this[s.op](s);
      } finally {
        disarmFailpoint();
      }
    }

    async ingest(s: Step): Promise<void> {
      const conversation = pick(this.conversations, s.pick);
      const author = pick(AUTHORS, s.pick >> 3);
      const actor = { connector: "kubernetes", extId: author };
      const incoming = aMessage(this.agentId, { conversationKey: conversation.key, actor });
      const expected = model.ingestVerdict(conversation);
      const answer = await ingest(ledger.db, incoming);
      this.expect(s, answer.kind, expected);
      assert.ok(answer.kind !== "duplicate");
      assert.ok(answer.seq > conversation.seq, "sequence numbers only grow");
      conversation.seq = answer.seq;
      const run =
        answer.kind === "new_run" ? model.newRun(conversation, answer.runId) : (model.liveRun(conversation) ?? null);
      if (answer.kind === "folded") assert.equal(answer.runId, run?.id);
      const queued = answer.kind === "queued";
      const state = queued ? "pending" : "in_turn";
      this.incoming.push(incoming);
      conversation.messages.push({
        id: answer.eventId,
        seq: answer.seq,
        author,
        state,
        run: queued ? null : run,
        delivered: false,
      });
    }

    async duplicate(s: Step): Promise<void> {
      if (this.incoming.length === 0) return;
      const answer = await ingest(ledger.db, pick(this.incoming, s.pick));
      this.expect(s, answer.kind, "duplicate");
    }

    async claim(s: Step): Promise<void> {
      const worker = pick(this.workers, s.worker);
      const { lapsed, due } = model.claimable(this.conversations);
      const claim = await claimRun(ledger.db, `worker-${worker.index}`, 600_000, CODE);
      this.expect(
        s,
        claim === null ? "none" : claim.takeover ? "takeover" : "claimed",
        lapsed.length > 0 ? "takeover" : due.length > 0 ? "claimed" : "none",
      );
      if (claim === null) return;
      const run = [...lapsed, ...due].find(({ id }) => id === claim.runId);
      assert.ok(run !== undefined && (lapsed.length === 0 || lapsed.includes(run)));
      assert.equal(claim.token, run.token + 1);
      Object.assign(run, { token: claim.token, holder: worker.index, lapsed: false, status: "running" });
      Object.assign(worker, { run, token: claim.token });
    }

    async lapse(s: Step): Promise<void> {
      const held = this.runs().filter(({ live, holder }) => live && holder !== null);
      if (held.length === 0) return;
      const run = pick(held, s.pick);
      await lapse(ledger, run.id);
      run.lapsed = true;
    }

    async respond(s: Step): Promise<void> {
      const worker = pick(this.workers, s.worker);
      const { run } = worker;
      // A worker builds its request from rows: it never asks a model while a call is open.
      if (run === null || run.calls.some(({ open }) => open)) return;
      const refused = model.refusal(worker, run);
      const calls = Array.from({ length: s.pick % 4 }, (_, idx) =>
        aCall({ idx, target: `target-${(s.pick >> idx) % 3}` }),
      );
      if ((s.pick >> 4) % 3 === 0)
        calls.push(aCall({ idx: calls.length, class: "reply", kind: "reply", target: null }));
      const seenSeq = run.conversation.seq;
      const answer = await respond(ledger.db, { runId: run.id, token: worker.token }, calls, {
        ordinal: run.ordinal,
        seenSeq,
      });
      this.expect(s, answer.kind, refused ?? "committed");
      if (refused !== null) return;
      run.ordinal += 1;
      for (const message of model.triggersOf(run)) message.delivered = true;
      run.calls.push(...calls.map((row) => ({ row, effect: null, open: true })));
      run.status = model.openTools(run).length > 0 ? "awaiting_tool" : "running";
    }

    async cross(s: Step): Promise<void> {
      const worker = pick(this.workers, s.worker);
      const { run } = worker;
      const ready = run?.calls.filter(({ open, effect }) => open && effect === null) ?? [];
      if (run === null || ready.length === 0) return;
      const call = pick(ready, s.pick);
      const reply = call.row.class === "reply";
      const target = call.row.target ?? "reply";
      const keyed = (s.pick >> 4) % 2 === 0;
      const expected = model.crossVerdict(worker, run, call, target);
      const { request, result } = await cross(ledger.db, { runId: run.id, token: worker.token }, call.row, {
        keyed,
        settleMs: 600_000,
        ...(reply ? { receipt: { row: true } } : {}),
      });
      this.expect(s, result.kind, expected);
      if (expected !== "crossed") return;
      run.committed = true;
      run.replied ||= reply;
      const state = reply ? "confirmed" : "dispatched";
      call.effect = {
        id: request.effectId,
        nonce: request.nonce,
        formerNonces: [],
        target,
        keyed,
        attempt: 1,
        overdue: false,
        state,
      };
    }

    async settle(s: Step): Promise<void> {
      if (this.effects().length === 0) return;
      const effect = pick(this.effects(), s.pick);
      const state = pick(OUTCOMES, s.pick >> 4);
      const nonce = pick([effect.nonce, effect.nonce, effect.nonce, ...effect.formerNonces], s.pick >> 6);
      const expected = model.settleVerdict(effect, nonce, state);
      const receipt = state === "confirmed" ? { status: 201 } : null;
      this.expect(
        s,
        await settleEffect(ledger.db, { effectId: effect.id, nonce, state, receipt, observation: state }),
        expected,
      );
      if (expected === "settled") effect.state = state;
    }

    async overdue(s: Step): Promise<void> {
      if (this.effects().length === 0) return;
      const effect = pick(this.effects(), s.pick);
      await sql(
        ledger,
        "update commitment_effects set send_by = pawl_now() - interval '2 s', settle_at = pawl_now() - interval '1 s' where id = $1",
        [effect.id],
      );
      effect.overdue = true;
    }

    async redispatch(s: Step): Promise<void> {
      const worker = pick(this.workers, s.worker);
      const sent =
        worker.run?.calls.flatMap(({ effect, row }) => (effect === null || row.class === "reply" ? [] : [effect])) ??
        [];
      if (worker.run === null || sent.length === 0) return;
      const effect = pick(sent, s.pick);
      const nonce = uuidv7();
      const expected = model.redispatchVerdict(worker, worker.run, effect, MAX_ATTEMPTS);
      const answer = await redispatchEffect(ledger.db, {
        runId: worker.run.id,
        token: worker.token,
        effectId: effect.id,
        nonce,
        sendMs: 10_000,
        settleMs: 600_000,
        maxAttempts: MAX_ATTEMPTS,
      });
      this.expect(s, answer.kind, expected);
      if (expected !== "crossed") return;
      effect.formerNonces.push(effect.nonce);
      Object.assign(effect, { nonce, attempt: effect.attempt + 1, overdue: false, state: "dispatched" });
    }

    async results(s: Step): Promise<void> {
      const worker = pick(this.workers, s.worker);
      const { run } = worker;
      if (run === null) return;
      const known = run.calls.filter(({ open, effect }) => open && effect?.state !== "dispatched");
      const closing = known.slice(0, Math.max(1, s.pick % 5));
      const refused = model.refusal(worker, run);
      const results = closing.map(
        ({ row, effect }) =>
          ({
            id: row.id,
            outcome:
              effect === null
                ? row.class === "reply"
                  ? "withheld"
                  : "skipped"
                : effect.state === "unknown"
                  ? "unknown"
                  : "real",
            result: "observed",
          }) as const,
      );
      const answer = await commitResults(ledger.db, { runId: run.id, token: worker.token, nonce: uuidv7() }, results);
      this.expect(s, answer.kind, refused ?? "committed");
      if (refused !== null) return;
      for (const call of closing) call.open = false;
      if (model.openTools(run).length === 0) run.status = "running";
    }

    async finish(s: Step): Promise<void> {
      const worker = pick(this.workers, s.worker);
      const { run } = worker;
      if (run === null) return;
      const status = pick(["succeeded", "failed", "cancelled", "budget_exhausted"] as const, s.pick);
      const seenSeq = s.pick % 3 === 0 ? run.conversation.seq : 0;
      const refused = model.refusal(worker, run);
      const answer = await end(ledger.db, { runId: run.id, token: worker.token }, { status, seenSeq });
      this.expect(s, answer.kind, refused ?? "finished");
      if (refused !== null) return;
      await this.next(run, model.endRun(run, status, seenSeq, null));
    }

    async stop(s: Step): Promise<void> {
      if (this.messages().length === 0) return;
      const message = pick(this.messages(), s.pick);
      const expected = model.stopVerdict(message);
      this.expect(s, await stop(ledger.db, message.id), expected);
      if (expected === "withdrawn") Object.assign(message, { state: "withdrawn", run: null });
      if (message.run === null) return;
      if (expected === "stopping") message.run.stopping = true;
      if (expected === "cancelled")
        await this.next(message.run, model.endRun(message.run, "cancelled", 0, message.author));
    }

    async release(s: Step): Promise<void> {
      const worker = pick(this.workers, s.worker);
      const { run } = worker;
      if (run === null) return;
      const again = run.live && run.holder === null && run.token === worker.token;
      const refused = again ? "already" : model.refusal(worker, run);
      const answer = await releaseLease(ledger.db, {
        runId: run.id,
        token: worker.token,
        delayMs: 0,
        reason: null,
        message: null,
        failed: s.pick % 2 === 0,
      });
      this.expect(s, answer, refused ?? "released");
      if (refused !== null) return;
      Object.assign(run, {
        holder: null,
        lapsed: false,
        status: model.openTools(run).length > 0 ? "awaiting_tool" : "running",
      });
    }

    /** The run that follows, if anything waits: its id is the ledger's, that there is one is the model's. */
    async next(run: model.Run, waiting: readonly model.Message[]): Promise<void> {
      const [row] = await sql<{ live_run: string | null }>(
        ledger,
        "select live_run from conversations where ext_key = $1",
        [run.conversation.key],
      );
      assert.equal((row?.live_run ?? null) !== null, waiting.length > 0, "a next turn exactly if something waits");
      if (row?.live_run != null) model.openNext(run, waiting, row.live_run);
    }

    async compare(): Promise<void> {
      const found = await checkInvariants(ledger.db);
      assert.deepEqual(found, []);
      const runs = await sql(
        ledger,
        "select id, status, live, lease_token as token, committed_at is not null as committed, reply_at is not null as replied, stop_requested_at is not null as stopping from runs order by id",
      );
      const shown = this.runs().map(({ id, status, live, token, committed, replied, stopping }) => ({
        id,
        status,
        live,
        token,
        committed,
        replied,
        stopping,
      }));
      assert.deepEqual(
        runs,
        shown.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
      );
      const messages = await sql(
        ledger,
        "select id, state, run_id as run from message_events where kind = 'message' order by id",
      );
      const told = this.messages().map(({ id, state, run }) => ({ id, state, run: run?.id ?? null }));
      assert.deepEqual(
        messages,
        told.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
      );
      const effects = await sql(ledger, "select id, state, attempt from commitment_effects order by id");
      const known = this.effects().map(({ id, state, attempt }) => ({ id, state, attempt }));
      assert.deepEqual(
        effects,
        known.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
      );
    }

    /** A patient worker ends whatever is alive; each end may open a next turn. */
    async drain(): Promise<void> {
      for (let turns = 0; this.runs().some(({ live }) => live); turns += 1) {
        assert.ok(turns < 100, "turns end");
        const calm = { worker: 0, pick: 0, lost: false };
        for (const run of this.runs()) {
          if (!run.live || run.holder === null || run.lapsed) continue;
          await lapse(ledger, run.id);
          run.lapsed = true;
        }
        await this.claim({ ...calm, op: "claim" });
        await this.finish({ ...calm, op: "finish" });
      }
    }
  }

  const property = fc.asyncProperty(fc.array(step, { minLength: 15, maxLength: 45, size: "max" }), async (steps) => {
    await sql(ledger, "truncate agents, actors, conversations, runs, message_events cascade");
    const world = new World((await anAgent(ledger.db)).id);
    for (const each of steps) {
      await world.run(each);
      await world.compare();
    }
    await world.drain();
    await world.compare();
    for (const { state } of world.messages()) assert.ok(state === "accounted" || state === "withdrawn", state);
  });

  it(`keeps every invariant, answers as the model does and loses no message (seed ${SEED})`, async () => {
    await fc.assert(property, { seed: SEED, numRuns: 60, endOnFailure: true });
    const missed = PLACES.filter((place) => !reached.has(place));
    assert.deepEqual(missed, [], `sequences that go nowhere prove nothing: ${JSON.stringify([...reached])}`);
  });
});

const PLACES = [
  "ingest new_run",
  "ingest folded",
  "ingest queued",
  "duplicate duplicate",
  "claim none",
  "claim takeover",
  "respond committed",
  "cross crossed",
  "settle settled",
  "results committed",
  "finish finished",
  "stop cancelled",
  "release released",
];

function pick<T>(from: readonly T[], index: number): T {
  const value = from[index % from.length];
  assert.ok(value !== undefined);
  return value;
}
