/**
 * How a turn ends, in one statement under the conversation's lock (I2): what the model was shown is accounted for,
 * what it was not goes to the next turn, which is created here if anything waits. Only these statements end a root run.
 */
import { v7 as uuidv7 } from "uuid";
import { PawlError } from "#rules/errors.ts";
import type { TerminalStatus } from "#rules/run-machine.ts";
import { WITHDRAWS_QUESTIONS } from "./answers.ts";
import type { Runner } from "./database.ts";
import { MAX_LOOKS } from "./mailbox.ts";
import { statement } from "./statement.ts";
import { GIVES_LEASE } from "./work.ts";

/**
 * The conversation first, then its run. `stale` = somebody changed a message or the run between this statement's
 * snapshot and its locks: what the writes below would select is not the whole mailbox (nor would `triggers` count it),
 * or misses calls that a response just brought, so the verdict is `again`.
 */
const lockTurn = (facts = "") => `
    conversation_row as (
      select c.*, c.mail_version <> (select s.mail_version from conversations s where s.id = c.id) as stale
      from conversations c where c.id = :conversation for no key update),
    locked as (
      select r.*, c.stale or r.version <> (select s.version from runs s where s.id = r.id) as stale, c.live_run, c.head_seq, c.last_version,
             (select count(*) from run_triggers t where t.run_id = r.id) as triggers${facts}
      from conversation_row c join runs r on r.conversation_id = c.id
      where r.id = :run for no key update of r)`;

/**
 * The writes of a turn's end, chained from a verdict that says `ends`. Accounted: what a committed step delivered, and
 * what the last request contained (`seen_seq`), so that a request no endpoint would answer is not asked for ever.
 * `taken_by`: the actor whose unseen messages of this turn are withdrawn with it.
 */
const END_TURN = `
    mail as (
      select e.id, e.seq, e.actor_id, e.slice, e.state,
             case when e.state = 'in_turn' and (t.delivered_ordinal is not null or e.seq <= v.seen) then 'accounted'
                  when e.state = 'in_turn' and e.actor_id = v.taken_by then 'withdrawn'
                  else 'in_turn' end as next_state
      from verdict v join message_events e on e.conversation_id = v.conversation_id
        and (e.state = 'pending' or (e.state = 'in_turn' and e.run_id = v.id))
      left join run_triggers t on t.run_id = v.id and t.event_id = e.id
      where v.ends),
    first as (select * from mail where next_state = 'in_turn' order by seq limit 1),
    moved as (
      update message_events e set state = m.next_state,
             run_id = case m.next_state when 'accounted' then v.id when 'in_turn' then :next_run end
      from mail m, verdict v where e.id = m.id),
    request as (
      insert into logical_requests (id, conversation_id, requester, opened_at)
      select :next_request, v.conversation_id, f.actor_id, pawl_now() from first f, verdict v returning id),
    ended as (
      update runs r set status = v.end_status, live = false, reason = :reason, message = :message, last_nonce = :nonce,
            ${GIVES_LEASE}, due_at = null, ended_at = pawl_now(),
             version = r.version + 1, changed_at = pawl_now()
      from verdict v where r.id = v.id and v.ends returning r.id, r.version, r.agent_id, r.conversation_id),
    next as (
      insert into runs (id, root_id, conversation_id, request_id, journal_scope, agent_id, agent_generation,
                        status, live, due_at, slice, version, queued_at, changed_at)
      select :next_run, :next_run, ended.conversation_id, request.id, :next_run, a.id, a.generation,
             'queued', true, pawl_now(), f.slice, ended.version + 1, pawl_now(), pawl_now()
      from ended join agents a on a.id = ended.agent_id, request, first f returning id),
    triggers as (
      insert into run_triggers (run_id, event_id, role)
      select next.id, m.id, 'trigger' from next, mail m where m.next_state = 'in_turn'),
    closed as (
      update tool_calls c set closed_at = pawl_now(),
             outcome = case when c.class = 'reply' and v.reply_at is not null then 'real' when c.class = 'reply' then 'withheld' else 'cancelled' end,
             result = case when c.class = 'reply' and v.reply_at is not null then 'delivered' else 'not run: the turn ended' end
      from verdict v where c.run_id = v.id and c.outcome is null and v.ends),${WITHDRAWS_QUESTIONS},
    conversation as (
      update conversations c set live_run = (select id from next), last_version = ended.version,
             head_seq = c.head_seq + v.new_messages, mail_version = c.mail_version + 1
      from ended, verdict v where c.id = ended.conversation_id)`;

