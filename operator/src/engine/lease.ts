/**
 * Holding a lease: renewed in the background, given up by the holder itself when the ledger cannot be reached for the
 * lease's length (its rows may be somebody else's by then). What a renewal brings back is a signal.
 */
import { renewLease } from "#ledger/leases.ts";
import type { EngineDeps } from "./deps.ts";

export class HeldLease {
  readonly runId: string;
  readonly token: number;
  /** Aborts when the lease is lost or the run ended under us: drop the work, write nothing. */
  readonly lost = new AbortController();
  /** Aborts when a person asked for the end: model calls and cancellable tools stop at once. */
  readonly stopRequested = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #lastProof: number;
  #deps: EngineDeps;
  #renewing: Promise<void> = Promise.resolve();

  constructor(deps: EngineDeps, runId: string, token: number) {
    this.#deps = deps;
    this.runId = runId;
    this.token = token;
    this.#lastProof = deps.clock.monotonic();
    this.#timer = setInterval(() => {
      this.#renewing = this.#renew();
    }, deps.settings.renewMs);
  }

  noteStop(stop: boolean): void {
    if (stop && !this.stopRequested.signal.aborted) this.stopRequested.abort();
  }

  /** After this no renewal is on its way. */
  async release(): Promise<void> {
    clearInterval(this.#timer);
    await this.#renewing;
  }

  async #renew(): Promise<void> {
    const sent = this.#deps.clock.monotonic();
    if (sent - this.#lastProof > this.#deps.settings.leaseMs)
      this.#lose("the ledger was out of reach for a whole lease");
    if (this.lost.signal.aborted) return;
    try {
      const renewal = await renewLease(this.#deps.db, this.runId, this.token, this.#deps.settings.leaseMs);
      if (renewal.kind === "renewed") {
        this.#lastProof = sent;
        this.noteStop(renewal.stop);
      } else {
        this.#lose(renewal.kind === "ended" ? "the run ended" : "another worker holds it");
      }
    } catch (error) {
      this.#deps.log.warn({ run: this.runId, error: (error as Error).message }, "a lease could not be renewed");
    }
  }

  #lose(why: string): void {
    if (this.lost.signal.aborted) return;
    this.#deps.log.warn({ run: this.runId, why }, "lease lost");
    clearInterval(this.#timer);
    this.lost.abort();
  }
}
