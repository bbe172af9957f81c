/**
 * Statements of the mailbox answer `again` where their snapshot turned out older than the rows that they waited for.
 * That needs a commit of somebody else in the window between snapshot and lock, each time.
 */
import { PawlError } from "#rules/errors.ts";

export const MAX_LOOKS = 20;

/** Runs `look` until it knows; undefined means: not yet. `what` everybody writes to. */
export async function untilKnown<T>(look: () => Promise<T | undefined>, what = "conversation"): Promise<T> {
  for (let looks = 0; looks < MAX_LOOKS; looks += 1) {
    const known = await look();
    if (known !== undefined) return known;
  }
  throw new PawlError("conflict", "LedgerConflict", `the ${what} changes faster than it can be read`);
}
