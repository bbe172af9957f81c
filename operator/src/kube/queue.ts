/**
 * Work by key: one worker per key at a time, everything that arrives while a key waits or runs becomes one more run of
 * it, and a key that fails backs off alone. The handler looks at the state of the world, never at what woke it.
 */
import type { Clock } from "#engine/ports.ts";
import { isPawlError } from "#rules/errors.ts";

/** What a handler may ask for. Nothing: done until something adds the key again. */
export type Outcome = { readonly requeueAfterMs: number } | undefined;

export type QueueOptions = {
  /** The signal fires when the queue stops. Throwing makes the key back off. */
  readonly handler: (key: string, signal: AbortSignal) => Promise<Outcome>;
  readonly clock: Clock;
  /** In [0, 1); for jitter. */
  readonly random: () => number;
  /** Keys worked on at once. */
  readonly concurrency: number;
  /** First and longest wait after failures, in milliseconds. The wait doubles from one to the other, ± 20 %. */
  readonly backoff?: { readonly baseMs: number; readonly maxMs: number };
  /** For metrics and logs. Must not throw. */
  readonly failed?: (error: unknown, key: string, failures: number, waitMs: number) => void;
};

const BACKOFF = { baseMs: 500, maxMs: 30_000 };

export class WorkQueue {
  readonly #options: QueueOptions;
  readonly #ready = new Set<string>();
  /** When a key is due, on the monotonic clock. */
  readonly #delayed = new Map<string, number>();
  readonly #running = new Set<string>();
  /** Keys that were added while they ran. */
  readonly #again = new Set<string>();
  readonly #failures = new Map<string, number>();
  readonly #stopping = new AbortController();
  readonly #tasks = new Set<Promise<void>>();
  #alarm: { at: number; cancel: AbortController } | undefined;

  constructor(options: QueueOptions) {
    this.#options = options;
  }

  /**
   * Adds a key now or after a delay. A key that waits keeps its earliest time; one that runs runs again. A failing key
   * is not hurried along by what is added to it: its backoff holds.
   */
  add(key: string, afterMs = 0): void {
    if (this.#stopping.signal.aborted || this.#ready.has(key)) return;
    if (this.#running.has(key)) {
      if (afterMs <= 0) this.#again.add(key);
      else this.#delay(key, afterMs);
      return;
    }
    if (afterMs > 0 || (this.#failures.has(key) && this.#delayed.has(key))) {
      this.#delay(key, afterMs);
      return;
    }
    this.#delayed.delete(key);
    this.#ready.add(key);
    this.#start();
  }

  /** Keys that wait for a worker; without those that wait for a time. */
  get depth(): number {
    return this.#ready.size;
  }

  get running(): number {
    return this.#running.size;
  }

  /** Takes no more keys, aborts the handlers' signal, and resolves when the last handler has returned. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#alarm?.cancel.abort();
    this.#ready.clear();
    this.#delayed.clear();
    this.#again.clear();
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
  }

  #delay(key: string, afterMs: number): void {
    const at = this.#options.clock.monotonic() + afterMs;
    const known = this.#delayed.get(key);
    // While a key backs off, its time does not move forward; otherwise the earliest wish counts.
    if (known !== undefined && (known <= at || this.#failures.has(key))) return;
    this.#delayed.set(key, at);
    this.#arm(at);
  }

  #start(): void {
    for (const key of this.#ready) {
      if (this.#running.size >= this.#options.concurrency) return;
      this.#ready.delete(key);
      this.#running.add(key);
      this.#track(this.#work(key));
    }
  }

  #track(task: Promise<void>): void {
    this.#tasks.add(task);
    void task.finally(() => this.#tasks.delete(task));
  }

  /** Never rejects. */
  async #work(key: string): Promise<void> {
    let wait: number | undefined;
    try {
      const outcome = await this.#options.handler(key, this.#stopping.signal);
      this.#failures.delete(key);
      wait = outcome?.requeueAfterMs;
    } catch (error) {
      wait = this.#backOff(key, error);
    }
    this.#running.delete(key);
    if (this.#stopping.signal.aborted) return;
    const again = this.#again.delete(key);
    if (this.#failures.has(key)) {
      const at = this.#options.clock.monotonic() + (wait ?? 0);
      this.#delayed.set(key, at);
      this.#arm(at);
    } else {
      if (wait !== undefined) this.#delay(key, Math.max(wait, 0));
      if (again) this.add(key);
    }
    this.#start();
  }

  #backOff(key: string, error: unknown): number {
    const failures = (this.#failures.get(key) ?? 0) + 1;
    const { baseMs, maxMs } = this.#options.backoff ?? BACKOFF;
    const ceiling = Math.min(baseMs * 2 ** Math.min(failures - 1, 30), maxMs);
    const asked = isPawlError(error) ? (error.retryAfterMs ?? 0) : 0;
    const wait = Math.max(ceiling * (0.8 + 0.4 * this.#options.random()), asked);
    this.#failures.set(key, failures);
    if (!this.#stopping.signal.aborted) this.#options.failed?.(error, key, failures, wait);
    return wait;
  }

  /** One timer, for the earliest delayed key. It may ring for a key that is no longer there; then it rings for nothing. */
  #arm(at: number): void {
    if (this.#stopping.signal.aborted || at >= (this.#alarm?.at ?? Number.POSITIVE_INFINITY)) return;
    this.#alarm?.cancel.abort();
    const cancel = new AbortController();
    this.#alarm = { at, cancel };
    const wait = Math.max(at - this.#options.clock.monotonic(), 0);
    this.#track(
      this.#options.clock.sleep(wait, cancel.signal).then(() => {
        if (!cancel.signal.aborted) this.#ring();
      }),
    );
  }

  #ring(): void {
    this.#alarm = undefined;
    const now = this.#options.clock.monotonic();
    let next = Number.POSITIVE_INFINITY;
    for (const [key, at] of this.#delayed) {
      if (at > now) {
        next = Math.min(next, at);
        continue;
      }
      this.#delayed.delete(key);
      if (this.#running.has(key)) this.#again.add(key);
      else this.#ready.add(key);
    }
    this.#arm(next);
    this.#start();
  }
}
