/**
 * Holding a lease: renewed in the background, given up by the holder itself when the ledger has not confirmed it for
 * the lease's length (its rows may be somebody else's by then). What a renewal brings back is a signal; between two of
 * them the holder looks at its run, at once when it is told to: a stop or a restart ends a model call, not the next lease.
 */
import { lookAtRun, renewLease } from "#ledger/leases.ts";
import type { EngineDeps } from "./deps.ts";

/** How long a holder that nobody tells anything works on after a stop or a restart. */
export const LOOK_AT_RUN_MS = 1_000;

export class HeldLease {
  readonly runId: string;
  readonly token: number;
  /** Aborts when the lease is lost or the run ended under us: drop the work, write nothing. */
  readonly lost = new AbortController();
  /** Aborts when a person asked for the end: model calls and cancellable tools stop at once. */
  readonly stopRequested = new AbortController();
  /** Characters of the answer that is coming in: told with each renewal, for display. */
  streamed = 0;
  readonly #deps: EngineDeps;
  #ticks: NodeJS.Timeout | undefined;
  readonly #looks: NodeJS.Timeout;
  #deadline: NodeJS.Timeout | undefined;
  /** Monotonic; when the request left whose answer proved the lease. The ledger's own count began later. */
  #proof: number;
  #over = false;
  readonly #deaf: () => void;

  /** `askedAt`: monotonic milliseconds before the claim was sent. */
  constructor(deps: EngineDeps, runId: string, token: number, askedAt: number) {
    this.#deps = deps;
    this.runId = runId;
    this.token = token;
    this.#proof = askedAt;
    // Renewals overlap on purpose: one that hangs in a dead connection must not keep the next from another one.
    this.#ticks = setInterval(() => void this.#renew(), deps.settings.renewMs);
    this.#watch();
    this.#deaf = deps.signals?.on(runId, () => void this.#look()) ?? (() => {});
    this.#looks = setInterval(() => void this.#look(), deps.settings.lookMs ?? LOOK_AT_RUN_MS);
    if (deps.clock.monotonic() - askedAt > deps.settings.renewMs) void this.#renew();
  }

  noteStop(stop: boolean): void {
    if (stop && !this.stopRequested.signal.aborted) this.stopRequested.abort();
  }

  /**
   * No more renewals, and no more signals: what the holder writes next ends the lease. A renewal that is on its way
   * then finds the lease given back, and changes nothing.
   */
  letGo(): void {
    this.#over = true;
    this.#deaf();
    clearInterval(this.#looks);
    clearInterval(this.#ticks);
    clearTimeout(this.#deadline);
  }

  #watch(): void {
    clearTimeout(this.#deadline);
    const left = this.#proof + this.#deps.settings.leaseMs - this.#deps.clock.monotonic();
    this.#deadline = setTimeout(() => this.#lose("the ledger did not confirm it in time"), Math.max(0, left));
  }

  async #renew(): Promise<void> {
    if (this.#over) return;
    const sent = this.#deps.clock.monotonic();
    try {
      const { db, settings } = this.#deps;
      const renewal = await renewLease(db, this.runId, this.token, settings.leaseMs, this.streamed);
      if (this.#over) return;
      if (renewal.kind !== "renewed") {
        return this.#lose(renewal.kind === "ended" ? "the run ended" : "another worker may hold it");
      }
      this.#proof = Math.max(this.#proof, sent);
      this.#watch();
      this.noteStop(renewal.stop);
    } catch (error) {
      if (this.#over) return;
      this.#deps.log.warn({ run: this.runId, error: (error as Error).message }, "a lease could not be renewed");
    }
  }

  /** Proves nothing about the lease: only renewals do. One that fails says nothing either. */
  async #look(): Promise<void> {
    if (this.#over) return;
    try {
      const found = await lookAtRun(this.#deps.db, this.runId, this.token);
      if (this.#over) return;
      if (found.kind === "held") this.noteStop(found.stop);
      else this.#lose(found.kind === "ended" ? "the run ended" : "another worker holds it");
    } catch (error) {
      if (this.#over) return;
      this.#deps.log.warn({ run: this.runId, error: (error as Error).message }, "a run could not be looked at");
    }
  }

  #lose(why: string): void {
    if (this.#over) return;
    this.#deps.log.warn({ run: this.runId, why }, "lease lost");
    this.letGo();
    this.lost.abort();
  }
}
