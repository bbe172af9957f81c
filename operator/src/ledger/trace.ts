/** What a step kept of its request, and the rows that it was built from, as they are now. Read only. */
import { ofRun } from "./chain.ts";
import type { Runner } from "./database.ts";
import { type EarlierTurn, turnsOf } from "./reads.ts";
import { statement } from "./statement.ts";

const readRequestsStatement = statement({
  name: "read_requests",
  params: { run: "uuid" },
  columns: {
    ordinal: "int4",
    lease_token: "int8",
    committed_at: "timestamptz",
    request: "jsonb",
    tools: "jsonb?",
  },
  text: `
    select s.ordinal, s.lease_token, s.committed_at, s.request, t.tools
    from run_steps s left join toolsets t on t.hash = s.request ->> 'tools'
    where ${ofRun("s.run_id")} order by s.ordinal`,
});

const readHistoryThroughStatement = statement({
  name: "read_history_through",
  params: { newest: "uuid", turns: "int4" },
  columns: { run_id: "uuid", actor: "text?", body: "text?", reply: "text?", status: "text" },
  // As read_history, but from the turn on that was the newest then.
  text: `
    with earlier as (
      select p.id, p.queued_at, p.status from runs r join runs p on p.conversation_id = r.conversation_id and not p.live
      where r.id = :newest and p.superseded_by is null and (p.queued_at, p.id) <= (r.queued_at, r.id)
      order by p.queued_at desc, p.id desc limit :turns)
    select p.id as run_id, coalesce(a.display, a.ext_id) as actor, coalesce(e.shown, e.body) as body, p.status,
      (select c.args ->> 'text' from tool_calls c where c.run_id = p.id and c.class = 'reply' and c.outcome = 'real') as reply
    from earlier p left join run_triggers t on t.run_id = p.id
      left join message_events e on e.id = t.event_id and e.state = 'accounted' left join actors a on a.id = e.actor_id
    order by p.queued_at, p.id, e.order_key, e.seq`,
});

export type StoredRequest = {
  readonly ordinal: number;
  /** Which claim committed it. */
  readonly token: number;
  readonly at: Date;
  /** As the step keeps it: facts of a request, or why Pawl spoke itself. */
  readonly request: unknown;
  /** The list that its hash names; null when the ledger has no such list. */
  readonly tools: unknown;
};

export async function readRequests(db: Runner, runId: string): Promise<StoredRequest[]> {
  return (await db.rows(readRequestsStatement, { run: runId })).map((row) => ({
    ordinal: row.ordinal,
    token: row.lease_token,
    at: row.committed_at,
    request: row.request,
    tools: row.tools,
  }));
}

/** Oldest first, `newest` last. */
export async function readHistoryThrough(db: Runner, newest: string, turns: number): Promise<EarlierTurn[]> {
  return turnsOf(await db.rows(readHistoryThroughStatement, { newest, turns }));
}
