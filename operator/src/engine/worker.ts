/**
 * A worker: claims due runs while it has room, drives each under its lease. Woken by a notification, and by a look of
 * its own every half second, because a notification is only a hint.
 */
import { claimRun, nextDue } from "#ledger/leases.ts";
import { CODE } from "#rules/limits.ts";
import type { EngineDeps } from "./deps.ts";
import { driveRun } from "./drive.ts";

/** Never 0: a run that is due and cannot be claimed must not make a busy loop. Doubled while that lasts. */
const SHORTEST_WAIT_MS = 10;
const MAX_DOUBLINGS = 10;

export class Worker {
  readonly #deps: EngineDeps;
  readonly #running = new Set<Promise<void>>();
  readonly #stop = new AbortController();
  #wake = new AbortController();
  #loop: Promise<void> | undefined;
  #healthy = false;
  #complained = false;

  constructor(deps: EngineDeps) {
    this.#deps = deps;
  }

  /** True while the ledger answered the last look. */
  get healthy(): boolean {
    return this.#healthy;
  }

  get active(): number {
    return this.#running.size;
  }

  start(): void {
    this.#loop ??= this.#claimLoop();
  }

  /** Something may be due. */
  wake(): void {
    this.#wake.abort();
  }

  /**
   * Claims nothing more; model calls and waits end now and their leases are given back, effects that have left are
   * awaited and recorded.
   */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.wake();
    await this.#loop;
    await Promise.all(this.#running);
  }

  async #claimLoop(): Promise<void> {
    const { settings, db, log } = this.#deps;
    let inVain = 0;
    while (!this.#stop.signal.aborted) {
      let waitMs = settings.pollMs;
      try {
        const askedAt = this.#deps.clock.monotonic();
        const claim =
          this.#running.size < settings.concurrency
            ? await claimRun(db, settings.owner, settings.leaseMs, CODE, settings.maxRuns)
            : null;
        this.#healthy = true;
        this.#complained = false;
        if (claim !== null) {
          this.#deps.meter.claimed(claim.takeover);
          log.info({ run: claim.runId, token: claim.token, takeover: claim.takeover }, "claimed a run");
          this.#track(driveRun(this.#deps, claim, this.#stop.signal, askedAt));
          inVain = 0;
          continue;
        }
        const dueInMs = (await nextDue(db, CODE)) ?? waitMs;
        // Due and not to be had: locked for a moment, newer code's, or over a ceiling, and that may last.
        inVain = dueInMs === 0 ? inVain + 1 : 0;
        waitMs = Math.min(waitMs, Math.max(dueInMs, SHORTEST_WAIT_MS * 2 ** Math.min(inVain, MAX_DOUBLINGS)));
        if (this.#running.size >= settings.concurrency) waitMs = settings.pollMs;
      } catch (error) {
        if (!this.#complained) log.error({ error: (error as Error).message }, "no run can be claimed; trying on");
        this.#complained = true;
        this.#healthy = false;
      }
      await this.#deps.clock.sleep(waitMs, AbortSignal.any([this.#wake.signal, this.#stop.signal]));
      if (this.#wake.signal.aborted) this.#wake = new AbortController();
    }
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => {
      this.#running.delete(tracked);
      this.wake();
    });
    this.#running.add(tracked);
  }
}
