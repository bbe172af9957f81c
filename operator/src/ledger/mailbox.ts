/**
 * The mailbox: a message is a row, its insert is the de-duplication and the acknowledgement.
 * Guards here wait for the conversation. What they then need to know about runs and messages stands on that row
 * (`live_run`, `mail_version`); where a statement's snapshot turns out older than the row it got, it answers `again`
 * and the same statement is run once more.
 */
import { v7 as uuidv7 } from "uuid";
import { PawlError } from "#rules/errors.ts";
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

/** `again` needs a commit of somebody else in the window between snapshot and lock, each time. */
export const MAX_LOOKS = 20;

const openConversation = statement({
  name: "open_conversation",
  params: {
    conversation: "uuid",
    agent: "uuid",
    connector: "text",
    ext_key: "text",
    actor: "uuid",
    actor_connector: "text",
    actor_ext_id: "text",
  },
  columns: { conversation_id: "uuid", actor_id: "uuid" },
  // The columns that are set are no keys: the rows stay open to those who only refer to them.
  text: `
    with c as (
      insert into conversations (id, agent_id, connector, ext_key, created_at)
      values (:conversation, :agent, :connector, :ext_key, pawl_now())
      on conflict (agent_id, connector, ext_key) do update set title = conversations.title returning id),
    a as (
      insert into actors (id, connector, ext_id) values (:actor, :actor_connector, :actor_ext_id)
      on conflict (connector, ext_id) do update set display = actors.display returning id)
    select c.id as conversation_id, a.id as actor_id from c, a`,
});

const ingestEvent = statement({
  name: "ingest_event",
  guarded: true,
  params: {
    conversation: "uuid",
    event: "uuid",
    request: "uuid",
    run: "uuid",
    kind: "text",
    ext_id: "text",
    ext_rev: "text",
    order_key: "text",
    actor: "uuid",
    body: "text",
    slice: "jsonb",
    generation: "int8",
    namespace_uid: "text?",
    key: "text?",
    spec_hash: "text?",
    object_uid: "text?",
    object_name: "text?",
  },
  columns: { verdict: "text", seq: "int8?", run_id: "uuid?", notified: "bool" },
  text: `
    with locked as (
      select * from conversations where id = :conversation for no key update),
    live_run as ( -- not visible yet although the conversation names it: our snapshot is too old
      select r.id, r.status, r.live from runs r join locked l on r.id = l.live_run for no key update of r),
    verdict as (
      select l.*, r.id as live_id, case
        when l.live_run is null then 'new_run'
        when r.id is null then 'again'
        when r.status = 'queued' then 'folded'
        else 'queued' end as verdict
      from locked l left join live_run r on true),
    keyed as (
      insert into run_keys (namespace_uid, key, spec_hash, event_id, object_uid, object_name)
      select :namespace_uid, :key, :spec_hash, :event, :object_uid, :object_name
      from verdict where verdict <> 'again' and :key is not null
      on conflict do nothing returning key),
    event as (
      insert into message_events (id, conversation_id, seq, kind, ext_id, ext_rev, order_key, actor_id, body, state, run_id, slice, received_at)
      select :event, v.id, v.head_seq + 1, :kind, :ext_id, :ext_rev, :order_key, :actor, :body,
             case when v.verdict = 'queued' then 'pending' else 'in_turn' end,
             case v.verdict when 'new_run' then :run when 'folded' then v.live_id end, :slice, pawl_now()
      from verdict v where v.verdict <> 'again' and (:key is null or exists (select from keyed))
      on conflict do nothing returning id, seq, state, run_id),
    request as (
      insert into logical_requests (id, conversation_id, requester, opened_at)
      select :request, v.id, :actor, pawl_now() from verdict v, event where v.verdict = 'new_run' returning id),
    run as (
      insert into runs (id, root_id, conversation_id, request_id, journal_scope, agent_id, agent_generation,
                        status, live, due_at, slice, version, queued_at, changed_at)
      select :run, :run, v.id, request.id, :run, v.agent_id, :generation,
             'queued', true, pawl_now(), :slice, v.last_version + 1, pawl_now(), pawl_now()
      from verdict v, request returning id),
    fold as (
      update runs r set version = r.version + 1, changed_at = pawl_now() from verdict v, event
      where v.verdict = 'folded' and r.id = v.live_id returning r.id),
    trigger as (
      insert into run_triggers (run_id, event_id, role)
      select event.run_id, event.id, 'trigger' from event where event.run_id is not null returning run_id),
    conversation as (
      update conversations c set head_seq = c.head_seq + 1, mail_version = c.mail_version + 1,
                                 live_run = case when v.verdict = 'new_run' then :run else c.live_run end
      from verdict v, event where c.id = v.id returning c.id)
    select case when v.verdict = 'again' then 'again' when event.id is null then 'duplicate' else v.verdict end as verdict,
           event.seq, event.run_id,
           (select pg_notify('pawl_due', '') from run)::text is not null as notified
    from verdict v left join event on true`,
});

