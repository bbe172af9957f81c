/**
 * When a status is written: what people and `kubectl wait` look at, at once; numbers and texts at most every few
 * seconds; an unchanged one never. Pure but for the memory of when each object was written last.
 */
import { isDeepStrictEqual } from "node:util";
import type { Clock } from "#engine/ports.ts";

type Condition = { type: string; status: string; reason: string; observedGeneration?: number | undefined };
type AnyStatus = {
  phase?: unknown;
  observedGeneration?: unknown;
  ledger?: unknown;
  conditions?: readonly Condition[] | undefined;
};

const shape = (status: AnyStatus | undefined): unknown => [
  status?.phase,
  status?.observedGeneration,
  (status?.conditions ?? []).map(({ type, status: verdict, reason, observedGeneration }) => [
    type,
    verdict,
    reason,
    observedGeneration,
  ]),
];

/** A higher ledger version with the same content is nothing to show. */
function content(status: AnyStatus): unknown {
  const { ledger: _, ...rest } = status;
  return rest;
}

export type Change = "none" | "quiet" | "at once";

export function changeOf(before: AnyStatus | undefined, after: AnyStatus): Change {
  if (before === undefined) return "at once";
  if ((before.ledger === undefined) !== (after.ledger === undefined)) return "at once";
  if (!isDeepStrictEqual(shape(before), shape(after))) return "at once";
  return isDeepStrictEqual(content(before), content(after)) ? "none" : "quiet";
}

export class Pace {
  readonly #clock: Clock;
  readonly #quietMs: number;
  readonly #written = new Map<string, number>();

  constructor(clock: Clock, quietMs: number) {
    this.#clock = clock;
    this.#quietMs = quietMs;
  }

  /** Milliseconds to wait before this change may be written; 0 = now; undefined = there is nothing to write. */
  wait(key: string, change: Change): number | undefined {
    if (change === "none") return undefined;
    if (change === "at once") return 0;
    const last = this.#written.get(key);
    return last === undefined ? 0 : Math.max(0, last + this.#quietMs - this.#clock.monotonic());
  }

  wrote(key: string): void {
    this.#written.set(key, this.#clock.monotonic());
  }

  forget(key: string): void {
    this.#written.delete(key);
  }
}
