/**
 * Edits and deletes of messages: events of their own, one row each. What nobody has read yet is changed in silence (the
 * old text stays in its row). What a turn at work may have read becomes a message itself, and goes the way of every other
 * one: it refines what was asked. A delete of all that a turn was asked stops it.
 */
import { v7 as uuidv7 } from "uuid";
import { deletedWords, editedWords } from "#rules/changed.ts";
import type { Done, Policy } from "#rules/interrupt.ts";
import type { Runner } from "./database.ts";
import { decideEvent } from "./decide.ts";
import { untilKnown } from "./looks.ts";
import { AT_ONCE, type Concerning, type Message, openPlace, type Place, take } from "./mailbox.ts";
import { statement } from "./statement.ts";
import { endTurn } from "./turn-end.ts";

/**
 * The conversation, its live run, and the message that is meant. `stale` as in turn-end.ts: what is read here of messages
 * would not be true. Revisions of one message sort as text.
 */
const LOCKED = `
    conversation_row as (
      select c.*, c.mail_version <> (select s.mail_version from conversations s where s.id = c.id) as stale
      from conversations c where c.id = :conversation for no key update),
    live_row as (
      select r.*, r.version <> (select s.version from runs s where s.id = r.id) as stale
      from runs r join conversation_row c on r.id = c.live_run for no key update of r),
    about_row as (
      select e.* from conversation_row c join message_events e on e.conversation_id = c.id and e.kind = 'message' and e.ext_id = :ext_id
      order by e.seq limit 1),
    locked as (
      select r.id, r.status, r.committed_at, r.reply_at, r.trigger_count, r.version, c.id as conversation_id, c.live_run, c.head_seq, c.max_count,
             c.stale or (c.live_run is not null and (r.id is null or r.stale)) as stale,
             a.id as about, a.state as about_state, a.actor_id as author, coalesce(a.shown, a.body) as before, a.mid_turn, t.delivered_ordinal is not null as delivered,
             (select s.request_id from runs s where s.id = a.run_id) as about_request,
             exists (select from message_events e where e.conversation_id = c.id and e.kind = :kind and e.ext_id = :ext_id and e.ext_rev = :ext_rev) as known,
             exists (select from message_events e where e.about = a.id
                     and (e.kind = 'delete' or (:kind = 'edit' and e.kind = 'edit' and e.ext_rev > :ext_rev collate "C"))) as outdated
      from conversation_row c left join live_row r on true left join about_row a on true
      left join run_triggers t on t.run_id = a.run_id and t.event_id = a.id)`;

