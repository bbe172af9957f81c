/**
 * What a turn that was restarted leaves behind: reads whose result its worker may hold, while the successor waits to
 * begin. A finished result is a fact, so it is attached without a lease (I4); the successor's first claim closes what is
 * left before it builds a request (I6).
 */
import type { Runner } from "./database.ts";
import { insertEvidence, PROVENANCE_COLUMNS, provenanceColumns } from "./evidence.ts";
import { statement } from "./statement.ts";
import type { CallResult } from "./steps.ts";

const attachResultStatement = statement({
  name: "attach_result",
  guarded: true,
  params: { call: "uuid", result: "jsonb" },
  columns: { verdict: "text" },
  // Which run made a call, and by what it was superseded, never changes once it is so. Who inherits it may be found too
  // late, while another restart is under way: then the result is lost, and the read is made again.
  text: `
    with heir as (
      select h.id, h.live, h.next_ordinal, h.inherits_through
      from tool_calls c join runs r on r.id = c.run_id join runs h on h.conversation_id = r.conversation_id and h.live and r.id = any (h.inherits)
      where c.id = :call and r.superseded_by is not null for no key update of h),
    call as (
      select c.id as call_id, c.run_id, c.class, c.outcome from (select count(*) from heir) h, tool_calls c
      where c.id = :call for no key update of c),
    locked as (
      select c.*, r.id, r.agent_id, r.root_id, r.conversation_id, coalesce(h.live and h.next_ordinal = h.inherits_through + 1, false) as waits
      from call c join runs r on r.id = c.run_id left join heir h on true),
    verdict as (
      select *, case
        when outcome is not null then 'already'
        when not waits or class <> 'pure' then 'late'
        else 'attached' end as verdict from locked),
    closed as (
      update tool_calls c set outcome = r.outcome, result = r.result, evidence = coalesce(r.evidence, '{}'), closed_at = pawl_now()
      from verdict v, jsonb_to_record(:result) as r (outcome text, result text, ${PROVENANCE_COLUMNS})
      where v.verdict = 'attached' and c.id = v.call_id
      returning c.id, r.source_id, r.source, r.audience),
    sources as (${insertEvidence("closed c", "v.verdict = 'attached'")})
    select coalesce(v.verdict, 'late') as verdict from (select 1) one left join verdict v on true`,
});

const closeInheritedStatement = statement({
  name: "close_inherited",
  guarded: true,
  params: { run: "uuid", token: "int8", result: "text" },
  columns: { verdict: "text" },
  text: `
    with locked as (select * from runs where id = :run for no key update),
    verdict as (
      select *, case
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        else 'closed' end as verdict from locked),
    closed as (
      update tool_calls c set outcome = 'cancelled', result = :result, closed_at = pawl_now()
      from verdict v where v.verdict = 'closed' and c.run_id = any (v.inherits) and c.outcome is null)
    select verdict from verdict`,
});

/** attached: it is in the ledger now · already: somebody was first, or it was this one · late: nobody waits for it. */
export type Attached = "attached" | "already" | "late";

/** The result of a read that was finished when its run was superseded (C67). */
export async function attachResult(db: Runner, result: CallResult): Promise<Attached> {
  const { id: call, outcome, result: text } = result;
  const row = { outcome, result: text, ...provenanceColumns(result) };
  return (await db.one(attachResultStatement, { call, result: row })).verdict as Attached;
}

/** Saying it twice does nothing: what is closed stays as it is. */
export async function closeInherited(
  db: Runner,
  run: { runId: string; token: number; result: string },
): Promise<"closed" | "fenced" | "ended"> {
  const row = await db.one(closeInheritedStatement, { run: run.runId, token: run.token, result: run.result });
  return row.verdict as "closed" | "fenced" | "ended";
}
