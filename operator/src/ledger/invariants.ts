/** The numbered invariants (docs/invariants.md) as SQL: each statement returns the rows that break one. */
import type { Runner } from "./database.ts";
import { statement, type Statement } from "./statement.ts";

const OFFENDER = { offender: "text" } as const;
const invariant = (name: string, text: string) => ({
  name,
  statement: statement({ name: `invariant_${name}`, params: {}, columns: OFFENDER, text }),
});

/** The runs of one request whose steps are this run's own. */
const OF_REQUEST = `cross join lateral (
       select array_agg(x.id) as runs from runs x where x.id = r.id or (x.id = any (r.inherits) and x.request_id = r.request_id)) m`;

export const INVARIANTS: readonly { name: string; statement: Statement<Record<never, never>, typeof OFFENDER> }[] = [
  invariant(
    "i1_one_live_run",
    `select conversation_id::text as offender from runs where live and conversation_id is not null group by 1 having count(*) > 1`,
  ),
  invariant(
    "i1_conversation_knows_its_live_run",
    `select c.id::text as offender from conversations c
     left join runs r on r.conversation_id = c.id and r.live where c.live_run is distinct from r.id`,
  ),
  invariant(
    "i2_pending_has_a_live_run_before_it",
    `select e.id::text as offender from message_events e
     left join runs r on r.conversation_id = e.conversation_id and r.live where e.state in ('pending', 'undecided') and r.id is null`,
  ),
  invariant(
    "i2_one_turn_is_one_authors_rights",
    `select e.id::text as offender from message_events e join runs r on r.id = e.run_id join run_triggers t on t.run_id = r.id and t.event_id = e.id
     where e.state = 'in_turn' and t.role = 'trigger' and e.grants <> r.grants`,
  ),
  invariant(
    "i2_in_turn_means_live_and_accounted_means_ended",
    `select e.id::text as offender from message_events e join runs r on r.id = e.run_id
     where (e.state = 'in_turn') <> r.live`,
  ),
  invariant(
    "i2_superseded_accounts_for_nothing",
    `select e.id::text as offender from message_events e join runs r on r.id = e.run_id
     where e.state = 'accounted' and r.superseded_by is not null`,
  ),
  invariant(
    "i3_committed_when_an_effect_crossed",
    `select r.id::text as offender from runs r
     where (r.committed_at is null) = exists (select from commitment_effects e where e.root_id = r.id)`,
  ),
  invariant(
    "i3_nothing_crosses_after_the_reply",
    `select e.id::text as offender from commitment_effects e join runs r on r.id = e.root_id
     where r.reply_at is not null and e.kind <> 'reply' and e.attempt = 1 and e.dispatched_at > r.reply_at`,
  ),
  invariant(
    "i3_cause_is_the_reply_once_it_crossed",
    `select r.id::text as offender from runs r join commitment_effects e on e.id = r.committed_by
     where (r.reply_at is not null) <> (e.kind = 'reply')`,
  ),
  invariant(
    "i5_crossing_calls_have_their_effect",
    `select c.id::text as offender from tool_calls c
     where c.class = 'effectful' and c.outcome in ('real', 'unknown')
       and not exists (select from commitment_effects e join runs r on r.journal_scope = e.journal_scope
                       where r.id = c.run_id and (e.call_id = c.id or e.args_hash = c.args_hash))
       and not (c.kind = 'compensation' and exists (
         select from commitment_effects e where e.compensates::text = c.args ->> 'effect' and e.state = 'confirmed'))`,
  ),
  invariant(
    "i5_a_compensation_undoes_what_took_place",
    `select e.id::text as offender from commitment_effects e left join commitment_effects w on w.id = e.compensates
     where (e.kind = 'compensation') <> (e.compensates is not null) or w.state <> 'confirmed'`,
  ),
  invariant(
    "i5_gated_calls_ran_only_when_approved",
    `select c.id::text as offender from tool_calls c where c.gate <> 'none'
       and (c.outcome in ('real', 'unknown') or exists (select from commitment_effects e where e.call_id = c.id))
       and not exists (select from approvals a where a.call_id = c.id and a.state = 'approved' and a.args_hash = c.args_hash
                       and not exists (select from commitment_effects e where e.call_id = c.id and e.args_hash <> a.args_hash))`,
  ),
  invariant(
    "i5_gates_are_as_decided",
    `select a.id::text as offender from approvals a join tool_calls c on c.id = a.call_id where a.state <> c.gate
     union all select c.id::text from tool_calls c where c.gate not in ('none', 'open')
       and not exists (select from approvals a where a.call_id = c.id)`,
  ),
  invariant(
    "i5_a_decided_approval_has_its_decision",
    `select a.id::text as offender from approvals a where a.state in ('approved', 'rejected')
       and not exists (select from approval_decisions d where d.decision = a.decision and d.approval_id = a.id
                       and d.actor = a.decided_by and d.done = a.state)
     union all select d.decision from approval_decisions d join approvals a on a.id = d.approval_id
     where d.done in ('approved', 'rejected') and d.decision is distinct from a.decision`,
  ),
  invariant(
    "i6_a_later_step_finds_no_open_call",
    `select c.id::text as offender from tool_calls c join runs r on r.id = c.run_id or c.run_id = any (r.inherits)
     join run_steps s on s.run_id = r.id and s.ordinal > c.ordinal where c.outcome is null`,
  ),
  invariant(
    // But a read of a superseded one, until its successor has a step: its worker may still bring the result.
    "i6_an_ended_run_has_no_open_call",
    `select c.id::text as offender from tool_calls c join runs r on r.id = c.run_id where not r.live and c.outcome is null
       and not (c.class = 'pure' and r.superseded_by is not null and exists (
         select from runs h where h.conversation_id = r.conversation_id and h.live and r.id = any (h.inherits)
           and h.next_ordinal = h.inherits_through + 1))`,
  ),
  invariant(
    "inherits_ended_runs_and_in_no_circle",
    `select r.id::text as offender from runs r cross join unnest(r.inherits) with ordinality i (id, age) left join runs x on x.id = i.id
     where x.id is null or x.live or r.id = any (x.inherits || x.id) or not x.inherits <@ r.inherits
        or array_position(r.inherits, x.id) <> i.age
        or exists (select from unnest(x.inherits) b (id) where array_position(r.inherits, b.id) > i.age)`,
  ),
  invariant(
    // Of another request only where this one continues it; without a step there is nothing in a journal.
    "inherits_in_one_conversation_request_and_journal",
    `select r.id::text as offender from runs r join runs x on x.id = any (r.inherits)
     where x.conversation_id <> r.conversation_id
        or (x.journal_scope <> r.journal_scope and exists (select from run_steps s where s.run_id = x.id))
        or x.request_id not in (
          with recursive before (id) as (
            select r.request_id union select q.continues from before b join logical_requests q on q.id = b.id where q.continues is not null)
          select id from before)`,
  ),
  invariant(
    "inherits_ends_with_the_run_before",
    `select r.id::text as offender from runs r where (r.inherits = '{}') <> (r.inherits_run is null)
        or (r.inherits_run is not null and not r.inherits_run = any (r.inherits))
        or r.inherits_through is distinct from (select max(x.next_ordinal) - 1 from runs x where x.id = any (r.inherits))
     union all select x.id::text from runs x join runs h on h.id = x.superseded_by where not x.id = any (h.inherits)`,
  ),
  invariant(
    "inherits_ordinals_go_on",
    `select r.id::text as offender from runs r join run_steps s on s.run_id = r.id or s.run_id = any (r.inherits)
     where r.inherits <> '{}' group by r.id, s.ordinal having count(*) > 1
     union all select r.id::text from runs r join run_steps s on s.run_id = r.id where s.ordinal <= r.inherits_through
     union all select r.id::text from runs r join run_steps s on s.run_id = any (r.inherits) where s.ordinal > r.inherits_through`,
  ),
  invariant(
    "i7_lease_or_due",
    `select id::text as offender from runs
     where (live and (lease_until is null) = (due_at is null)) or (not live and (lease_until is not null or due_at is not null))`,
  ),
  invariant(
    "i8_one_reply",
    `select request_id::text as offender from commitment_effects where kind = 'reply' group by request_id, part having count(*) > 1`,
  ),
  invariant(
    "i7_a_run_that_waits_for_an_answer_has_asked",
    `select r.id::text as offender from runs r where r.status = 'awaiting_input'
       and not exists (select from questions q join tool_calls c on c.id = q.call_id where q.run_id = r.id and q.state = 'open' and c.outcome is null)
     union all select q.id::text from questions q join runs r on r.id = q.run_id where q.state = 'open' and not r.live`,
  ),
  invariant(
    "i8_a_question_is_said_once",
    `select q.id::text as offender from questions q where 1 <> (
       select count(*) from emissions e join tool_calls c on c.id = q.call_id
       where e.request_id = q.request_id and e.kind = 'question' and e.sequence = c.ordinal)`,
  ),
  invariant(
    "i8_an_answer_is_the_result_of_its_question",
    `select q.id::text as offender from questions q join tool_calls c on c.id = q.call_id
     where (q.state = 'answered' and (c.outcome is distinct from 'real'
            or not exists (select from run_triggers t where t.event_id = q.answer_event)))
       or (q.state = 'expired' and c.outcome = 'real')`,
  ),
  invariant(
    // A budget is its request's: restarts count on, a continuation after consent begins anew.
    "i10_counters_equal_their_rows",
    `select r.id::text as offender from runs r ${OF_REQUEST}
     where r.model_calls <> r.charged_calls + (select count(*) from run_steps s where s.run_id = any (m.runs) and s.request ->> 'closing' is null)
       or r.tool_calls <> (select count(*) from tool_calls c where c.run_id = any (m.runs) and c.class <> 'reply')
       or r.input_tokens <> (select coalesce(sum((usage ->> 'inputTokens')::bigint), 0) from run_steps s where s.run_id = any (m.runs))
       or r.output_tokens <> (select coalesce(sum((usage ->> 'outputTokens')::bigint), 0) from run_steps s where s.run_id = any (m.runs))
       or r.next_ordinal <> greatest(coalesce(r.inherits_through, 0), (select coalesce(max(ordinal), 0) from run_steps s where s.run_id = r.id)) + 1`,
  ),
  invariant(
    "i10_cost_is_the_sum_of_its_steps_or_unknown",
    `select r.id::text as offender from runs r ${OF_REQUEST}
     cross join lateral (select coalesce(sum(s.cost_micros), 0) as sum, coalesce(bool_or(s.cost_micros is null), false) as unknown, count(*) as steps
                         from run_steps s where s.run_id = any (m.runs)) c
     where c.steps > 0 and r.cost_micros is distinct from case when r.charged_calls = 0 and not c.unknown then c.sum end`,
  ),
  invariant(
    "i10_a_live_run_counts_its_messages",
    `select r.id::text as offender from runs r join logical_requests q on q.id = r.request_id
     where r.live and r.root_id = r.id and (r.requester is distinct from q.requester
       or r.trigger_count <> (select count(*) from run_triggers t where t.run_id = r.id))`,
  ),
  invariant(
    "i10_without_a_lease_nothing_is_reserved",
    `select id::text as offender from runs where lease_owner is null and (leased_at is not null or reserved_calls <> 0)`,
  ),
  invariant(
    "provenance_what_is_built_on_exists",
    `select b.by::text as offender from (
       select id as by, unnest(evidence) as id from tool_calls union all
       select id, unnest(built_on) from commitment_effects union all
       select id, unnest(evidence) from memories) b
     where not exists (select from tool_source_evidence e where e.id = b.id)`,
  ),
  invariant(
    "provenance_a_result_names_its_own_evidence",
    `select e.id::text as offender from tool_source_evidence e join tool_calls c on c.id = e.call_id
     where c.outcome is null or not e.id = any (c.evidence)`,
  ),
  invariant(
    "provenance_a_reply_shows_only_what_may_be_shown",
    `select f.id::text as offender from commitment_effects f join runs r on r.id = f.root_id
     join tool_source_evidence e on e.id = any (f.built_on)
     where f.kind = 'reply' and not case e.audience when 'public' then true when 'agent' then e.agent_id = r.agent_id
                                                    else e.conversation_id = r.conversation_id end`,
  ),
  invariant(
    "memory_is_written_with_its_result",
    `select m.id::text as offender from memories m join tool_calls c on c.id = m.call_id where c.outcome is distinct from 'real'`,
  ),
];

export type Violation = { readonly invariant: string; readonly offender: string };

/** Empty on a healthy ledger, at every instant between two commits. */
export async function checkInvariants(db: Runner): Promise<Violation[]> {
  const found: Violation[] = [];
  for (const { name, statement: query } of INVARIANTS) {
    for (const row of await db.rows(query, {})) found.push({ invariant: name, offender: row.offender });
  }
  return found;
}
