/**
 * What becomes of a message that met a turn at work, once somebody has said what it means: `rules/interrupt.ts` on
 * locked rows, and everything that follows from it, in one statement. A message is decided once: its state says whether
 * it was, so a lost reply is answered by the same statement. Messages are decided in the order they came; only a stop
 * goes before, and takes what its author had said earlier with it.
 */
import { v7 as uuidv7 } from "uuid";
import { STEERED_CODE } from "#rules/limits.ts";
import type { Done, Policy, Relation } from "#rules/interrupt.ts";
import { answers } from "./answers.ts";
import type { Runner } from "./database.ts";
import { untilKnown } from "./looks.ts";
import { statement } from "./statement.ts";
import { endTurn } from "./turn-end.ts";
import { GIVES_LEASE } from "./work.ts";

/**
 * Conversation, its live run, the message. `stale`: what is read of other messages here is not the whole mailbox, or a
 * run that the conversation names is too new for this statement's snapshot.
 */
const LOCKED = `
    conversation_row as (
      select c.*, c.mail_version <> (select s.mail_version from conversations s where s.id = c.id) as stale
      from conversations c where c.id = :conversation for no key update),
    live_row as (
      select r.*, r.version <> (select s.version from runs s where s.id = r.id) as stale
      from runs r join conversation_row c on r.id = c.live_run for no key update of r),
    event_row as (
      select e.* from conversation_row c left join live_row r on true
      join message_events e on e.id = :event and e.conversation_id = c.id for no key update of e),
    locked as (
      select r.id, r.conversation_id, r.request_id, r.status, r.version, r.committed_at, r.reply_at, r.stop_requested_at, r.requester, r.addressed,
             r.trigger_count, r.interruptions, r.closed_to_interrupts, r.deadline_at, r.parked_at, r.grants, r.window_until, r.hold_until, r.reason as waits_for,
             c.id as mailbox, c.agent_id as mailbox_agent, c.live_run, c.head_seq, c.last_version, c.max_count,
             e.id as event_id, e.seq as event_seq, e.state as event_state, e.actor_id as author, e.grants as event_grants,
             e.quiet_until, e.wait_until, e.slice as event_slice, e.body as event_body, e.deadline_ms as event_deadline_ms,
             c.stale or (c.live_run is not null and (r.id is null or r.stale)) as stale,
             case when r.id is null then 'free' when r.status = 'queued' then 'window' when r.status = 'awaiting_input' and r.committed_at is null then 'waiting' when r.status = 'awaiting_input' then 'waiting_committed'
                  when r.reply_at is not null then 'replied' when r.committed_at is not null then 'committed' else 'buffering' end as position,
             case :who when 'thread_scoped' then true when 'addressed_actor_only' then coalesce(e.actor_id = r.addressed, false)
                       else coalesce(e.actor_id = r.requester, false) end as entitled,
             r.closed_to_interrupts or r.interruptions >= :max_supersessions
               or coalesce(r.deadline_at <= coalesce(r.parked_at, pawl_now()), false) as bound,
             exists (select from message_events m where m.conversation_id = c.id and m.state = 'undecided' and m.seq < e.seq) as after_another,
             coalesce((select min(m.seq) from message_events m where m.conversation_id = c.id and m.state = 'undecided' and m.id <> e.id
               and not (:relation = 'cancels' and m.actor_id = e.actor_id and m.seq < e.seq)), 0) as next_held,
             (select i.done from interrupts i where i.event_id = e.id) as known,
             (select i.reason from interrupts i where i.event_id = e.id) as known_reason
      from conversation_row c join event_row e on true left join live_row r on true)`;

