/** Carries out what was decided about a Run, and looks again after each step that changed what was looked at. */
import type { RunStatus } from "@pawl/crds";
import type { Outcome } from "#kube/queue.ts";
import { type KubeObject, refOf, RUNS } from "#kube/resources.ts";
import { KubeError } from "#kube/errors.ts";
import { ingest } from "#ledger/mailbox.ts";
import { requestStop } from "#ledger/turns.ts";
import { isPawlError } from "#rules/errors.ts";
import { type Context, OwnWrites } from "../context.ts";
import { changeOf, Pace } from "../status.ts";
import { announcements } from "./announce.ts";
import { decideRun, expiresIn, type RunFacts, statusOf } from "./decide.ts";
import type { Departures } from "./departures.ts";
import { downgradeOf } from "./joined.ts";
import { observeRun } from "./observe.ts";
import { type Arrivals, MAX_ORDER_WAIT_MS, ORDER_LOOK_MS } from "./order.ts";

/** Steps of one reconcile: stop, admit, show, each after another look. More means that somebody writes all the time. */
const MAX_ROUNDS = 6;
/** A ledger that is behind the status may catch up (we are late) or not (it was restored): look now and then. */
const BEHIND_MS = 30_000;

const signalOf = (signal: AbortSignal | undefined) => (signal === undefined ? {} : { signal });

export class RunController {
  readonly #context: Context;
  readonly #departures: Departures;
  readonly #own = new OwnWrites();
  readonly #pace: Pace;
  /** Runs whose status is ahead of the ledger, so that it is said once. */
  readonly #behind = new Set<string>();
  /** Since when a Run waits for one of its conversation that was made before it. */
  readonly #held = new Map<string, number>();
  readonly #arrivals: Arrivals;

  constructor(context: Context, departures: Departures, arrivals: Arrivals) {
    this.#context = context;
    this.#arrivals = arrivals;
    this.#departures = departures;
    this.#pace = new Pace(context.clock, context.timing.quietMs);
  }

