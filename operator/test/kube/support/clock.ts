/** A clock that stands still until a test moves it. */
import type { Clock } from "#engine/ports.ts";

type Sleeper = { at: number; wake: () => void };

export class ManualClock implements Clock {
  #now = 0;
  #sleepers: Sleeper[] = [];

  monotonic(): number {
    return this.#now;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (ms <= 0 || signal?.aborted === true) return;
    await new Promise<void>((resolve) => {
      const sleeper: Sleeper = {
        at: this.#now + ms,
        wake: () => {
          signal?.removeEventListener("abort", sleeper.wake);
          this.#sleepers = this.#sleepers.filter((one) => one !== sleeper);
          resolve();
        },
      };
      signal?.addEventListener("abort", sleeper.wake, { once: true });
      this.#sleepers.push(sleeper);
    });
  }

  /** How long the sleepers still sleep, shortest first. */
  get sleeping(): readonly number[] {
    return this.#sleepers.map(({ at }) => at - this.#now).sort((a, b) => a - b);
  }

  /** Moves time on, waking sleepers in order; each gets to act before time goes on. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      const next = this.#sleepers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.#now = Math.max(this.#now, next.at);
      next.wake();
      await settled();
    }
    this.#now = end;
    await settled();
  }
}

/** Lets everything that can go on without time or input do so. */
export const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/**
 * Real time plus the waits it has skipped: a back-off ends at once and counts in full, so that a minute of failures
 * takes milliseconds and its pace can still be measured. Waits longer than `limit` last until `fire`.
 */
export class SkippingClock implements Clock {
  readonly #limit: number;
  #skipped = 0;
  #long = new Set<() => void>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  monotonic(): number {
    return performance.now() + this.#skipped;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (ms <= 0 || signal?.aborted === true) return;
    if (ms <= this.#limit) {
      this.#skipped += ms;
      await settled();
      return;
    }
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        signal?.removeEventListener("abort", wake);
        this.#long.delete(wake);
        resolve();
      };
      signal?.addEventListener("abort", wake, { once: true });
      this.#long.add(wake);
    });
  }

  /** How many long waits are going on. */
  get waiting(): number {
    return this.#long.size;
  }

  /** Ends every long wait. */
  fire(): void {
    for (const wake of this.#long) wake();
  }
}
