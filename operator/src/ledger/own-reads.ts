/** What a run may read back of its own rows: a whole result, and the turns before those that a request shows. */
import type { Audience, Evidence } from "#rules/provenance.ts";
import { ofRun } from "./chain.ts";
import type { Runner } from "./database.ts";
import { type EarlierTurn, turnsOf } from "./reads.ts";
import { statement } from "./statement.ts";

const readResultStatement = statement({
  name: "read_result",
  params: { run: "uuid", ordinal: "int4", idx: "int4" },
  columns: { tool: "text", outcome: "text?", result: "text?" },
  text: `
    select tool, outcome, result from tool_calls
    where ${ofRun("run_id")} and ordinal = :ordinal and idx = :idx and class <> 'reply'`,
});

const readBeforeStatement = statement({
  name: "read_before",
  params: { run: "uuid", skip: "int4", turns: "int4" },
  columns: { run_id: "uuid", actor: "text?", body: "text?", reply: "text?", status: "text" },
  // As the history of a request, from the turn before the newest :skip on, newest turn first.
  text: `
    with earlier as (
      select p.id, p.queued_at, p.status from runs r join runs p on p.conversation_id = r.conversation_id and not p.live and p.id <> r.id
      where r.id = :run and p.superseded_by is null and p.id <> all (r.inherits) and p.queued_at <= r.queued_at
      order by p.queued_at desc, p.id desc offset :skip limit :turns)
    select p.id as run_id, coalesce(a.display, a.ext_id) as actor, coalesce(e.shown, e.body) as body, p.status,
      (select c.args ->> 'text' from tool_calls c where c.run_id = p.id and c.class = 'reply' and c.outcome = 'real') as reply
    from earlier p left join run_triggers t on t.run_id = p.id
      left join message_events e on e.id = t.event_id and e.state = 'accounted' left join actors a on a.id = e.actor_id
    order by p.queued_at desc, p.id desc, e.order_key, e.seq`,
});

const readBuiltOnStatement = statement({
  name: "read_built_on",
  params: { runs: "uuid[]" },
  columns: { id: "uuid", source: "text", audience: "text", agent_id: "uuid", conversation_id: "uuid?" },
  // As read_evidence: a row that is gone bars.
  text: `
    with ids as (select distinct unnest(built_on) as id from commitment_effects where run_id = any (:runs) and kind = 'reply')
    select i.id, coalesce(e.source, 'a source whose record is gone') as source, coalesce(e.audience, 'conversation') as audience,
           coalesce(e.agent_id, i.id) as agent_id, e.conversation_id
    from ids i left join tool_source_evidence e on e.id = i.id order by e.created_at, i.id`,
});

export type StoredResult = { readonly tool: string; readonly outcome: string | null; readonly result: string | null };

export async function readResult(
  db: Runner,
  runId: string,
  at: { readonly step: number; readonly call: number },
): Promise<StoredResult | null> {
  const [row] = await db.rows(readResultStatement, { run: runId, ordinal: at.step, idx: at.call });
  return row ?? null;
}

/** `turns` of them at most, newest first. */
export async function readBefore(
  db: Runner,
  runId: string,
  which: { readonly skip: number; readonly turns: number },
): Promise<EarlierTurn[]> {
  return turnsOf(await db.rows(readBeforeStatement, { run: runId, ...which }));
}

/** What the replies of these turns were built on: who reads them has seen it. */
export async function readBuiltOn(db: Runner, runs: readonly string[]): Promise<Evidence[]> {
  return (await db.rows(readBuiltOnStatement, { runs })).map((row) => ({
    id: row.id,
    source: row.source,
    audience: row.audience as Audience,
    agentId: row.agent_id,
    conversationId: row.conversation_id,
  }));
}
