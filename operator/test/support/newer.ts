/** Newer input for a turn at work, decided by the ledger as if a model had said what it means. */
import assert from "node:assert/strict";
import type { Database } from "#ledger/database.ts";
import { sql } from "./positions.ts";
import { decideAs, undecidedOf } from "./steering.ts";

type Newer = { readonly text: string; readonly actor?: string };
const ANYBODY = { who: "thread_scoped" } as const;

const said = (db: Database, runId: string, { text, actor = "alice" }: Newer) =>
  undecidedOf(db, { runId }, { by: actor, text });

/** A message that the turn is to take in at its next decision point. */
export async function amend(db: Database, runId: string, newer: Newer): Promise<{ eventId: string; seq: number }> {
  const message = await said(db, runId, newer);
  assert.equal((await decideAs(db, message, "refines", { ...ANYBODY, midTurn: "amend" })).kind, "amended");
  return message;
}

/** A message that restarts the turn; its successor waits for no further one. */
export async function supersede(
  db: Database,
  runId: string,
  newer: Newer,
): Promise<{ runId: string; eventId: string }> {
  const message = await said(db, runId, newer);
  const decided = await decideAs(db, message, "refines", { ...ANYBODY, midTurn: "preempt" });
  assert.ok("nextRunId" in decided && decided.kind === "preempted" && decided.nextRunId !== null, decided.kind);
  await sql(db, "update runs set due_at = pawl_now() where id = $1", [decided.nextRunId]);
  return { runId: decided.nextRunId, eventId: message.eventId };
}
