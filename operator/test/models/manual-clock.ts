/** A clock that only moves when told to. `advance` ends the sleeps that fell due. */
import type { Clock } from "#engine/ports.ts";

export class ManualClock implements Clock {
  #now = 1_000;
  /** Told of every sleep that begins: a test can wait for one. */
  onSleep: ((ms: number) => void) | undefined;
  readonly #sleeping = new Set<{ due: number; wake: () => void }>();

  monotonic(): number {
    return this.#now;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted === true || ms <= 0) return;
    await new Promise<void>((resolve) => {
      const sleeper = {
        due: this.#now + ms,
        wake: (): void => {
          this.#sleeping.delete(sleeper);
          signal?.removeEventListener("abort", sleeper.wake);
          resolve();
        },
      };
      this.#sleeping.add(sleeper);
      this.onSleep?.(ms);
      signal?.addEventListener("abort", sleeper.wake, { once: true });
    });
  }

  advance(ms: number): void {
    this.#now += ms;
    for (const sleeper of this.#sleeping) if (sleeper.due <= this.#now) sleeper.wake();
  }

  /** Sleeps nobody ended: a test asserts 0, a leak otherwise. */
  get sleeping(): number {
    return this.#sleeping.size;
  }
}
