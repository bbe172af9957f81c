/**
 * The engine against a model of what it promises: random sequences of everything that people, the world and death do to
 * two workers on a real ledger. The real engine drives every turn; only the model's answers, the world and the passing of
 * time are made here. After each operation every invariant has to hold, and in the end nothing is lost, nothing done twice.
 */
import assert from "node:assert/strict";
import fc from "fast-check";
import { v7 as uuidv7 } from "uuid";
import { decideApproval, readApprovals } from "#ledger/approvals.ts";
import { Database } from "#ledger/database.ts";
import { resolveEffect, settleEffect } from "#ledger/effects.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest, type Message } from "#ledger/mailbox.ts";
import { requestStop } from "#ledger/turns.ts";
import { driveRun } from "#engine/drive.ts";
import type { EngineDeps } from "#engine/deps.ts";
import type { ModelOutcome, ModelRequest } from "#engine/ports.ts";
import { CODE } from "#rules/limits.ts";
import { applied } from "../support/approvals.ts";
import { asks, bench, engineAgent, quick, says } from "../support/engine.ts";
import { aMessage, NAMESPACE_UID } from "../support/world.ts";
import { Mortal } from "./mortal.ts";
import { FATES, type Fate, Outside, writing } from "./outside.ts";

const WEIGHTS = {
  deliver: 5,
  duplicate: 1,
  work: 10,
  expire: 4,
  cancel: 2,
  settleLate: 2,
  resolve: 2,
  approve: 3,
} as const;
export type Op = keyof typeof WEIGHTS;

const CALLS = ["echo", "keyed a", "keyed b", "plain a", "plain b", "guarded a"] as const;
/** What the model asks for in a turn, response by response; then it answers. */
const plan = fc.array(fc.array(fc.constantFrom(...CALLS), { minLength: 1, maxLength: 4 }), {
  minLength: 1,
  maxLength: 3,
});
const step = fc.record({
  op: fc.oneof(...Object.entries(WEIGHTS).map(([op, weight]) => ({ weight, arbitrary: fc.constant(op as Op) }))),
  worker: fc.nat(1),
  pick: fc.nat(1000),
  plan,
  fates: fc.array(fc.constantFrom(...FATES), { maxLength: 5, size: "max" }),
  /** After how many statements the worker dies; beyond what a turn takes it lives. */
  dies: fc.option(fc.record({ after: fc.nat(18), behind: fc.boolean() }), { freq: 2 }),
});
export type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;
export const sequence = fc.array(step, { minLength: 6, maxLength: 14, size: "max" });

/** How often something was tried, and how often it happened: sequences that go nowhere prove nothing. */
export class Tally {
  readonly counts = new Map<string, number>();

  add(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }
}

type Worker = { readonly db: Mortal; readonly deps: EngineDeps };
type Delivered = { readonly eventId: string; readonly message: Message };
type Row = { id: string; run_id: string; nonce: string; state: string; keyed: boolean; target: string };

/** One ledger, one world, two workers; `run` plays one sequence and checks it. */
export class Soak {
  readonly #db: Database;
  readonly #tally: Tally;
  readonly #workers: readonly Worker[];
  #outside = new Outside();
  #agent = { id: "", generation: 1 };
  #delivered: Delivered[] = [];
  #plans = new Map<string, readonly (readonly string[])[]>();

  private constructor(db: Database, tally: Tally) {
    this.#db = db;
    this.#tally = tally;
    this.#workers = [1, 2].map((number) => this.#worker(number));
  }

  static open(url: string, tally: Tally): Soak {
    return new Soak(new Database({ url, max: 4 }), tally);
  }

