/**
 * While somebody says what a newer message means, nothing leaves: most such messages turn out to change nothing, and what
 * was about to be said is right then. The ledger ends each hold by itself; who types without pause is not waited for
 * any longer than this.
 */
import type { Crossed } from "#ledger/effects.ts";
import { MAX_HOLD_MS } from "#rules/limits.ts";
import type { EngineDeps } from "./deps.ts";
import { Left, type Turn } from "./turn.ts";

/** Between two looks at a hold. */
export const HOLD_LOOK_MS = 250;

export async function crossWhenKnown(deps: EngineDeps, turn: Turn, attempt: () => Promise<Crossed>): Promise<Crossed> {
  const { lost, stopRequested } = turn.lease;
  for (let held = 0; ; held += HOLD_LOOK_MS) {
    const answer = await attempt();
    if (answer.kind !== "hold" || held >= MAX_HOLD_MS) return answer;
    await deps.clock.sleep(HOLD_LOOK_MS, AbortSignal.any([lost.signal, stopRequested.signal]));
    if (lost.signal.aborted) throw new Left("lease lost");
  }
}