/** The table of `rules/interrupt.ts`, line by line. */
const JUDGED = `
    judged as (
      select *, case
        when event_state <> 'undecided' then 'already'
        when stale then 'again'
        when :relation <> 'cancels' and after_another then 'not_yet'
        when position = 'free' then 'new_run'
        when :relation = 'cancels' and position in ('window', 'waiting') and entitled then 'cancelled'
        when :relation = 'cancels' and position = 'waiting_committed' and entitled then 'stopping'
        when :relation = 'cancels' and position in ('window', 'waiting', 'waiting_committed') then 'queued'
        when position = 'window' and grants = event_grants and trigger_count < max_count then 'folded'
        when position = 'window' then 'queued'
        when position in ('waiting', 'waiting_committed') then 'answered'
        when not entitled or position = 'replied' then 'queued'
        when :relation = 'cancels' and position = 'committed' then 'stopping'
        when :relation = 'cancels' then 'cancelled'
        when stop_requested_at is not null or :relation <> 'refines' or grants <> event_grants or bound then 'queued'
        when :mid_turn = 'amend' then 'amended'
        when position = 'committed' and :after_commit = 'reconcile' then 'reconcile'
        when position = 'buffering' and :mid_turn = 'preempt' then 'preempted'
        else 'queued' end as verdict from locked),
    verdict as (
      select *, verdict not in ('already', 'again', 'not_yet') as acts,
             verdict = 'cancelled' as ends, 'cancelled' as end_status, 0 as seen, 0 as new_messages,
             author as taken_by, :who = 'thread_scoped' as taken_all, event_seq as taken_until, event_id as applied,
             case verdict when 'new_run' then 'Free' when 'folded' then 'Window' when 'answered' then 'Waiting' when 'amended' then 'Amend'
               when 'preempted' then 'Buffering' when 'stopping' then 'Committed' when 'reconcile' then 'Committed'
               when 'cancelled' then case position when 'window' then 'NotStarted' when 'waiting' then 'Waiting' else 'Buffering' end
               when 'queued' then case
                 when :relation = 'cancels' and position in ('window', 'waiting', 'waiting_committed') then 'NotEntitled'
                 when position = 'window' then case when grants <> event_grants then 'DifferentGrants' else 'WindowFull' end
                 when not entitled then 'NotEntitled'
                 when position = 'replied' then 'AlreadyAnswered'
                 when stop_requested_at is not null then 'Stopping'
                 when :relation = 'independent' then 'Independent'
                 when :relation = 'unsure' then 'Unsure'
                 when :relation = 'none' then case when :mid_turn = 'enqueue' then 'Enqueue' else 'NoModel' end
                 when grants <> event_grants then 'DifferentGrants'
                 when bound then 'Bound'
                 when position = 'committed' then 'Committed'
                 else 'Enqueue' end end as said
      from judged)`;

/** The message itself, and what a stop takes back of a turn that goes on to its reply. The end of a turn does its own. */
const MESSAGES = `
    decided as (
      update message_events e set
             state = case when v.verdict = 'stopping' then 'applied' when v.verdict in ('queued', 'reconcile') then 'pending' else 'in_turn' end,
             run_id = case when v.verdict in ('preempted', 'new_run') then :next_run when v.verdict in ('amended', 'folded', 'answered') then v.id end,
             reconciles = case when v.verdict = 'reconcile' then v.request_id else e.reconciles end
      from verdict v where e.id = v.event_id and v.acts and not v.ends),
    meant as (
      select e.id, e.state from verdict v join message_events e on e.conversation_id = v.mailbox and e.state in ('pending', 'undecided')
        and e.actor_id = v.author and e.seq < v.event_seq
      where v.verdict = 'stopping'),
    let_go as (update message_events e set state = 'withdrawn' from meant m where e.id = m.id),
    took as (
      insert into run_triggers (run_id, event_id, role)
      select case when v.verdict in ('preempted', 'new_run') then :next_run else v.id end, v.event_id,
             case v.verdict when 'amended' then 'amend' else 'trigger' end
      from verdict v where v.verdict in ('amended', 'folded', 'preempted', 'new_run')),
    inherited as ( -- what it has read stays read: delivered_ordinal is of a step that the successor inherits
      insert into run_triggers (run_id, event_id, role, delivered_ordinal)
      select :next_run, t.event_id, 'inherited', t.delivered_ordinal
      from verdict v join message_events e on e.run_id = v.id and e.state = 'in_turn'
      join run_triggers t on t.run_id = v.id and t.event_id = e.id where v.verdict = 'preempted'),
    carried as (
      update message_events e set run_id = :next_run from verdict v
      where v.verdict = 'preempted' and e.run_id = v.id and e.state = 'in_turn')`;

