/**
 * A turn that newer input restarted: its successor goes on with the steps of the run before. What that one's worker has
 * finished and could not commit is attached from there, until the successor begins; then what is left open is closed.
 */
import { attachResult, closeInherited } from "#ledger/inherited.ts";
import type { Claim } from "#ledger/leases.ts";
import { readRun, type RunRecord } from "#ledger/reads.ts";
import type { CallResult } from "#ledger/steps.ts";
import type { EngineDeps } from "./deps.ts";
import { NOT_RUN } from "./not-run.ts";
import { Left } from "./turn.ts";

/** The rows of a run that was just claimed, without an open call of a run that it inherits (I6). */
export async function readClaimed(deps: EngineDeps, { runId, token }: Claim): Promise<RunRecord> {
  const run = await readRun(deps.db, runId);
  if (!run.calls.some((call) => call.outcome === null && call.runId !== run.id)) return run;
  const closed = await closeInherited(deps.db, { runId, token, result: NOT_RUN.restarted });
  if (closed !== "closed") throw new Left(closed);
  return readRun(deps.db, runId);
}

/** Results of reads that nothing else will carry; the ledger says which of them are still waited for (C67). */
export async function handOver(deps: EngineDeps, runId: string, results: readonly CallResult[]): Promise<void> {
  for (const result of results) {
    const attached = await attachResult(deps.db, result);
    if (attached === "attached")
      deps.log.info({ run: runId, call: result.id }, "a finished result went to the successor");
  }
}
