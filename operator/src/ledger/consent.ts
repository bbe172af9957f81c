/**
 * A turn that ended at its limit asked whether to go on; a clear yes lets the next one go on where it stood: in its
 * journal, with its steps. What it used is not taken over: the new request has a budget of its own.
 */
import { STEERED_CODE } from "#rules/limits.ts";
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const askedBefore = statement({
  name: "asked_before",
  params: { run: "uuid" },
  columns: { id: "uuid", question: "text" },
  // Only who asked for the work may say so, and only in the very next turn, before it has begun.
  text: `
    select p.id, c.args ->> 'text' as question
    from runs r join lateral (
      select id, request_id, status from runs e where e.conversation_id = r.conversation_id and not e.live and e.id <> r.id and e.superseded_by is null
      order by e.queued_at desc, e.id desc limit 1) p on p.status = 'budget_exhausted'
    join tool_calls c on c.run_id = p.id and c.class = 'reply' and c.outcome = 'real'
    join logical_requests q on q.id = p.request_id
    where r.id = :run and r.next_ordinal = 1 and not exists (
      select from run_triggers t join message_events m on m.id = t.event_id where t.run_id = r.id and m.actor_id <> q.requester)`,
});

const continueRequestStatement = statement({
  name: "continue_request",
  guarded: true,
  params: { run: "uuid", token: "int8", predecessor: "uuid" },
  columns: { verdict: "text" },
  // The predecessor has ended: what is read of it does not change any more.
  text: `
    with locked as (
      select r.*, p.id as before, p.journal_scope as scope_before, p.request_id as request_before,
             p.inherits || p.id as steps_before, p.next_ordinal as ordinal_before
      from runs r join runs p on p.id = :predecessor and p.conversation_id = r.conversation_id
      where r.id = :run for no key update of r),
    verdict as (
      select *, case
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        when journal_scope = scope_before then 'already'
        when next_ordinal > 1 then 'fenced'
        else 'continued' end as verdict from locked),
    moved as (
      update runs r set journal_scope = v.scope_before, inherits = v.steps_before || v.inherits, inherits_run = v.before,
             inherits_through = v.ordinal_before - 1, next_ordinal = v.ordinal_before, min_code = greatest(r.min_code, ${STEERED_CODE}), version = r.version + 1, changed_at = pawl_now()
      from verdict v where r.id = v.id and v.verdict = 'continued'),
    linked as (
      update logical_requests q set continues = v.request_before
      from verdict v where q.id = v.request_id and v.verdict = 'continued')
    select verdict from verdict`,
});

/** The turn before, and what it said last; null: it asked nothing that this run could answer. */
export async function readAsked(db: Runner, runId: string): Promise<{ runId: string; question: string } | null> {
  const [row] = await db.rows(askedBefore, { run: runId });
  return row === undefined ? null : { runId: row.id, question: row.question };
}

export type Continued = "continued" | "already" | "fenced" | "ended";

export async function continueRequest(
  db: Runner,
  run: { runId: string; token: number; predecessor: string },
): Promise<Continued> {
  const row = await db.one(continueRequestStatement, {
    run: run.runId,
    token: run.token,
    predecessor: run.predecessor,
  });
  return row.verdict as Continued;
}
