/**
 * The controllers, put together: two local copies, two queues, one look at the ledger every half second, and a leader
 * among several processes. Nothing here decides; everything here may fail and is tried again without hurry.
 */
import { randomUUID } from "node:crypto";
import type { Clock } from "#engine/ports.ts";
import type { KubeClient } from "#kube/client.ts";
import { EventRecorder } from "#kube/events.ts";
import { type Outcome, WorkQueue } from "#kube/queue.ts";
import { type Change, Reflector } from "#kube/reflector.ts";
import { AGENTS, DECISIONS, type Resource, RUNS } from "#kube/resources.ts";
import type { Runner } from "#ledger/database.ts";
import { claimLedger } from "#ledger/installation.ts";
import { isPawlError } from "#rules/errors.ts";
import { systemClock } from "#src/clock.ts";
import { AgentController } from "./agent/apply.ts";
import type { ControllerConfig, ControllerMetrics, ControllerName, Install, Log } from "./config.ts";
import { TIMING } from "./config.ts";
import { type Context, Namespaces } from "./context.ts";
import { DecisionController } from "./decision/apply.ts";
import { Outage } from "./outage.ts";
import { LedgerPoll } from "./poll.ts";
import { RunController } from "./run/apply.ts";
import { Arrivals } from "./run/order.ts";
import { RunIndex } from "./run/by-key.ts";
import { Departures } from "./run/departures.ts";
import { runsTouchedBy } from "./run/waiting.ts";

export type StartOptions = {
  readonly kube: KubeClient;
  readonly db: Runner;
  readonly config: ControllerConfig;
  readonly log: Log;
  readonly metrics?: ControllerMetrics;
  /** Ends everything. */
  readonly signal: AbortSignal;
  /** Tests bring their own. */
  readonly clock?: Clock;
  readonly now?: () => Date;
  readonly random?: () => number;
};

export type Controllers = {
  /** Both copies are there and the API server has been heard lately. A standby is ready too. */
  ready(): boolean;
  /** This process is the active one. */
  leading(): boolean;
  /** Resolves when everything has ended after the signal. Never rejects. */
  readonly stopped: Promise<void>;
};

/** Runs at work at once: more only queues up at the API server. */
const RUN_CONCURRENCY = 8;
const AGENT_CONCURRENCY = 2;
const DECISION_CONCURRENCY = 2;
/** Not heard for this long (bookmarks come every minute): not ready. */
const MAX_SILENCE_MS = 180_000;

/** Waits for the ledger and the API server. Throws PawlError(terminal) when the ledger is another cluster's. */
async function claim(options: StartOptions, clock: Clock): Promise<Install | null> {
  const outage = new Outage(options.log, clock, options.random ?? Math.random);
  const { kube, db, signal } = options;
  while (!signal.aborted) {
    try {
      const uid = await kube.kubeSystemUid({ signal });
      const install = await claimLedger(db, uid, await kube.serverTime({ signal }));
      outage.over();
      return install;
    } catch (error) {
      if (signal.aborted) break;
      if (isPawlError(error, "terminal") || isPawlError(error, "invariant")) throw error;
      await outage.wait(error, signal);
    }
  }
  return null;
}

class Assembly {
  readonly #options: StartOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #context: Context;
  readonly #agents: Reflector;
  readonly #runs: Reflector;
  readonly #decisions: Reflector;
  readonly #agentQueue: WorkQueue;
  readonly #runQueue: WorkQueue;
  readonly #decisionQueue: WorkQueue;
  readonly #agentController: AgentController;
  readonly #runController: RunController;
  readonly #decisionController: DecisionController;
  readonly #departures: Departures;
  readonly #index = new RunIndex();
  readonly #arrivals = new Arrivals();
  readonly #events: EventRecorder;
  readonly #poll: LedgerPoll;