/** A turn that had asked: this answers it, whatever it means besides. */
const ANSWERED = `
    answering as (
      select id as run_id, event_id, event_seq as seq, author as actor_id, event_body as body, next_held, pawl_now() as at
      from verdict where verdict = 'answered'),${answers(`
             hold_seq = a.next_held, hold_until = case when a.next_held = 0 then null else r.hold_until end,`)}`;

/** A turn that stays where it is, and knows more. */
const TOUCHED = `
    touched as (
      update runs r set
             amend_seq = case when v.verdict = 'amended' then greatest(r.amend_seq, v.event_seq) else r.amend_seq end,
             addressed = case when v.verdict in ('amended', 'folded') then v.author else r.addressed end,
             trigger_count = r.trigger_count + (v.verdict in ('amended', 'folded'))::int,
             min_code = case when v.verdict = 'amended' then greatest(r.min_code, ${STEERED_CODE}) else r.min_code end,
             stop_requested_at = case when v.verdict = 'stopping' then coalesce(r.stop_requested_at, pawl_now()) else r.stop_requested_at end,
             -- A model that asked for patience is not asked sooner because of an amendment; a person is not waited for any longer.
             due_at = case when r.due_at is null then null
                           when v.verdict = 'stopping' or (v.verdict = 'amended' and v.waits_for = 'WaitingForApproval') then pawl_now()
                           when v.verdict = 'folded' and v.trigger_count + 1 >= v.max_count then pawl_now()
                           when v.verdict = 'folded' and v.quiet_until is not null then greatest(r.due_at, least(r.window_until, v.quiet_until))
                           else r.due_at end,
             hold_seq = v.next_held, hold_until = case when v.next_held = 0 then null else r.hold_until end,
             version = r.version + 1, changed_at = pawl_now()
      from verdict v where r.id = v.id and v.acts and v.verdict not in ('cancelled', 'preempted', 'answered'))`;

/**
 * The restart. What it has cost and learned goes on in the successor: steps by reference, counters by copy, because
 * the budget is the request's. Finished reads may still be attached to their open calls by the old worker; nothing
 * else of the old turn is done any more.
 */