const finishTurnStatement = statement({
  name: "finish_turn",
  guarded: true,
  params: {
    conversation: "uuid",
    run: "uuid",
    token: "int8",
    nonce: "uuid",
    status: "text",
    seen_seq: "int8",
    reason: "text?",
    message: "text?",
    next_run: "uuid",
    next_request: "uuid",
  },
  columns: { verdict: "text", next_run: "uuid?", notified: "bool" },
  text: `
    with ${lockTurn()},
    judged as (
      select *, case
        when last_nonce = :nonce then 'already'
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        when stale then 'again'
        else 'finished' end as verdict from locked),
    verdict as (
      select *, verdict = 'finished' as ends, :status as end_status, :seen_seq as seen, null::uuid as taken_by, 0 as new_messages
      from judged),
    ${END_TURN}
    select verdict, (select id from next) as next_run, (select pg_notify('pawl_due', '') from next)::text is not null as notified
    from verdict`,
});

const requestStopStatement = statement({
  name: "request_stop",
  guarded: true,
  params: {
    conversation: "uuid",
    run: "uuid",
    event: "uuid",
    stop_event: "uuid",
    ext_id: "text",
    actor: "uuid",
    author: "uuid",
    body: "text?",
    nonce: "uuid",
    reason: "text?",
    message: "text?",
    next_run: "uuid",
    next_request: "uuid",
  },
  columns: { verdict: "text", next_run: "uuid?", notified: "bool" },
  // `holds`: the message is still in this turn. A second run of a statement that took it back must not end the turn.
  text: `
    with ${lockTurn(", (select e.state = 'in_turn' and e.run_id = r.id from message_events e where e.id = :event) as holds")},
    judged as (
      select *, case
        when last_nonce = :nonce then 'already'
        when stale then 'again'
        when not live or reply_at is not null then 'nothing_left'
        when not holds then 'again'
        when committed_at is not null then 'stopping'
        when status = 'queued' and triggers > 1 then 'withdrawn'
        else 'cancelled' end as verdict from locked),
    verdict as (
      select *, verdict = 'cancelled' as ends, 'cancelled' as end_status, 0 as seen, :author as taken_by, 1 as new_messages
      from judged),
    ${END_TURN},
    taken_back as ( -- one message of a queued turn that has others: the turn stays
      update message_events e set state = 'withdrawn', run_id = null from verdict v
      where v.verdict = 'withdrawn' and e.id = :event),
    untriggered as (
      delete from run_triggers t using verdict v where v.verdict = 'withdrawn' and t.run_id = v.id and t.event_id = :event),
    touched as (
      update runs r set stop_requested_at = case when v.verdict = 'stopping' then coalesce(r.stop_requested_at, pawl_now()) else r.stop_requested_at end,
             due_at = case when v.verdict = 'stopping' and r.due_at is not null then pawl_now() else r.due_at end,
             version = r.version + 1, changed_at = pawl_now()
      from verdict v where r.id = v.id and v.verdict in ('stopping', 'withdrawn')),
    stop_message as (
      insert into message_events (id, conversation_id, seq, kind, ext_id, order_key, actor_id, body, state, received_at)
      select :stop_event, v.conversation_id, v.head_seq + 1, 'stop', :ext_id, '', :actor, :body, 'applied', pawl_now()
      from verdict v where v.verdict not in ('again', 'already') on conflict do nothing returning id),
    noted as (
      update conversations c set head_seq = c.head_seq + (select count(*) from stop_message), mail_version = c.mail_version + 1
      from verdict v where c.id = v.conversation_id and not v.ends and v.verdict not in ('again', 'already')),
    decision as (
      insert into interrupts (event_id, run_id, relation, asked, done, reason, at)
      select s.id, v.id, 'cancels', 'cancel', v.verdict,
             case v.verdict when 'cancelled' then 'Buffering' when 'stopping' then 'Committed' when 'withdrawn' then 'OtherTriggers' else 'AlreadyAnswered' end,
             pawl_now() from stop_message s, verdict v)
    select verdict, (select id from next) as next_run, (select pg_notify('pawl_due', '') from next)::text is not null as notified
    from verdict`,
});

const withdrawEventStatement = statement({
  name: "withdraw_event",
  guarded: true,
  params: {
    conversation: "uuid",
    event: "uuid",
    stop_event: "uuid",
    ext_id: "text",
    actor: "uuid",
    body: "text?",
  },
  columns: { verdict: "text" },
  // Under the conversation's lock no one else moves a message; a state seen otherwise is found at the next look.
  text: `
    with locked as (select * from conversations where id = :conversation for no key update),
    verdict as (select id, head_seq, 'ok' as verdict from locked),
    message as (
      update message_events e set state = 'withdrawn' from verdict v
      where e.id = :event and e.conversation_id = v.id and e.state = 'pending' returning e.id),
    stop_message as (
      insert into message_events (id, conversation_id, seq, kind, ext_id, order_key, actor_id, body, state, received_at)
      select :stop_event, v.id, v.head_seq + 1, 'stop', :ext_id, '', :actor, :body, 'applied', pawl_now()
      from message, verdict v on conflict do nothing returning id),
    decision as (
      insert into interrupts (event_id, relation, asked, done, reason, at)
      select id, 'cancels', 'cancel', 'withdrawn', 'NotStarted', pawl_now() from stop_message),
    conversation as (
      update conversations c set mail_version = c.mail_version + 1, head_seq = c.head_seq + (select count(*) from stop_message)
      from message, verdict v where c.id = v.id)
    select case when exists (select from message) then 'withdrawn' else 'moved' end as verdict from verdict`,
});

