/** Time at work under this lease: what the ledger had counted when the run was read, and what has passed since. */
import type { Clock } from "./ports.ts";

/** The longest a timer can be set to; a budget beyond it is looked at at decision points all the same. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export class WorkClock {
  readonly #clock: Clock;
  readonly #until: number;
  readonly #timer: NodeJS.Timeout;
  readonly #over = new AbortController();

  constructor(clock: Clock, workedMs: number, limitMs: number) {
    this.#clock = clock;
    this.#until = clock.monotonic() + limitMs - workedMs;
    this.#timer = setTimeout(() => this.#over.abort(), Math.min(Math.max(this.leftMs, 0), MAX_TIMER_MS));
  }

  get leftMs(): number {
    return this.#until - this.#clock.monotonic();
  }

  /** Aborts when nothing is left: ends a model call and cancellable tools that are under way. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  get isOver(): boolean {
    return this.#over.signal.aborted || this.leftMs <= 0;
  }

  letGo(): void {
    clearTimeout(this.#timer);
  }
}
