/** Something is away: say so once, wait longer each time, say when it is back. */
import type { Clock } from "#engine/ports.ts";
import { isPawlError } from "#rules/errors.ts";
import type { Log } from "./config.ts";

const BASE_MS = 500;
const MAX_MS = 15_000;

export class Outage {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #random: () => number;
  #failures = 0;
  #since = 0;

  constructor(log: Log, clock: Clock, random: () => number) {
    this.#log = log;
    this.#clock = clock;
    this.#random = random;
  }

  /** Counts a failure; only the first of a streak is said. */
  say(error: unknown, fields: Readonly<Record<string, unknown>> = {}): void {
    this.#failures += 1;
    if (this.#failures > 1) return;
    this.#since = this.#clock.monotonic();
    const reason = isPawlError(error) ? error.reason : "Unexpected";
    const message = error instanceof Error ? error.message : String(error);
    this.#log.warn({ ...fields, reason, error: message }, "something is away; trying again");
  }

  async wait(error: unknown, signal: AbortSignal): Promise<void> {
    this.say(error);
    const ceiling = Math.min(BASE_MS * 2 ** Math.min(this.#failures - 1, 20), MAX_MS);
    const asked = isPawlError(error) ? (error.retryAfterMs ?? 0) : 0;
    await this.#clock.sleep(Math.max(asked, ceiling * (0.5 + this.#random() / 2)), signal);
  }

  over(): void {
    if (this.#failures === 0) return;
    const awayMs = Math.round(this.#clock.monotonic() - this.#since);
    this.#log.info({ failures: this.#failures, awayMs }, "it is back");
    this.#failures = 0;
  }
}