const PREEMPT = `
    superseded as (
      update runs r set status = 'cancelled', live = false, reason = 'Superseded', message = :superseded, superseded_by = :next_run,
            ${GIVES_LEASE}, due_at = null, ended_at = pawl_now(), hold_seq = 0, hold_until = null,
             version = r.version + 1, changed_at = pawl_now()
      from verdict v where r.id = v.id and v.verdict = 'preempted' returning r.*),
    successor as (
      insert into runs (id, root_id, conversation_id, request_id, journal_scope, agent_id, agent_generation, shape, status, live, due_at, window_until,
                        min_code, slice, requester, addressed, grants, trigger_count, interruptions, closed_to_interrupts, deadline_at, amend_seq,
                        hold_seq, hold_until, inherits, inherits_run, inherits_through, next_ordinal, model_calls, tool_calls, input_tokens,
                        output_tokens, charged_calls, spent_micros, cost_micros, worked_ms, version, queued_at, started_at, changed_at)
      select :next_run, :next_run, s.conversation_id, s.request_id, s.journal_scope, s.agent_id, s.agent_generation, s.shape, 'queued', true,
             case when s.trigger_count + 1 >= v.max_count then pawl_now() else greatest(pawl_now(), least(v.quiet_until, v.wait_until)) end, v.wait_until,
             greatest(s.min_code, ${STEERED_CODE}), s.slice, s.requester, v.author, s.grants, s.trigger_count + 1, s.interruptions + 1,
             s.closed_to_interrupts or s.interruptions + 1 >= :max_supersessions, s.deadline_at, greatest(s.amend_seq, v.event_seq),
             v.next_held, case when v.next_held > 0 then v.hold_until end,
             s.inherits || s.id, s.id, s.next_ordinal - 1, s.next_ordinal, s.model_calls, s.tool_calls, s.input_tokens,
             s.output_tokens, s.charged_calls, s.spent_micros, s.cost_micros, s.worked_ms, s.version + 1, pawl_now(), s.started_at, pawl_now()
      from superseded s, verdict v returning id),
    tools as ( -- as the inherited steps were shown them
      insert into run_toolsets (run_id, tools, pinned_at)
      select :next_run, t.tools, pawl_now() from superseded s join run_toolsets t on t.run_id = s.id),
    counted as (
      update logical_requests q set interruptions = q.interruptions + 1 from superseded s where q.id = s.request_id),
    dropped as (
      update tool_calls c set closed_at = pawl_now(), outcome = case when c.class = 'reply' then 'withheld' else 'cancelled' end,
             result = 'not run: newer input came, and the turn began anew with it',
             gate = case when c.gate = 'open' and exists (select from approvals a where a.call_id = c.id) then 'withdrawn' else c.gate end
      from verdict v where v.verdict = 'preempted' and c.run_id = v.id and c.outcome is null and c.class <> 'pure'),
    unanswered as (
      update questions q set state = 'withdrawn', closed_at = pawl_now() from verdict v
      where v.verdict = 'preempted' and q.run_id = v.id and q.state = 'open'),
    asked_no_more as (
      update approvals a set state = 'withdrawn', decided_at = pawl_now() from verdict v
      where v.verdict = 'preempted' and a.run_id = v.id and a.state = 'open')`;

/** Undecided, and its turn is gone: code of before mailboxes ended it, and did not know of such messages. */
const OPENED = `
    asked as (
      insert into logical_requests (id, conversation_id, requester, deadline_at, opened_at)
      select :next_request, v.mailbox, v.author, pawl_now() + v.event_deadline_ms * interval '1 ms', pawl_now()
      from verdict v where v.verdict = 'new_run' returning id, deadline_at),
    opened as (
      insert into runs (id, root_id, conversation_id, request_id, journal_scope, agent_id, agent_generation, status, live, due_at, window_until,
                        slice, requester, addressed, grants, deadline_at, hold_seq, version, queued_at, changed_at)
      select :next_run, :next_run, v.mailbox, q.id, :next_run, a.id, a.generation, 'queued', true,
             greatest(pawl_now(), least(v.quiet_until, v.wait_until)), v.wait_until, v.event_slice, v.author, v.author, v.event_grants,
             q.deadline_at, v.next_held, v.last_version + 1, pawl_now(), pawl_now()
      from asked q, verdict v join agents a on a.id = v.mailbox_agent returning id)`;

/**
 * Both channels, and not one or the other: SQL need not look at the second half of an `or`. Notified too when another message waits for a decision: who knows what that one means may have come
 * too early with it.
 */
