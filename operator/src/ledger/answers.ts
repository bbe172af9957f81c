/** What an answer to a question writes, and what is left of a question whose turn ends: parts of other statements. */
import { MAX_RESULT, STEERED_CODE } from "#rules/limits.ts";
import { UNPARKS } from "./work.ts";

/** Characters of a result that name who answered. */
const MAX_WHO = 256;

/**
 * The writes of an answer, for a statement that holds the conversation and a run in `awaiting_input` which nobody has
 * told to stop. They chain from a CTE `answering (run_id, event_id, seq, actor_id, body, at)` of no row or one; that
 * statement inserts the event (`in_turn`, of this run) and updates neither the run nor its triggers itself. `more`: what it
 * wants set on the run `r` besides.
 */
export const answers = (more = ""): string => `
    answered_question as (
      update questions q set state = 'answered', answered_by = a.actor_id, answer_event = a.event_id, closed_at = a.at
      from answering a where q.run_id = a.run_id and q.state = 'open' returning q.call_id),
    answered_call as (
      update tool_calls c set outcome = 'real', closed_at = a.at,
             result = '[answer of ' || (select left(regexp_replace(coalesce(w.display, w.ext_id), '[][\\r\\n]', ' ', 'g'), ${MAX_WHO})
                                        from actors w where w.id = a.actor_id) || '] ' || left(a.body, ${MAX_RESULT - MAX_WHO - 32})
      from answering a, answered_question q where c.id = q.call_id and c.outcome is null),
    answered_run as (
      update runs r set status = 'running', due_at = a.at, reason = null, message = null, unblocked_by = a.actor_id,
             trigger_count = r.trigger_count + 1, amend_seq = greatest(r.amend_seq, a.seq),
             min_code = greatest(r.min_code, ${STEERED_CODE}),${more}${UNPARKS},
             version = r.version + 1, changed_at = a.at
      from answering a where r.id = a.run_id),
    answer_trigger as (
      insert into run_triggers (run_id, event_id, role) select run_id, event_id, 'answer' from answering on conflict do nothing)`;

/** Of a turn that ends: chained from the rows of `from` that say `ends`, as the other writes of that are. */
export const withdrawsQuestions = (from: string): string => `
    withdrawn_question as (
      update questions q set state = 'withdrawn', closed_at = pawl_now() from ${from} v
      where q.run_id = v.id and q.state = 'open' and v.ends)`;
