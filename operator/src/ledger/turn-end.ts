/**
 * The end of a turn as parts of a statement, under the conversation's lock (I2): what the model was shown is accounted
 * for, what it was not goes to the next turn, which is created here if anything waits. Whoever ends a root run uses these.
 */
import { withdrawsQuestions } from "./answers.ts";
import { GIVES_LEASE } from "./work.ts";

/**
 * The conversation first, then its run. `stale` = somebody changed a message or the run between this statement's
 * snapshot and its locks: what the writes below would select is not the whole mailbox (nor would `facts`, read from
 * messages, be true), or misses calls that a response just brought, so the verdict is `again`.
 */
export const lockTurn = (facts = ""): string => `
    conversation_row as (
      select c.*, c.mail_version <> (select s.mail_version from conversations s where s.id = c.id) as stale
      from conversations c where c.id = :conversation for no key update),
    locked as (
      select r.*, c.stale or r.version <> (select s.version from runs s where s.id = r.id) as stale, c.live_run, c.head_seq,
             c.last_version, c.max_count${facts}
      from conversation_row c join runs r on r.conversation_id = c.id
      where r.id = :run for no key update of r)`;

/**
 * What a verdict says to the writes below, as columns beside those of `locked`. Whoever only finishes takes nothing back.
 *
 * ends · end_status · seen: the newest message that the last request contained, sent or not · new_messages: those that
 * the statement adds itself · taken_by: the actor whose unseen messages of this turn are withdrawn with it ·
 * taken_all: everybody's are · taken_until: so are his waiting messages up to this seq.
 */
export const TAKES_NOTHING = "null::uuid as taken_by, false as taken_all, 0::bigint as taken_until";

/**
 * The writes, chained from the rows of `from` that say `ends`. Accounted: what a committed step delivered, and what the
 * last request contained (`seen`), so that a request no endpoint would answer is not asked for ever. The next turn is
 * made of messages of one author's rights, the first one's, and of as many as the agent begins a turn with; it begins
 * when their quiet time is over, or the shortest of their waits. Messages that nobody has decided about yet wait like
 * the others (C58), and an interrupts row says why. `applied`: the message that did this, if it was here before.
 */
export const endTurn = (from = "verdict", applied = "null::uuid"): string => `
    mail as (
      select e.id, e.seq, e.actor_id, e.slice, e.state, e.grants, e.bot, e.mid_turn, e.quiet_until, e.wait_until, e.deadline_ms, e.reconciles,
             case when e.id = ${applied} then 'applied'
                  when e.state = 'in_turn' and (t.delivered_ordinal is not null or e.seq <= v.seen) then 'accounted'
                  when e.state = 'in_turn' and (v.taken_all or e.actor_id = v.taken_by) then 'withdrawn'
                  when e.state <> 'in_turn' and e.actor_id = v.taken_by and e.seq <= v.taken_until then 'withdrawn'
                  else 'waits' end as fate
      from ${from} v join message_events e on e.conversation_id = v.conversation_id
        and (e.state in ('pending', 'undecided') or (e.state = 'in_turn' and e.run_id = v.id))
      left join run_triggers t on t.run_id = v.id and t.event_id = e.id
      where v.ends),
    first as (select * from mail where fate = 'waits' order by seq limit 1),
    taken as (
      select m.* from mail m, first f where m.fate = 'waits' and m.grants = f.grants
      order by m.seq limit (select max_count from ${from})),
    gathered as ( -- of those that the next turn begins with
      select count(*)::int as many, max(quiet_until) as quiet_until, min(wait_until) as wait_until,
             (array_agg(actor_id order by seq desc))[1] as addressed,
             (array_agg(reconciles order by seq) filter (where reconciles is not null))[1] as reconciles
      from taken having count(*) > 0),
    moved as (
      update message_events e set
             state = case m.fate when 'waits' then case when n.id is null then 'pending' else 'in_turn' end else m.fate end,
             run_id = case when m.fate = 'accounted' then v.id when n.id is not null then :next_run end
      from mail m left join taken n on n.id = m.id, ${from} v where e.id = m.id),
    undecided as (
      insert into interrupts (event_id, run_id, relation, asked, done, reason, source, at)
      select m.id, v.id, case m.fate when 'waits' then 'none' else 'cancels' end, m.mid_turn,
             case m.fate when 'waits' then 'queued' else 'withdrawn' end,
             case m.fate when 'waits' then 'TurnEnded' else 'Stopped' end, 'policy', pawl_now()
      from mail m, ${from} v where m.state = 'undecided' and m.fate <> 'applied' on conflict do nothing),
    request as (
      insert into logical_requests (id, conversation_id, requester, reconciles, deadline_at, opened_at)
      select :next_request, v.conversation_id, f.actor_id, g.reconciles, pawl_now() + f.deadline_ms * interval '1 ms', pawl_now()
      from first f, gathered g, ${from} v returning id, requester, deadline_at),
    ended as (
      update runs r set status = v.end_status, live = false, reason = :reason, message = :message, last_nonce = :nonce,
            ${GIVES_LEASE}, due_at = null, ended_at = pawl_now(), hold_seq = 0, hold_until = null,
             version = r.version + 1, changed_at = pawl_now()
      from ${from} v where r.id = v.id and v.ends returning r.id, r.version, r.agent_id, r.conversation_id),
    next as (
      insert into runs (id, root_id, conversation_id, request_id, journal_scope, agent_id, agent_generation,
                        status, live, due_at, window_until, slice, requester, addressed, grants, trigger_count, deadline_at,
                        version, queued_at, changed_at)
      select :next_run, :next_run, ended.conversation_id, request.id, :next_run, a.id, a.generation, 'queued', true,
             case when g.many >= v.max_count then pawl_now() else greatest(pawl_now(), least(g.quiet_until, g.wait_until)) end,
             g.wait_until, f.slice, request.requester, g.addressed, f.grants, g.many, request.deadline_at,
             ended.version + 1, pawl_now(), pawl_now()
      from ended join agents a on a.id = ended.agent_id, request, first f, gathered g, ${from} v returning id),
    triggers as (
      insert into run_triggers (run_id, event_id, role)
      select next.id, m.id, 'trigger' from next, taken m),
    closed as (
      update tool_calls c set closed_at = pawl_now(),
             outcome = case when c.class = 'reply' and v.reply_at is not null then 'real' when c.class = 'reply' then 'withheld' else 'cancelled' end,
             result = case when c.class = 'reply' and v.reply_at is not null then 'delivered' else 'not run: the turn ended' end
      from ${from} v join runs x on x.id = v.id where c.run_id = any (x.inherits || x.id) and c.outcome is null and v.ends),${withdrawsQuestions(from)},
    conversation as (
      update conversations c set live_run = (select id from next), last_version = ended.version,
             bot_turns = c.bot_turns + (select count(*) from first where bot),
             head_seq = c.head_seq + v.new_messages, mail_version = c.mail_version + 1
      from ended, ${from} v where c.id = ended.conversation_id)`;