const readRunKey = statement({
  name: "read_run_key",
  params: { namespace_uid: "text", key: "text" },
  columns: { spec_hash: "text", event_id: "uuid", object_uid: "text", object_name: "text" },
  text: `select spec_hash, event_id, object_uid, object_name from run_keys where namespace_uid = :namespace_uid and key = :key`,
});

export type Message = {
  readonly agentId: string;
  readonly generation: number;
  readonly connector: string;
  readonly conversationKey: string;
  readonly actor: { readonly connector: string; readonly extId: string };
  readonly extId: string;
  readonly extRev?: string;
  readonly orderKey: string;
  readonly text: string;
  /** Ceilings of the run it opens; absent = the agent's. */
  readonly slice?: Readonly<Record<string, unknown>>;
  /** For an applied Run: what makes it one message for ever. */
  readonly applied?: {
    readonly namespaceUid: string;
    readonly key: string;
    readonly specHash: string;
    readonly objectUid: string;
    readonly objectName: string;
  };
};

export type Ingested =
  | { readonly kind: "new_run" | "folded"; readonly eventId: string; readonly seq: number; readonly runId: string }
  | { readonly kind: "queued"; readonly eventId: string; readonly seq: number }
  /** Known before; nothing was written. `specHash` tells a replay from a key that was used for something else. */
  | { readonly kind: "duplicate"; readonly specHash: string | null };

export async function ingest(db: Runner, message: Message): Promise<Ingested> {
  const opened = await db.one(openConversation, {
    conversation: uuidv7(),
    agent: message.agentId,
    connector: message.connector,
    ext_key: message.conversationKey,
    actor: uuidv7(),
    actor_connector: message.actor.connector,
    actor_ext_id: message.actor.extId,
  });
  const eventId = uuidv7();
  const applied = message.applied;
  const params = {
    conversation: opened.conversation_id,
    event: eventId,
    request: uuidv7(),
    run: uuidv7(),
    kind: "message",
    ext_id: message.extId,
    ext_rev: message.extRev ?? "",
    order_key: message.orderKey,
    actor: opened.actor_id,
    body: message.text,
    slice: message.slice ?? {},
    generation: message.generation,
    namespace_uid: applied?.namespaceUid ?? null,
    key: applied?.key ?? null,
    spec_hash: applied?.specHash ?? null,
    object_uid: applied?.objectUid ?? null,
    object_name: applied?.objectName ?? null,
  };
  for (let look = 0; look < MAX_LOOKS; look += 1) {
    const row = await db.one(ingestEvent, params);
    if (row.verdict === "duplicate") return answerDuplicate(db, message, eventId);
    if (row.seq === null) continue;
    if (row.verdict === "queued") return { kind: "queued", eventId, seq: row.seq };
    if ((row.verdict === "new_run" || row.verdict === "folded") && row.run_id !== null) {
      return { kind: row.verdict, eventId, seq: row.seq, runId: row.run_id };
    }
  }
  throw new PawlError("conflict", "LedgerConflict", "the conversation changes faster than it can be read");
}

const readEventStatement = statement({
  name: "read_event",
  params: { event: "uuid" },
  columns: { seq: "int8", run_id: "uuid?", opened: "bool" },
  text: `
    select e.seq, e.run_id, not exists (select from run_triggers t join message_events f on f.id = t.event_id
             where t.run_id = e.run_id and f.seq < e.seq) as opened
    from message_events e where e.id = :event`,
});

/** A duplicate may be our own insert whose reply was lost: then it is told as what it was. */
async function answerDuplicate(db: Runner, message: Message, eventId: string): Promise<Ingested> {
  const [mine] = await db.rows(readEventStatement, { event: eventId });
  if (mine !== undefined) {
    return mine.run_id === null
      ? { kind: "queued", eventId, seq: mine.seq }
      : { kind: mine.opened ? "new_run" : "folded", eventId, seq: mine.seq, runId: mine.run_id };
  }
  if (message.applied === undefined) return { kind: "duplicate", specHash: null };
  const key = await findRunKey(db, message.applied.namespaceUid, message.applied.key);
  return { kind: "duplicate", specHash: key?.specHash ?? null };
}

export type RunKey = { specHash: string; eventId: string; objectUid: string; objectName: string };

export async function findRunKey(db: Runner, namespaceUid: string, key: string): Promise<RunKey | null> {
  const [row] = await db.rows(readRunKey, { namespace_uid: namespaceUid, key });
  if (row === undefined) return null;
  return { specHash: row.spec_hash, eventId: row.event_id, objectUid: row.object_uid, objectName: row.object_name };
}
