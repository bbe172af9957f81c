/** Ends a model call whose endpoint is silent for too long. Reads the injected clock only. */
import type { Clock } from "#engine/ports.ts";

export type CallLimits = { readonly firstByteMs: number; readonly betweenChunksMs: number; readonly totalMs: number };

export class Watchdog {
  /** Fires when a limit passed or the caller's signal fired. */
  readonly signal: AbortSignal;
  readonly #abort = new AbortController();
  readonly #stopped = new AbortController();
  readonly #wake = new AbortController();
  readonly #clock: Clock;
  readonly #limits: CallLimits;
  readonly #endBy: number;
  #byteBy: number;
  #begun = false;
  #expired: keyof CallLimits | undefined;

  constructor(clock: Clock, limits: CallLimits, outer: AbortSignal) {
    this.#clock = clock;
    this.#limits = limits;
    this.signal = this.#abort.signal;
    this.#endBy = clock.monotonic() + limits.totalMs;
    this.#byteBy = clock.monotonic() + limits.firstByteMs;
    const cancel = (): void => this.#abort.abort();
    if (outer.aborted) cancel();
    else outer.addEventListener("abort", cancel, { once: true, signal: this.#stopped.signal });
    void this.#watch();
  }

  /** A byte of the answer came. */
  progress(): void {
    this.#byteBy = this.#clock.monotonic() + this.#limits.betweenChunksMs;
    if (this.#begun) return;
    // The wait for the first byte may last longer than the next one: it has to be cut short, once.
    this.#begun = true;
    this.#wake.abort();
  }

  /** The limit that ended the call, if one did. */
  get expired(): keyof CallLimits | undefined {
    return this.#expired;
  }

  stop(): void {
    this.#stopped.abort();
  }

  async #watch(): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      const now = this.#clock.monotonic();
      if (now >= Math.min(this.#byteBy, this.#endBy)) {
        const silent = this.#begun ? "betweenChunksMs" : "firstByteMs";
        this.#expired = now >= this.#endBy ? "totalMs" : silent;
        return this.#abort.abort();
      }
      const until = this.#begun ? this.#stopped.signal : AbortSignal.any([this.#stopped.signal, this.#wake.signal]);
      await this.#clock.sleep(Math.min(this.#byteBy, this.#endBy) - now, until);
    }
  }
}