const changeEvent = statement({
  name: "change_event",
  guarded: true,
  params: {
    conversation: "uuid",
    event: "uuid",
    kind: "text",
    ext_id: "text",
    ext_rev: "text",
    order_key: "text",
    actor: "uuid",
    body: "text?",
    after_commit: "text",
    nonce: "uuid",
    reason: "text",
    message: "text",
    next_run: "uuid",
    next_request: "uuid",
  },
  columns: {
    verdict: "text",
    seq: "int8?",
    said: "text?",
    before: "text?",
    about: "uuid?",
    reconciles: "uuid?",
    notified: "bool",
  },
  // `message`: a turn at work, or one that has answered, is concerned; nothing is written yet.
  text: `
    with ${LOCKED},
    judged as (
      select *, case
        when known then 'Known'
        when stale then 'Stale'
        when about is null then 'UnknownMessage'
        when outdated then 'Outdated'
        when about_state in ('withdrawn', 'applied') then 'NothingLeft'
        when about_state = 'observed' then 'NotAddressed'
        when about_state in ('pending', 'undecided') then 'Waits'
        when about_state = 'in_turn' and status = 'queued' and not delivered then case
          when :kind = 'edit' then 'Window' when trigger_count > 1 then 'OtherTriggers' else 'NotStarted' end
        when about_state = 'in_turn' and reply_at is null and (:kind = 'edit' or trigger_count > 1) then 'AtWork'
        when about_state = 'in_turn' and reply_at is null then case
          when committed_at is not null then 'Committed' when status = 'awaiting_input' then 'Waiting' else 'Buffering' end
        when :after_commit = 'reconcile' then 'Reconcile'
        else 'AlreadyAnswered' end as said
      from locked),
    verdict as (
      select *, case
        when said = 'Known' then 'duplicate'
        when said = 'Stale' then 'again'
        when said in ('UnknownMessage', 'Outdated', 'NothingLeft', 'AlreadyAnswered') then 'observed'
        when said in ('NotAddressed', 'Waits', 'Window') and :kind = 'edit' then 'replaced'
        when said in ('NotAddressed', 'Waits', 'OtherTriggers') then 'withdrawn'
        when said in ('NotStarted', 'Waiting', 'Buffering') then 'cancelled'
        when said = 'Committed' then 'stopping'
        else 'message' end as verdict,
        said in ('NotStarted', 'Waiting', 'Buffering') as ends, 'cancelled' as end_status, 0 as seen, 1 as new_messages,
        author as taken_by, false as taken_all, 0::bigint as taken_until
      from judged),
    ${endTurn()},
    replaced as (
      update message_events e set shown = :body from verdict v where v.verdict = 'replaced' and e.id = v.about),
    withdrawn as (
      update message_events e set state = 'withdrawn', run_id = null from verdict v where v.verdict = 'withdrawn' and e.id = v.about),
    untriggered as (
      delete from run_triggers t using verdict v where v.said = 'OtherTriggers' and t.run_id = v.id and t.event_id = v.about),
    own as ( -- a message that somebody was still to decide about has no row yet
      insert into interrupts (event_id, run_id, relation, asked, done, reason, source, at)
      select v.about, v.id, 'none', v.mid_turn, 'withdrawn', 'TakenBack', 'delete', pawl_now()
      from verdict v where v.verdict = 'withdrawn' and v.about_state = 'undecided' on conflict do nothing),
    touched as (
      update runs r set trigger_count = r.trigger_count - (v.said = 'OtherTriggers')::int,
             stop_requested_at = case when v.verdict = 'stopping' then coalesce(r.stop_requested_at, pawl_now()) else r.stop_requested_at end,
             due_at = case when v.verdict = 'stopping' and r.due_at is not null then pawl_now() else r.due_at end,
             hold_seq = coalesce((select min(e.seq) from message_events e where e.conversation_id = v.conversation_id and e.state = 'undecided' and e.id <> v.about), 0),
             version = r.version + 1, changed_at = pawl_now()
      from verdict v where r.id = v.id and (v.verdict = 'stopping' or v.said in ('Window', 'OtherTriggers') or v.about_state = 'undecided')
        and v.verdict in ('stopping', 'withdrawn', 'replaced')),
    event as (
      insert into message_events (id, conversation_id, seq, kind, ext_id, ext_rev, order_key, actor_id, body, state, about, received_at)
      select :event, v.conversation_id, v.head_seq + 1, :kind, :ext_id, :ext_rev, :order_key, :actor, :body,
             case v.verdict when 'observed' then 'observed' else 'applied' end, v.about, pawl_now()
      from verdict v where v.verdict not in ('again', 'duplicate', 'message') on conflict do nothing returning id, seq),
    noted as (
      update conversations c set head_seq = c.head_seq + 1, mail_version = c.mail_version + 1
      from event, verdict v where c.id = v.conversation_id and not v.ends),
    decision as (
      insert into interrupts (event_id, run_id, relation, asked, done, reason, source, at)
      select event.id, v.id, case :kind when 'edit' then 'refines' else 'cancels' end, coalesce(v.mid_turn, 'enqueue'), v.verdict, v.said, :kind, pawl_now()
      from event, verdict v)
    select v.verdict, event.seq, v.said, v.before, v.about,
           case when v.said = 'Reconcile' then v.about_request end as reconciles,
           (select count(pg_notify('pawl_due', '')::text) from verdict d where d.verdict = 'stopping' or exists (select from next))
             + (select count(pg_notify('pawl_signal', s.id::text)::text) from verdict s where s.verdict in ('cancelled', 'stopping')) > 0 as notified
    from verdict v left join event on true`,
});