  async reconcile(key: string, signal?: AbortSignal): Promise<Outcome> {
    await this.#departures.settle(key, signal);
    let object = this.#own.pick(key, this.#context.runs.get(key));
    for (let round = 0; round < MAX_ROUNDS && object !== undefined; round += 1) {
      const facts = await observeRun(this.#context, object, signalOf(signal));
      if (facts === null) return undefined;
      const next = await this.#step(key, facts, signal);
      if (next.done) return next.outcome;
      object = next.object;
    }
    if (object === undefined) {
      this.#pace.forget(key);
      this.#behind.delete(key);
      this.#held.delete(key);
      return undefined;
    }
    return { requeueAfterMs: 1_000 };
  }

  /** One decision carried out. Not done: look again, at this object. */
  async #step(
    key: string,
    facts: RunFacts,
    signal: AbortSignal | undefined,
  ): Promise<{ done: true; outcome: Outcome } | { done: false; object: KubeObject | undefined }> {
    const { db, log } = this.#context;
    const decision = decideRun(facts);
    switch (decision.do) {
      case "nothing":
        return { done: true, outcome: undefined };
      case "stop":
        await requestStop(db, decision.stop);
        return { done: false, object: facts.object };
      case "admit":
        return await this.#admit(key, facts, signal);
      case "behind":
        if (!this.#behind.has(key)) log.warn({ run: key }, `run left as it is: ${decision.message}`);
        this.#behind.add(key);
        return { done: true, outcome: { requeueAfterMs: BEHIND_MS } };
      case "show": {
        this.#behind.delete(key);
        const written = await this.#show(key, facts, decision.status, signal);
        if (written.conflict) return { done: false, object: await this.#read(key, signal) };
        const wait = soonest(written.outcome, later(decision.recheckMs));
        return { done: true, outcome: soonest(wait, await this.#expire(key, facts, decision.status, signal)) };
      }
      default:
        decision satisfies never;
        return { done: true, outcome: undefined };
    }
  }

  /** The newest object and namespace decide: an admission from an old copy could give a deleted Run a turn. */
  async #admit(key: string, seen: RunFacts, signal: AbortSignal | undefined) {
    const object = await this.#read(key, signal);
    if (object === undefined) return { done: true as const, outcome: undefined };
    const facts = await observeRun(this.#context, object, { fresh: true, ...signalOf(signal) });
    if (facts === null) return { done: true as const, outcome: undefined };
    const decision = decideRun(facts);
    if (decision.do !== "admit") return { done: false as const, object };
    if (this.#waitsItsTurn(key, object)) return { done: true as const, outcome: { requeueAfterMs: ORDER_LOOK_MS } };
    const taken = await ingest(this.#context.db, decision.message);
    // A duplicate is another controller's admission, or our own before a crash: the next look shows whose.
    this.#context.log.info({ run: key, uid: seen.object.metadata.uid, taken: taken.kind }, "run admitted");
    return { done: false as const, object };
  }

  /** While a Run of its conversation that was made before it is on its way to become a message, for a while at most. */
  #waitsItsTurn(key: string, object: KubeObject): boolean {
    const { clock, runs } = this.#context;
    const since = this.#held.get(key) ?? clock.monotonic();
    const waits =
      this.#arrivals.ahead(runs.values(), object) !== undefined && clock.monotonic() - since < MAX_ORDER_WAIT_MS;
    if (waits) this.#held.set(key, since);
    else this.#held.delete(key);
    return waits;
  }

  async #read(key: string, signal: AbortSignal | undefined): Promise<KubeObject | undefined> {
    const got = await this.#context.kube.get(RUNS, refOf(key), signalOf(signal));
    if (!got.found) return undefined;
    this.#own.remember(key, got.object);
    return got.object;
  }

  async #show(
    key: string,
    { object, mirror }: RunFacts,
    status: RunStatus,
    signal: AbortSignal | undefined,
  ): Promise<{ conflict: boolean; outcome: Outcome }> {
    const before = statusOf(object);
    const wait = this.#pace.wait(key, changeOf(before, status));
    if (wait === undefined) return { conflict: false, outcome: undefined };
    if (wait > 0) return { conflict: false, outcome: { requeueAfterMs: wait } };
    const { kube, events, metrics } = this.#context;
    const fence = { resourceVersion: object.metadata.resourceVersion ?? "" };
    try {
      this.#own.remember(key, await kube.applyStatus(RUNS, refOf(key), fence, status, signalOf(signal)));
    } catch (error) {
      if (isPawlError(error, "conflict")) return { conflict: true, outcome: undefined };
      // The schema's order rule: a newer version of the run is there already. Whoever is late looks again.
      if (isOutOfOrder(error)) return { conflict: false, outcome: { requeueAfterMs: this.#context.timing.quietMs } };
      throw error;
    }
    this.#pace.wrote(key);
    metrics?.statusWritten("Run");
    const expired = (mirror?.expired ?? []) as readonly string[];
    const downgraded = mirror === null ? null : downgradeOf(mirror);
    for (const event of announcements(before, status, { expired, downgraded }))
      events.record({ about: { resource: RUNS, object }, ...event });
    return { conflict: false, outcome: undefined };
  }

  /** Deletes a finished Run whose spec asks for it, if it still is that object. */
  async #expire(key: string, facts: RunFacts, shown: RunStatus, signal: AbortSignal | undefined): Promise<Outcome> {
    const object = { ...facts.object, status: shown };
    const left = expiresIn({ ...facts, object });
    if (left === undefined) return undefined;
    if (left > 0) return { requeueAfterMs: left };
    const { uid } = facts.object.metadata;
    if (uid === undefined) return undefined;
    try {
      await this.#context.kube.delete(RUNS, refOf(key), { uid }, signalOf(signal));
    } catch (error) {
      if (!isPawlError(error, "conflict")) throw error;
    }
    return undefined;
  }
}

const later = (ms: number | undefined): Outcome => (ms === undefined ? undefined : { requeueAfterMs: ms });

function soonest(a: Outcome, b: Outcome): Outcome {
  if (a === undefined || b === undefined) return a ?? b;
  return a.requeueAfterMs <= b.requeueAfterMs ? a : b;
}

const isOutOfOrder = (error: unknown): boolean =>
  error instanceof KubeError &&
  error.code === 422 &&
  error.causes.some(({ message }) => message?.includes("status.ledger") === true);
