/** Giving a lease back, with when the run is due again and what it waits for until then. */
import { releaseLease } from "#ledger/leases.ts";
import { storable } from "#rules/text.ts";
import type { EngineDeps } from "./deps.ts";
import type { HeldLease } from "./lease.ts";

export type Wait = {
  readonly delayMs: number;
  readonly reason: string | null;
  readonly message: string | null;
  /** Counts against the bound of attempts. */
  readonly failed: boolean;
};

/** Never throws: a lease that could not be given back lapses, and whoever claims next starts from the same rows. */
export async function giveBack(deps: EngineDeps, lease: HeldLease, wait: Wait): Promise<void> {
  lease.letGo();
  const message = wait.message === null ? null : deps.redaction.text(storable(wait.message));
  try {
    await releaseLease(deps.db, { runId: lease.runId, token: lease.token, ...wait, message });
  } catch (error) {
    deps.log.warn({ run: lease.runId, error: (error as Error).message }, "a lease could not be given back");
  }
}
