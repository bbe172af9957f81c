/**
 * The look at the ledger: who leads, which runs and agents changed, now and then everything. Notifications would only
 * make this faster; nothing depends on one.
 */
import { listAgents } from "#ledger/agents.ts";
import { holdLeadership, releaseLeadership } from "#ledger/leader.ts";
import { listChangedMirrors, readDatabaseTime } from "#ledger/mirrors.ts";
import { isPawlError } from "#rules/errors.ts";
import { keyOf } from "#kube/resources.ts";
import type { Context } from "./context.ts";
import { Outage } from "./outage.ts";
import type { RunIndex } from "./run/by-key.ts";
import { sweepAgents } from "./agent/sweep.ts";
import { sweepRuns } from "./run/sweep.ts";

/** A change is stamped before its commit: look back far enough that one which took its time is not passed over. */
const OVERLAP_MS = 15_000;
const LEADERSHIP = "controller";

export type PollOptions = {
  readonly owner: string;
  readonly index: RunIndex;
  readonly random: () => number;
  readonly agent: (key: string) => void;
  readonly run: (key: string) => void;
  readonly decision: (key: string) => void;
  /** Names whose object went while somebody else led, or that could not be settled yet. */
  readonly departed: () => Iterable<string>;
  /** After each look that succeeded. */
  readonly looked: () => void;
};

export class LedgerPoll {
  readonly #context: Context;
  readonly #options: PollOptions;
  readonly #outage: Outage;
  /** Versions that were seen since the overlap began, so that each change wakes its Run once. */
  readonly #seen = new Map<string, { version: number; at: number }>();
  readonly #digests = new Map<string, string>();
  #leading = false;
  #renewAt = Number.NEGATIVE_INFINITY;
  #allAt = Number.NEGATIVE_INFINITY;
  #sweepAt: number;
  #sweep: Promise<void> | undefined;

  constructor(context: Context, options: PollOptions) {
    this.#context = context;
    this.#options = options;
    this.#outage = new Outage(context.log, context.clock, options.random);
    this.#sweepAt = context.clock.monotonic() + context.timing.sweepMs;
  }

  get leading(): boolean {
    return this.#leading;
  }

  /** Until the signal. Never rejects for what the ledger does. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, timing } = this.#context;
    while (!signal.aborted) {
      try {
        await this.#look(signal);
        this.#outage.over();
        this.#options.looked();
        await clock.sleep(timing.pollMs, signal);
      } catch (error) {
        if (signal.aborted) break;
        await this.#outage.wait(error, signal);
      }
    }
    await this.#sweep;
  }

  /** On the way out: the next one need not wait. */
  async release(): Promise<void> {
    if (!this.#leading) return;
    this.#leading = false;
    await releaseLeadership(this.#context.db, LEADERSHIP, this.#options.owner).catch(() => {});
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { clock, timing } = this.#context;
    if (clock.monotonic() >= this.#renewAt) await this.#lead();
    if (!this.#leading) return;
    if (clock.monotonic() >= this.#allAt) this.#lookAtAll();
    await this.#changedRuns();
    await this.#changedAgents();
    if (clock.monotonic() >= this.#sweepAt && this.#sweep === undefined) {
      this.#sweepAt = clock.monotonic() + timing.sweepMs;
      this.#sweep = this.#startSweep(signal);
    }
  }

  async #lead(): Promise<void> {
    const { db, clock, timing, log, metrics } = this.#context;
    this.#renewAt = clock.monotonic() + timing.leaderMs / 3;
    const { held, owner } = await holdLeadership(db, LEADERSHIP, this.#options.owner, timing.leaderMs);
    if (held !== this.#leading)
      log.info({ leader: owner }, held ? "this controller leads" : "another controller leads");
    // Whatever changed while somebody else led is looked at.
    if (held && !this.#leading) this.#allAt = Number.NEGATIVE_INFINITY;
    this.#leading = held;
    metrics?.leader(held);
  }

  #lookAtAll(): void {
    const { clock, timing, agents, runs, decisions } = this.#context;
    this.#allAt = clock.monotonic() + timing.lookAtAllMs;
    for (const object of agents.values()) this.#options.agent(keyOf(object));
    for (const object of runs.values()) this.#options.run(keyOf(object));
    for (const object of decisions.values()) this.#options.decision(keyOf(object));
    for (const key of this.#options.departed()) this.#options.run(key);
  }

  async #changedRuns(): Promise<void> {
    const { db } = this.#context;
    const now = (await readDatabaseTime(db)).getTime();
    for (const change of await listChangedMirrors(db, new Date(now - OVERLAP_MS))) {
      const id = `${change.namespaceUid}\0${change.key}\0${change.decided}`;
      if ((this.#seen.get(id)?.version ?? -1) >= change.version) continue;
      this.#seen.set(id, { version: change.version, at: now });
      for (const key of this.#options.index.showing(change.namespace, change.key)) this.#options.run(key);
    }
    for (const [id, { at }] of this.#seen) if (at < now - 2 * OVERLAP_MS) this.#seen.delete(id);
  }

  async #changedAgents(): Promise<void> {
    for (const { namespaceUid, namespace, name, digest } of await listAgents(this.#context.db)) {
      const id = `${namespaceUid}\0${name}`;
      if (this.#digests.get(id) === digest) continue;
      this.#digests.set(id, digest);
      this.#options.agent(`${namespace}/${name}`);
    }
  }

  async #startSweep(signal: AbortSignal): Promise<void> {
    try {
      await sweepAgents(this.#context, this.#options.run, signal);
      await sweepRuns(this.#context, signal);
    } catch (error) {
      if (!isPawlError(error, "cancelled") && !signal.aborted) {
        this.#context.log.warn({ error: String(error) }, "the sweep was cut short; the next one begins anew");
      }
    } finally {
      this.#sweep = undefined;
    }
  }
}
