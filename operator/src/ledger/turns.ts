/** Who ends a turn: the worker that is done with it (`finish_turn`), or a person (`request_stop`). Only these and a restart do. */
import { v7 as uuidv7 } from "uuid";
import type { TerminalStatus } from "#rules/run-machine.ts";
import type { Runner } from "./database.ts";
import { untilKnown } from "./looks.ts";
import { statement } from "./statement.ts";
import { endTurn, lockTurn, TAKES_NOTHING } from "./turn-end.ts";

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
      select *, verdict = 'finished' as ends, :status as end_status, :seen_seq as seen, ${TAKES_NOTHING}, 0 as new_messages
      from judged),
    ${endTurn()}
    select verdict, (select id from next) as next_run, (select pg_notify('pawl_due', '') from next)::text is not null as notified
    from verdict`,
});

/** May this actor stop or change the run `r`, as its agent's policy says? */
export const ENTITLED = `
             case :who when 'thread_scoped' then true when 'addressed_actor_only' then coalesce(r.addressed = :actor, false)
                       else coalesce(r.requester = :actor, false) end`;

/**
 * Of the message that is taken back: is it this turn's? A second run of a statement that took it back must not end the
 * turn, and one that ended without having read it has handed it on to the next.
 */
const HOLDS = "(select coalesce(e.run_id = r.id, false) from message_events e where e.id = :event)";
/** Of the message that says so: is it here already? Then it has done what it did. */
const KNOWN = `exists (select from message_events e where e.conversation_id = c.id and e.kind = :kind
                           and e.ext_id = :ext_id and e.ext_rev = :ext_rev)`;

const requestStopStatement = statement({
  name: "request_stop",
  guarded: true,
  params: {
    conversation: "uuid",
    run: "uuid",
    event: "uuid?",
    stop_event: "uuid",
    kind: "text",
    ext_id: "text",
    ext_rev: "text",
    order_key: "text",
    actor: "uuid",
    author: "uuid",
    who: "text",
    body: "text?",
    nonce: "uuid",
    reason: "text?",
    message: "text?",
    next_run: "uuid",
    next_request: "uuid",
    namespace_uid: "text?",
    key: "text?",
    spec_hash: "text?",
    object_uid: "text?",
    object_name: "text?",
  },
  columns: { verdict: "text", next_run: "uuid?", notified: "bool" },
  // With `event` a message is taken back, and the turn with it. Without it somebody who may has said that it shall stop.
  text: `
    with ${lockTurn(`, ${HOLDS} as holds, ${KNOWN} as known,${ENTITLED} as entitled`)},
    judged as (
      select *, :event is null as spoken, case
        when last_nonce = :nonce then 'already'
        when stale then 'again'
        when :event is null and known then 'duplicate'
        when :event is null and not (live and reply_at is null and entitled) then 'again'
        when :event is not null and not holds then 'again'
        when not live or reply_at is not null then 'nothing_left'
        when committed_at is not null then 'stopping'
        when :event is not null and status = 'queued' and trigger_count > 1 then 'withdrawn'
        else 'cancelled' end as verdict from locked),
    verdict as (
      select *, verdict = 'cancelled' as ends, 'cancelled' as end_status, 0 as seen, 1 as new_messages,
             :author as taken_by, spoken and :who = 'thread_scoped' as taken_all, case when spoken then head_seq else 0 end as taken_until
      from judged),
    keyed as (
      insert into run_keys (namespace_uid, key, spec_hash, event_id, object_uid, object_name)
      select :namespace_uid, :key, :spec_hash, :stop_event, :object_uid, :object_name
      from verdict where verdict in ('cancelled', 'stopping') and :key is not null on conflict do nothing returning key),
    acting as (select * from verdict where verdict not in ('again', 'already', 'duplicate') and (:key is null or exists (select from keyed))),
    ${endTurn("acting")},
    taken_back as ( -- one message of a queued turn that has others: the turn stays
      update message_events e set state = 'withdrawn', run_id = null from acting v
      where v.verdict = 'withdrawn' and e.id = :event),
    untriggered as (
      delete from run_triggers t using acting v where v.verdict = 'withdrawn' and t.run_id = v.id and t.event_id = :event),
    meant as ( -- of a turn that goes on to its reply: what its author had said before is decided with it
      select e.id, e.state, e.mid_turn from acting v join message_events e on e.conversation_id = v.conversation_id
        and e.state in ('pending', 'undecided') and e.actor_id = v.taken_by and e.seq <= v.taken_until
      where v.verdict = 'stopping'),
    let_go as (update message_events e set state = 'withdrawn' from meant m where e.id = m.id),
    decided as (
      insert into interrupts (event_id, run_id, relation, asked, done, reason, source, at)
      select m.id, v.id, 'cancels', m.mid_turn, 'withdrawn', 'Stopped', 'policy', pawl_now()
      from meant m, acting v where m.state = 'undecided' on conflict do nothing),
    touched as (
      update runs r set stop_requested_at = case when v.verdict = 'stopping' then coalesce(r.stop_requested_at, pawl_now()) else r.stop_requested_at end,
             due_at = case when v.verdict = 'stopping' and r.due_at is not null then pawl_now() else r.due_at end,
             trigger_count = r.trigger_count - (v.verdict = 'withdrawn')::int,
             hold_seq = case when v.verdict = 'withdrawn' then r.hold_seq else coalesce((select min(e.seq) from message_events e
               where e.conversation_id = v.conversation_id and e.state = 'undecided' and e.id not in (select id from meant)), 0) end,
             version = r.version + 1, changed_at = pawl_now()
      from acting v where r.id = v.id and v.verdict in ('stopping', 'withdrawn')),
    stop_message as (
      insert into message_events (id, conversation_id, seq, kind, ext_id, ext_rev, order_key, actor_id, body, state, received_at)
      select :stop_event, v.conversation_id, v.head_seq + 1, :kind, :ext_id, :ext_rev, :order_key, :actor, :body, 'applied', pawl_now()
      from acting v on conflict do nothing returning id),
    noted as (
      update conversations c set head_seq = c.head_seq + (select count(*) from stop_message), mail_version = c.mail_version + 1
      from acting v where c.id = v.conversation_id and not v.ends),
    decision as (
      insert into interrupts (event_id, run_id, relation, asked, done, reason, source, at)
      select s.id, v.id, 'cancels', 'cancel', v.verdict,
             case when v.verdict = 'withdrawn' then 'OtherTriggers' when v.verdict = 'nothing_left' then 'AlreadyAnswered'
                  when v.verdict = 'stopping' then 'Committed' when v.status = 'queued' then 'NotStarted'
                  when v.status = 'awaiting_input' then 'Waiting' else 'Buffering' end,
             case when v.spoken then 'stop_word' else 'policy' end, pawl_now() from stop_message s, acting v)
    select case when v.verdict in ('cancelled', 'stopping') and not exists (select from acting) then 'duplicate' else v.verdict end as verdict,
           (select id from next) as next_run,
           (select count(pg_notify('pawl_due', '')::text) from acting d where d.verdict = 'stopping' or exists (select from next))
             + (select count(pg_notify('pawl_signal', a.id::text)::text) from acting a where a.verdict in ('cancelled', 'stopping')) > 0 as notified
    from verdict v`,
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
    verdict as (select id, head_seq, live_run, 'ok' as verdict from locked),
    message as (
      update message_events e set state = 'withdrawn' from verdict v
      where e.id = :event and e.conversation_id = v.id and e.state in ('pending', 'undecided') returning e.id, e.mid_turn),
    own as ( -- a message that somebody was still to decide about has no row yet
      insert into interrupts (event_id, run_id, relation, asked, done, reason, at)
      select m.id, v.live_run, 'none', m.mid_turn, 'withdrawn', 'TakenBack', pawl_now() from message m, verdict v
      on conflict do nothing),
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
  return untilKnown<Finished>(async () => {
    const row = await db.one(finishTurnStatement, params);
    if (row.verdict === "again") return undefined;
    if (row.verdict === "finished") return { kind: "finished", nextRunId: row.next_run };
    return { kind: row.verdict as "already" | "ended" | "fenced" };
  });
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

const NO_KEY = { namespace_uid: null, key: null, spec_hash: null, object_uid: null, object_name: null } as const;

export async function requestStop(db: Runner, stop: StopRequest): Promise<Stopped> {
  const actor = await db.one(ensureActor, {
    actor: uuidv7(),
    connector: stop.actor.connector,
    ext_id: stop.actor.extId,
  });
  const nonce = uuidv7();
  return untilKnown<Stopped>(async () => {
    const position = await db.one(readPosition, { event: stop.eventId });
    const said = {
      conversation: position.conversation_id,
      event: stop.eventId,
      stop_event: uuidv7(),
      ext_id: stop.extId,
    };
    if (position.state === "pending" || position.state === "undecided") {
      const row = await db.one(withdrawEventStatement, { ...said, actor: actor.id, body: stop.why });
      return row.verdict === "withdrawn" ? "withdrawn" : undefined;
    }
    if (position.run_id === null) return position.state === "withdrawn" ? "already" : "nothing_left";
    const row = await db.one(requestStopStatement, {
      ...said,
      ...NO_KEY,
      run: position.run_id,
      kind: "stop",
      ext_rev: "",
      order_key: "",
      actor: actor.id,
      author: position.actor_id,
      who: "thread_scoped",
      body: stop.why,
      nonce,
      reason: "Stopped",
      message: clip(stop.why),
      next_run: uuidv7(),
      next_request: uuidv7(),
    });
    return row.verdict === "again" ? undefined : (row.verdict as Stopped);
  });
}

/** A message that says nothing but that the work under way shall stop, from somebody whose word counts for it. */
export type SpokenStop = {
  readonly conversation: string;
  readonly run: string;
  readonly stop_event: string;
  readonly kind: string;
  readonly ext_id: string;
  readonly ext_rev: string;
  readonly order_key: string;
  readonly actor: string;
  readonly who: string;
  readonly body: string;
} & { readonly [K in keyof typeof NO_KEY]: string | null };

/** again: the turn is another one by now, or has answered. */
export async function stopByMessage(
  db: Runner,
  said: SpokenStop,
  nonce: string,
): Promise<"cancelled" | "stopping" | "duplicate" | "already" | "again"> {
  const row = await db.one(requestStopStatement, {
    ...said,
    event: null,
    author: said.actor,
    nonce,
    reason: "Stopped",
    message: clip(said.body),
    next_run: uuidv7(),
    next_request: uuidv7(),
  });
  return row.verdict as "cancelled" | "stopping" | "duplicate" | "already" | "again";
}
