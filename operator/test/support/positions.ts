/** Runs in every status, and the raw SQL that a test needs where no statement of the product leads there yet. */
import { v7 as uuidv7 } from "uuid";
import type { QueryResultRow } from "pg";
import type { Database } from "#ledger/database.ts";
import type { Message } from "#ledger/mailbox.ts";
import type { RunStatus, TerminalStatus } from "#rules/run-machine.ts";
import { finishTurn, requestStop, type Stopped, type TurnEnd } from "#ledger/turns.ts";
import { aQuestion, ask } from "./questions.ts";
import { aCall, aClaimedRun, aRun, respond } from "./world.ts";

/** Where raw SQL goes: a Database, or what `useLedger()` gave. */
export type Place = Database | { readonly db: Database };

/** One statement on the ledger's pool, past the product. */
export async function sql<R extends QueryResultRow = QueryResultRow>(
  place: Place,
  text: string,
  values: readonly unknown[] = [],
): Promise<R[]> {
  const { pool } = "pool" in place ? place : place.db;
  return (await pool.query<R>(text, [...values])).rows;
}

export type RunRow = {
  status: RunStatus;
  live: boolean;
  lease_token: number;
  lease_owner: string | null;
  committed_at: Date | null;
  committed_by: string | null;
  committed_step: number | null;
  reply_at: Date | null;
  stop_requested_at: Date | null;
  last_nonce: string | null;
  due_at: Date | null;
  next_ordinal: number;
  version: number;
  attempts: number;
  reason: string | null;
};

export async function runRow(db: Place, runId: string): Promise<RunRow> {
  const [row] = await sql<RunRow>(db, "select * from runs where id = $1", [runId]);
  if (row === undefined) throw new Error(`no run ${runId}`);
  return row;
}

export const count = async (db: Place, text: string, values: readonly unknown[] = []): Promise<number> =>
  Number((await sql<{ n: string }>(db, `select count(*) as n from ${text}`, values))[0]?.n);

export async function conversationOf(db: Place, runId: string): Promise<string> {
  const [row] = await sql<{ id: string }>(db, "select conversation_id as id from runs where id = $1", [runId]);
  if (row === undefined) throw new Error(`no run ${runId}`);
  return row.id;
}

/** For a test that speaks of "the next run": every other one is neither due nor lapsed for a year. */
export async function alone(place: Place, runId: string | null = null): Promise<void> {
  await sql(
    place,
    `update runs set due_at = due_at + interval '1 year', lease_until = lease_until + interval '1 year'
     where live and id is distinct from $1::uuid`,
    [runId],
  );
}

/** The lease of this run ran out a second ago; nobody has noticed yet. */
export async function lapse(db: Place, runId: string): Promise<void> {
  await sql(db, "update runs set lease_until = pawl_now() - interval '1 second' where id = $1", [runId]);
}

export async function end(
  db: Database,
  run: { runId: string; token: number },
  changes: Partial<TurnEnd> = {},
): ReturnType<typeof finishTurn> {
  return finishTurn(db, {
    conversationId: await conversationOf(db, run.runId),
    runId: run.runId,
    token: run.token,
    nonce: uuidv7(),
    status: "succeeded",
    seenSeq: 1,
    reason: null,
    message: null,
    ...changes,
  });
}

export function stop(db: Database, eventId: string, extId = `stop-${uuidv7()}`, why = "enough"): Promise<Stopped> {
  return requestStop(db, { eventId, extId, actor: { connector: "kubernetes", extId: "alice" }, why });
}

export type Positioned = Awaited<ReturnType<typeof aClaimedRun>> & { nonce: string };

/** A run of its own in this status. Live ones that can have a lease have one, and `token` is its token. */
export async function aRunIn(db: Database, status: RunStatus, changes: Partial<Message> = {}): Promise<Positioned> {
  const nonce = uuidv7();
  if (status === "queued") return { ...(await aRun(db, changes)), token: 0, nonce };
  const run = { ...(await aClaimedRun(db, changes)), nonce };
  if (status === "running") return run;
  if (status === "awaiting_tool") {
    await respond(db, run, [aCall({ class: "pure", kind: "tool.query", target: null })]);
    return run;
  }
  if (status === "awaiting_input") {
    const call = aQuestion();
    await respond(db, run, [call]);
    await ask(db, { ...run, call });
    return run;
  }
  await end(db, run, { nonce, status: status satisfies TerminalStatus });
  return run;
}