  async close(): Promise<void> {
    await Promise.all([this.#db.close(), ...this.#workers.map(({ db }) => db.close())]);
  }

  #worker(number: number): Worker {
    const db = new Mortal({ url: this.#db.url, max: 4 });
    const outside = new Proxy(this.#outside, {
      get: (_target, name) => Reflect.get(this.#outside, name, this.#outside),
    });
    const tools = [
      quick,
      writing("keyed", true, outside, db),
      writing("plain", false, outside, db),
      writing("guarded", true, outside, db),
    ];
    const { deps } = bench(db, [], tools, {
      // No timer of the engine fires by itself: leases lapse where an operation says so.
      settings: { owner: `worker-${number}`, leaseMs: 600_000, renewMs: 250_000 },
      deps: {
        model: { complete: (request) => Promise.resolve(this.#say(request)) },
        clock: { monotonic: () => performance.now(), sleep: () => this.#timePasses() },
      },
    });
    return { db, deps };
  }

  /** By the plan that the newest message names, and by how many responses stand behind it: no state of its own. */
  #say({ messages }: ModelRequest): ModelOutcome {
    const texts = messages.map(({ role, content }) => (role === "user" ? (content ?? "") : ""));
    const newest = texts.findLastIndex((text) => text.includes("plan:"));
    const name = /plan:(\S+)/.exec(texts[newest] ?? "")?.[1] ?? "";
    const said = messages.slice(newest + 1).filter(({ role }) => role === "assistant").length;
    const calls = this.#plans.get(name)?.[said];
    if (calls === undefined) return says("That is all.");
    return asks(
      ...calls.map((call): [string, unknown] => {
        const [tool = "", to] = call.split(" ");
        return [tool, to === undefined ? {} : { to }];
      }),
    );
  }

  /** What waits for a time does not wait here: everything that can be overdue is. */
  async #timePasses(): Promise<void> {
    await this.#db.pool.query(
      `update commitment_effects set send_by = pawl_now() - interval '2 s', settle_at = pawl_now() - interval '1 s'
       where state in ('dispatched', 'unknown') and settle_at > pawl_now()`,
    );
  }

  async #rows<R extends object>(text: string, values: readonly unknown[] = []): Promise<R[]> {
    return (await this.#db.pool.query<R>(text, [...values])).rows;
  }

  async run(steps: readonly Step[]): Promise<void> {
    await this.#db.pool.query("truncate agents, actors, conversations, runs, message_events cascade");
    this.#outside = new Outside();
    this.#outside.fates = steps.flatMap(({ fates }): readonly Fate[] => fates);
    this.#delivered = [];
    this.#plans.clear();
    const { id, generation } = await engineAgent(this.#db, ["echo", "keyed", "plain", "guarded"], {
      tools: { effects: ["keyed", "guarded"].map((tool) => ({ tool, key: "id" })), requireApproval: ["guarded"] },
    });
    this.#agent = { id, generation };
    for (const each of steps) {
      this.#tally.add(each.op);
      await this[each.op](each);
      await this.#check();
    }
    await this.#drain();
    await this.#check();
    await this.#judge();
  }

  async deliver({ pick, plan: responses }: Step): Promise<void> {
    const name = uuidv7();
    this.#plans.set(name, responses);
    const message = aMessage(this.#agent.id, {
      generation: this.#agent.generation,
      conversationKey: `c${pick % 2}`,
      actor: { connector: "kubernetes", extId: ["alice", "bob"][(pick >> 1) % 2] ?? "" },
      extId: name,
      text: `plan:${name}`,
      applied: applied(name),
    });
    const { eventId, kind } = (await ingest(this.#db, message)) as { eventId: string; kind: string };
    this.#tally.add(`deliver ${kind}`);
    this.#delivered.push({ eventId, message });
  }

  async duplicate({ pick }: Step): Promise<void> {
    const again = this.#delivered[pick % Math.max(1, this.#delivered.length)];
    if (again === undefined) return;
    assert.equal((await ingest(this.#db, again.message)).kind, "duplicate");
  }

  async work({ worker, dies }: Step): Promise<void> {
    const one = this.#workers[worker] as Worker;
    const claim = await claimRun(one.db, one.deps.settings.owner, one.deps.settings.leaseMs, CODE);
    if (claim === null) return;
    this.#tally.add(claim.takeover ? "claim takeover" : "claim due");
    if (dies !== null) one.db.doom(dies.after, dies.behind);
    await driveRun(one.deps, claim, new AbortController().signal);
    this.#tally.add(one.db.dead ? "worker died" : "worker done");
    one.db.revive();
  }

  async expire({ pick }: Step): Promise<void> {
    const held = await this.#rows<{ id: string }>(
      "select id from runs where live and lease_until is not null order by id",
    );
    const run = held[pick % Math.max(1, held.length)];
    if (run === undefined) return;
    this.#tally.add("lease lapsed");
    await this.#rows("update runs set lease_until = pawl_now() - interval '1 second' where id = $1", [run.id]);
  }

  async cancel({ pick }: Step): Promise<void> {
    const one = this.#delivered[pick % Math.max(1, this.#delivered.length)];
    if (one === undefined) return;
    const actor = { connector: "kubernetes", extId: "alice" };
    const stop = { eventId: one.eventId, extId: `stop-${uuidv7()}`, actor, why: "enough" };
    this.#tally.add(`cancel ${await requestStop(this.#db, stop)}`);
  }

  /** A worker that lost everything but its memory writes down what it saw. */
  async settleLate({ pick }: Step): Promise<void> {
    const open = await this.#rows<Row>(
      "select id, nonce from commitment_effects where state in ('dispatched', 'unknown') and kind <> 'reply' order by id",
    );
    const effect = open[pick % Math.max(1, open.length)];
    if (effect === undefined || !this.#outside.applied.has(effect.id)) return;
    const { id: effectId, nonce } = effect;
    const settled = await settleEffect(this.#db, {
      effectId,
      nonce,
      state: "confirmed",
      receipt: {},
      observation: "late",
    });
    this.#tally.add(`settle late ${settled}`);
  }

  /** A person looks, and says what is there. */
  async resolve({ pick }: Step): Promise<void> {
    const open = await this.#rows<Row>("select id from commitment_effects where state = 'unknown' order by id");
    const effect = open[pick % Math.max(1, open.length)];
    if (effect === undefined) return;
    const landed = this.#outside.applied.has(effect.id);
    const answer = await resolveEffect(this.#db, { effectId: effect.id, landed, by: "carol", reason: null });
    this.#tally.add(`resolve ${answer.kind}`);
  }

  /** Somebody decides about a call that waits, or waited when its turn ended: then it is too late, and says so. */
  async approve({ pick }: Step, onlyAlive = false): Promise<void> {
    const waiting = await this.#rows<{ id: string; run_id: string; hash: string; object_name: string }>(
      `select a.id, a.run_id, a.hash, k.object_name from approvals a join run_triggers t on t.run_id = a.run_id
       join run_keys k on k.event_id = t.event_id join runs r on r.id = a.run_id
       where a.state = 'open' and (r.live or not $1::bool) order by a.id`,
      [onlyAlive],
    );
    const one = waiting[pick % Math.max(1, waiting.length)];
    if (one === undefined) return;
    const answer = await decideApproval(this.#db, {
      request: one.id,
      decision: `decision-${uuidv7()}`,
      subject: { namespaceUid: NAMESPACE_UID, name: one.object_name },
      actor: { connector: "kubernetes", extId: "dora", groups: [] },
      approve: pick % 3 > 0,
      hash: one.hash,
      reason: null,
    });
    assert.equal(
      (await readApprovals(this.#db, one.run_id)).some(({ id }) => id === one.id),
      true,
    );
    this.#tally.add(`approval ${answer.kind}`);
  }

  /** After every operation. */
  async #check(): Promise<void> {
    assert.deepEqual(await checkInvariants(this.#db), []);
    for (const [id, times] of this.#outside.applied) assert.equal(times, 1, `effect ${id} was applied ${times} times`);
  }

  /** Two healthy workers and a patient person: everything that is alive ends. */
  async #drain(): Promise<void> {
    const calm = { worker: 0, pick: 1, plan: [], fates: [], dies: null, op: "work" } as const;
    for (let turns = 0; ; turns += 1) {
      const [alive] = await this.#rows<{ n: number }>("select count(*)::int as n from runs where live");
      if (alive?.n === 0) return;
      assert.ok(turns < 100, "turns end");
      await this.#rows(
        "update runs set lease_until = pawl_now() - interval '1 second' where live and lease_until is not null",
      );
      await this.work({ ...calm, worker: turns % 2, plan: [], fates: [] });
      await this.approve({ ...calm, op: "approve", plan: [], fates: [] }, true);
    }
  }

  /** What must be true when everything is over, by what the world really did. */
  async #judge(): Promise<void> {
    const messages = await this.#rows<{ state: string }>("select state from message_events where kind = 'message'");
    assert.equal(messages.length, this.#delivered.length);
    for (const { state } of messages) assert.ok(["accounted", "withdrawn"].includes(state), `a message is ${state}`);
    const effects = await this.#rows<Row>(
      "select id, run_id, state, keyed, target from commitment_effects where kind <> 'reply'",
    );
    const known = new Set(effects.map(({ id }) => id));
    for (const id of this.#outside.applied.keys()) assert.ok(known.has(id), "the world did what no row speaks of");
    for (const { id, state, keyed } of effects) {
      const happened = this.#outside.applied.has(id);
      assert.notEqual(state, "dispatched", "nothing is left in the air");
      if (state === "confirmed") assert.ok(happened, "a confirmed effect took place");
      if (state === "failed") assert.ok(!happened, "a failed effect did not take place");
      if (!keyed) assert.ok((this.#outside.sends.get(id) ?? 0) <= 1, "a write without key was sent once at most");
      this.#tally.add(`effect ${state}`);
    }
    const twice = await this.#rows<{ run_id: string }>(
      "select run_id from commitment_effects where kind = 'reply' and state = 'confirmed' group by run_id having count(*) > 1",
    );
    assert.deepEqual(twice, [], "one reply a turn");
  }
}

/** What a soak of any length has to have met. */
export const PLACES = [
  "deliver new_run",
  "deliver folded",
  "deliver queued",
  "claim due",
  "claim takeover",
  "worker died",
  "worker done",
  "cancel cancelled",
  "approval approved",
  "approval rejected",
  "effect confirmed",
  "effect failed",
  "effect unknown",
] as const;