/** What was said of an earlier message, as the chat server tells it. */
export type Change = {
  readonly agentId: string;
  readonly generation: number;
  readonly connector: string;
  readonly conversationKey: string;
  readonly actor: { readonly connector: string; readonly extId: string };
  /** Of the message that is meant. */
  readonly extId: string;
  /** Which of its versions; later ones sort behind earlier ones. */
  readonly extRev: string;
  readonly orderKey: string;
  readonly bot?: boolean;
  readonly grants?: string;
  readonly policy?: Policy;
};

/**
 * replaced: nobody had read it, the new text is read instead · withdrawn: nobody had read it, and nobody will ·
 * cancelled, stopping: it was all that the turn was asked · observed: noted, and changes nothing (why: `reason`) ·
 * the others: it became a message, and that met the turn at work as any other.
 */
export type Changed =
  | {
      readonly kind: "replaced" | "withdrawn" | "answers" | Done;
      readonly eventId: string;
      readonly reason: string;
    }
  | { readonly kind: "duplicate" };

const STOPPED = "the message that asked for it was deleted";

/** Applies an edit. The text that it brings is all of the message's new text. */
export const ingestEdit = (db: Runner, edit: Change & { readonly text: string }): Promise<Changed> =>
  change(db, "edit", edit, edit.text);

export const ingestDelete = (db: Runner, gone: Change): Promise<Changed> => change(db, "delete", gone, null);

async function change(db: Runner, kind: "edit" | "delete", said: Change, text: string | null): Promise<Changed> {
  const place = await openPlace(db, said);
  const eventId = uuidv7();
  const policy = said.policy ?? AT_ONCE;
  const params = {
    conversation: place.conversation,
    event: eventId,
    kind,
    ext_id: said.extId,
    ext_rev: said.extRev,
    order_key: said.orderKey,
    actor: place.actor,
    body: text,
    after_commit: policy.afterCommit,
    nonce: uuidv7(),
    reason: "Stopped",
    message: STOPPED,
    next_run: uuidv7(),
    next_request: uuidv7(),
  };
  return untilKnown<Changed>(async () => {
    const row = await db.one(changeEvent, params);
    switch (row.verdict) {
      case "again":
        return undefined;
      case "duplicate":
        return answerKnown(db, eventId);
      case "message": {
        const before = row.before ?? "";
        const words = text === null ? { text: deletedWords(before) } : { text, shown: editedWords(before, text) };
        const as = { kind, shown: words.shown ?? null, about: row.about, reconciles: row.reconciles };
        return await asMessage(db, { ...said, policy, text: words.text, askable: true }, place, as);
      }
      default:
        return { kind: row.verdict as "replaced", eventId, reason: row.said ?? "" };
    }
  });
}

/** What it means to a turn at work is known, it refines what was asked: no model has to say so. */
async function asMessage(
  db: Runner,
  message: Message & { readonly policy: Policy },
  place: Place,
  as: Concerning,
): Promise<Changed> {
  const taken = await take(db, message, place, as);
  if (taken.kind === "duplicate") return { kind: "duplicate" };
  const { eventId } = taken;
  if (taken.kind !== "undecided") return { kind: taken.kind, eventId, reason: "reason" in taken ? taken.reason : "" };
  const decision = { conversationId: place.conversation, eventId, relation: "refines", source: as.kind } as const;
  const decided = await decideEvent(db, { ...decision, policy: message.policy });
  switch (decided.kind) {
    case "not_yet": // behind a message that a model is asked about; whoever decides that one decides this one next
      return { kind: "undecided", eventId, reason: "AskingModel" };
    case "already":
      return { kind: (decided.done ?? "queued") as "queued", eventId, reason: decided.reason ?? "" };
    default:
      return { kind: decided.kind, eventId, reason: decided.reason };
  }
}

const readChange = statement({
  name: "read_change",
  params: { event: "uuid" },
  columns: { done: "text", reason: "text" },
  text: `select done, reason from interrupts where event_id = :event`,
});

/** Known: by another delivery, or by our own whose reply was lost. */
async function answerKnown(db: Runner, eventId: string): Promise<Changed> {
  const [mine] = await db.rows(readChange, { event: eventId });
  if (mine === undefined) return { kind: "duplicate" };
  return { kind: mine.done as "replaced", eventId, reason: mine.reason };
}