const decideEventStatement = statement({
  name: "decide_event",
  guarded: true,
  params: {
    conversation: "uuid",
    event: "uuid",
    relation: "text",
    source: "text",
    who: "text",
    mid_turn: "text",
    after_commit: "text",
    max_supersessions: "int4",
    nonce: "uuid",
    reason: "text",
    message: "text",
    superseded: "text",
    next_run: "uuid",
    next_request: "uuid",
  },
  columns: { verdict: "text", reason: "text?", known: "text?", run_id: "uuid?", next_run: "uuid?", notified: "bool" },
  text: `
    with ${LOCKED},${JUDGED},
    ${endTurn("verdict", "v.event_id")},${MESSAGES},${ANSWERED},${TOUCHED},${PREEMPT},${OPENED},
    noted as (
      update conversations c set mail_version = c.mail_version + 1,
             live_run = case when v.verdict in ('preempted', 'new_run') then :next_run else c.live_run end,
             last_version = case when v.verdict = 'preempted' then v.version + 1 else c.last_version end
      from verdict v where c.id = v.mailbox and v.acts and not v.ends),
    recorded as (
      insert into interrupts (event_id, run_id, relation, asked, done, reason, source, at)
      select v.event_id, v.id, case :relation when 'unsure' then 'independent' else :relation end,
             case when :relation = 'cancels' then 'cancel' else :mid_turn end, v.verdict, v.said, :source, pawl_now()
      from verdict v where v.acts
      union all
      select m.id, v.id, 'cancels', :mid_turn, 'withdrawn', 'Stopped', :source, pawl_now() from meant m, verdict v where m.state = 'undecided'
      on conflict do nothing),
    signal as (
      select pg_notify('pawl_signal', v.id::text) from verdict v where v.verdict in ('amended', 'preempted', 'cancelled', 'stopping'))
    select v.verdict, coalesce(v.known_reason, v.said) as reason, v.known, v.id as run_id,
           case when v.verdict in ('preempted', 'new_run') then :next_run else (select id from next) end as next_run,
           (select count(*) from signal) + (select count(pg_notify('pawl_due', '')::text) from verdict d
              where d.verdict in ('amended', 'answered', 'folded', 'stopping', 'preempted', 'new_run')
                or exists (select from next) or (d.acts and d.next_held > 0)) > 0 as notified
    from verdict v`,
});

/** Of a turn that a stop ended, and of one that began anew: a sentence for whoever looks at it. */
const STOPPED = "a message in the conversation said to stop";
const SUPERSEDED = "newer input changed what was asked; its successor goes on from here";

export type Decision = {
  readonly conversationId: string;
  readonly eventId: string;
  readonly relation: Relation;
  /** Who says so. */
  readonly source: "policy" | "stop_word" | "model" | "edit" | "delete";
  readonly policy: Pick<Policy, "who" | "midTurn" | "afterCommit" | "maxSupersessions">;
};

export type DecidedEvent =
  | {
      readonly kind: Exclude<Done, "observed" | "undecided">;
      readonly reason: string;
      /** The run that the message met. */
      readonly runId: string | null;
      /** The one that goes on: a restart, or the turn behind one that was stopped. */
      readonly nextRunId: string | null;
    }
  /** Decided before, or its turn ended first; `done` as it was then, null where nobody wrote it down. */
  | { readonly kind: "already"; readonly done: string | null; readonly reason: string | null }
  /** An earlier message of the conversation is undecided. */
  | { readonly kind: "not_yet" };

export async function decideEvent(db: Runner, decision: Decision): Promise<DecidedEvent> {
  const { policy } = decision;
  const params = {
    conversation: decision.conversationId,
    event: decision.eventId,
    relation: decision.relation,
    source: decision.source,
    who: policy.who,
    mid_turn: policy.midTurn,
    after_commit: policy.afterCommit,
    max_supersessions: policy.maxSupersessions,
    nonce: uuidv7(),
    reason: "Stopped",
    message: STOPPED,
    superseded: SUPERSEDED,
    next_run: uuidv7(),
    next_request: uuidv7(),
  };
  return untilKnown<DecidedEvent>(async () => {
    const row = await db.one(decideEventStatement, params);
    switch (row.verdict) {
      case "again":
        return undefined;
      case "not_yet":
        return { kind: "not_yet" };
      case "already":
        return { kind: "already", done: row.known, reason: row.reason };
      default:
        return {
          kind: row.verdict as Exclude<Done, "observed" | "undecided">,
          reason: row.reason ?? "",
          runId: row.run_id,
          nextRunId: row.next_run,
        };
    }
  });
}