const readPosition = statement({
  name: "read_position",
  params: { event: "uuid" },
  columns: { conversation_id: "uuid", state: "text", run_id: "uuid?", actor_id: "uuid" },
  text: `select conversation_id, state, run_id, actor_id from message_events where id = :event`,
});

export const ensureActor = statement({
  name: "ensure_actor",
  params: { actor: "uuid", connector: "text", ext_id: "text" },
  columns: { id: "uuid" },
  text: `
    insert into actors (id, connector, ext_id) values (:actor, :connector, :ext_id)
    on conflict (connector, ext_id) do update set display = actors.display returning id`,
});

/** As the schema's CHECK: a message is one sentence for a person. */
export const MAX_MESSAGE = 1024;
const clip = (text: string | null): string | null => (text === null ? null : text.slice(0, MAX_MESSAGE));

export type TurnEnd = {
  readonly conversationId: string;
  readonly runId: string;
  readonly token: number;
  readonly nonce: string;
  readonly status: TerminalStatus;
  /** The newest message that the last request contained, sent or not. */
  readonly seenSeq: number;
  readonly reason: string | null;
  readonly message: string | null;
};

export type Finished = { kind: "finished"; nextRunId: string | null } | { kind: "already" | "ended" | "fenced" };

export async function finishTurn(db: Runner, end: TurnEnd): Promise<Finished> {
  const params = {
    conversation: end.conversationId,
    run: end.runId,
    token: end.token,
    nonce: end.nonce,
    status: end.status,
    seen_seq: end.seenSeq,
    reason: end.reason,
    message: clip(end.message),
    next_run: uuidv7(),
    next_request: uuidv7(),
  };
  for (let look = 0; look < MAX_LOOKS; look += 1) {
    const row = await db.one(finishTurnStatement, params);
    if (row.verdict === "finished") return { kind: "finished", nextRunId: row.next_run };
    if (row.verdict !== "again") return { kind: row.verdict as "already" | "ended" | "fenced" };
  }
  throw new PawlError("conflict", "LedgerConflict", "the conversation changes faster than it can be read");
}

export type StopRequest = {
  /** The message whose author wants its turn to end. */
  readonly eventId: string;
  /** Names this request once, so that asking again does nothing. */
  readonly extId: string;
  readonly actor: { readonly connector: string; readonly extId: string };
  readonly why: string | null;
};

/** cancelled: over, nothing had changed · stopping: the reply tells the partial result · withdrawn: taken back unread · nothing_left: answered before. */
export type Stopped = "cancelled" | "stopping" | "withdrawn" | "nothing_left" | "already";

export async function requestStop(db: Runner, stop: StopRequest): Promise<Stopped> {
  const actor = await db.one(ensureActor, {
    actor: uuidv7(),
    connector: stop.actor.connector,
    ext_id: stop.actor.extId,
  });
  const nonce = uuidv7();
  for (let look = 0; look < MAX_LOOKS; look += 1) {
    const position = await db.one(readPosition, { event: stop.eventId });
    if (position.state === "pending" || position.state === "undecided") {
      const row = await db.one(withdrawEventStatement, {
        conversation: position.conversation_id,
        event: stop.eventId,
        stop_event: uuidv7(),
        ext_id: stop.extId,
        actor: actor.id,
        body: stop.why,
      });
      if (row.verdict === "withdrawn") return "withdrawn";
      continue;
    }
    if (position.run_id === null) return position.state === "withdrawn" ? "already" : "nothing_left";
    const row = await db.one(requestStopStatement, {
      conversation: position.conversation_id,
      run: position.run_id,
      event: stop.eventId,
      stop_event: uuidv7(),
      ext_id: stop.extId,
      actor: actor.id,
      author: position.actor_id,
      body: stop.why,
      nonce,
      reason: "Stopped",
      message: clip(stop.why),
      next_run: uuidv7(),
      next_request: uuidv7(),
    });
    if (row.verdict !== "again") return row.verdict as Stopped;
  }
  throw new PawlError("conflict", "LedgerConflict", "the conversation changes faster than it can be read");
}