  constructor(options: StartOptions, clock: Clock, install: Install) {
    this.#options = options;
    this.#clock = clock;
    this.#random = options.random ?? Math.random;
    const { kube, db, config, log } = options;
    const now = options.now ?? (() => new Date());
    const { instance } = config;
    this.#events = new EventRecorder({ client: kube, clock, controller: "pawl.dev/controller", instance, now });
    this.#agents = this.#reflector(AGENTS, (change) => this.#agentChanged(change));
    this.#runs = this.#reflector(RUNS, (change) => this.#runChanged(change));
    this.#decisions = this.#reflector(DECISIONS, ({ key }) => this.#decisionQueue.add(key));
    this.#context = {
      kube,
      db,
      config,
      install,
      clock,
      now,
      log,
      timing: { ...TIMING, ...config.timing },
      metrics: options.metrics,
      events: this.#events,
      agents: this.#agents,
      runs: this.#runs,
      decisions: this.#decisions,
      namespaces: new Namespaces(kube, clock),
    };
    this.#departures = new Departures(this.#context);
    this.#agentController = new AgentController(this.#context, (key) => this.#runQueue.add(key));
    this.#runController = new RunController(this.#context, this.#departures, this.#arrivals);
    this.#decisionController = new DecisionController(this.#context, (key) => this.#runQueue.add(key));
    this.#agentQueue = this.#queue("agent", AGENT_CONCURRENCY, (key, signal) =>
      this.#agentController.reconcile(key, signal),
    );
    this.#runQueue = this.#queue("run", RUN_CONCURRENCY, (key, signal) => this.#runController.reconcile(key, signal));
    this.#decisionQueue = this.#queue("decision", DECISION_CONCURRENCY, (key, signal) =>
      this.#decisionController.reconcile(key, signal),
    );
    this.#poll = new LedgerPoll(this.#context, {
      owner: `${instance}/${randomUUID()}`,
      index: this.#index,
      random: this.#random,
      agent: (key) => this.#agentQueue.add(key),
      run: (key) => this.#runQueue.add(key),
      decision: (key) => this.#decisionQueue.add(key),
      departed: () => this.#departures.names(),
      looked: () => {
        options.metrics?.queueDepth("agent", this.#agentQueue.depth);
        options.metrics?.queueDepth("run", this.#runQueue.depth);
        options.metrics?.queueDepth("decision", this.#decisionQueue.depth);
      },
    });
  }

  get leading(): boolean {
    return this.#poll.leading;
  }

  ready(): boolean {
    return this.#copies.every((copy) => (copy.age() ?? Number.POSITIVE_INFINITY) < MAX_SILENCE_MS);
  }

  async run(signal: AbortSignal): Promise<void> {
    const copies = Promise.all(this.#copies.map((copy) => copy.run(signal)));
    try {
      await Promise.all(this.#copies.map((copy) => copy.synced));
      await this.#poll.run(signal);
    } catch (error) {
      // Stopped before the first lists; anything else is a mistake of ours and must be seen.
      if (!signal.aborted) this.#options.log.error({ error: String(error) }, "controllers ended");
    }
    await copies;
    const queues = [this.#agentQueue, this.#runQueue, this.#decisionQueue];
    await Promise.all([...queues.map((queue) => queue.stop()), this.#events.stop()]);
    await this.#poll.release();
  }

  get #copies(): readonly Reflector[] {
    return [this.#agents, this.#runs, this.#decisions];
  }

  #reflector(resource: Resource, onChange: (change: Change) => void): Reflector {
    const { kube, log, metrics } = this.#options;
    const outage = new Outage(log, this.#clock, this.#random);
    return new Reflector({
      client: kube,
      resource,
      clock: this.#clock,
      random: this.#random,
      onChange,
      hooks: {
        failed: (error) => outage.say(error, { watch: resource.plural }),
        listed: ({ missed }) => {
          outage.over();
          if (missed > 0) metrics?.watchMissed(resource.plural, missed);
        },
        handlerThrew: (error, key) => log.error({ key, error: String(error) }, "a change could not be taken"),
      },
    });
  }

  #queue(
    name: ControllerName,
    concurrency: number,
    handler: (key: string, signal: AbortSignal) => Promise<Outcome>,
  ): WorkQueue {
    const { log, metrics } = this.#options;
    return new WorkQueue({
      clock: this.#clock,
      random: this.#random,
      concurrency,
      handler: async (key, signal) => {
        // A standby keeps its copies warm and leaves the work to the leader.
        if (!this.#poll.leading) return undefined;
        const outcome = await handler(key, signal);
        metrics?.reconciled(name, "ok");
        return outcome;
      },
      failed: (error, key, failures, waitMs) => {
        metrics?.reconciled(name, "failed");
        // Once per key and failure streak; an outage is told by the copies and by the poll.
        if (failures === 1 && !isPawlError(error, "transient") && !isPawlError(error, "cancelled")) {
          log.warn({ [name]: key, error: String(error), waitMs: Math.round(waitMs) }, "could not reconcile");
        }
      },
    });
  }

  #agentChanged({ key, object, previous, by }: Change): void {
    if (object === undefined && by === "watch") this.#agentController.watchedDelete(key, previous?.metadata.uid ?? "");
    this.#agentQueue.add(key);
    for (const run of runsTouchedBy(this.#runs.values(), { key, object, previous })) this.#runQueue.add(run);
  }

  #runChanged({ key, object, previous, by }: Change): void {
    if (previous !== undefined) this.#index.remove(previous);
    if (object !== undefined) this.#index.add(object);
    if (object !== undefined) this.#arrivals.note(object);
    const replaced = object !== undefined && object.metadata.uid !== previous?.metadata.uid;
    if (previous !== undefined && (object === undefined || replaced)) this.#arrivals.forget(previous);
    const gone = object === undefined ? by === "watch" : replaced;
    if (gone && previous?.metadata.uid !== undefined) this.#departures.watched(key, previous.metadata.uid);
    this.#runQueue.add(key);
  }
}

export async function startControllers(options: StartOptions): Promise<Controllers> {
  const clock = options.clock ?? systemClock;
  const install = await claim(options, clock);
  if (install === null) return { ready: () => false, leading: () => false, stopped: Promise.resolve() };
  const assembly = new Assembly(options, clock, install);
  return {
    ready: () => assembly.ready(),
    leading: () => assembly.leading,
    stopped: assembly.run(options.signal),
  };
}
