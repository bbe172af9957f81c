/**
 * A wait that an endpoint imposed on a credential holds back every run with it, in every worker (C27, C72). The adapter
 * keeps its own in memory, so that a call asks nobody; what it learns goes to the ledger, and every worker looks there
 * now and then. One that asks between a refusal elsewhere and its next look is refused once itself, and that is all.
 */
import { closedGates, closeGate } from "#ledger/rate-gates.ts";
import type { EngineDeps } from "./deps.ts";
import type { SharedWaits } from "./ports.ts";

/** As often as a worker looks for due runs. */
export const LOOK_AT_WAITS_MS = 500;
/** The longest wait that is told to others: no endpoint closes an account to them for ever. */
export const MAX_TOLD_MS = 24 * 3_600_000;

type Deps = Pick<EngineDeps, "db" | "clock" | "log">;

/** What the adapter calls when it was told to wait: never throws, the run goes on with its own wait. */
export const tellOthers =
  (deps: Deps) =>
  async (credential: string, waitMs: number): Promise<void> => {
    try {
      await closeGate(deps.db, credential, Math.min(waitMs, MAX_TOLD_MS));
    } catch (error) {
      deps.log.warn({ error: (error as Error).message }, "other workers could not be told to wait");
    }
  };

export async function lookAtWaits(deps: Deps, waits: SharedWaits): Promise<void> {
  for (const { credential, waitMs } of await closedGates(deps.db)) waits.close(credential, waitMs);
}

export async function keepLookingAtWaits(deps: Deps, waits: SharedWaits, signal: AbortSignal): Promise<void> {
  let complained = false;
  while (!signal.aborted) {
    try {
      await lookAtWaits(deps, waits);
      complained = false;
    } catch (error) {
      if (!complained) deps.log.warn({ error: (error as Error).message }, "waits of other workers were not looked at");
      complained = true;
    }
    await deps.clock.sleep(LOOK_AT_WAITS_MS, signal);
  }
}
