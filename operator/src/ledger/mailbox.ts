/**
 * The mailbox: a message is a row, its insert is the de-duplication and the acknowledgement. What becomes of it is decided
 * here as far as that needs no model (rules/interrupt.ts is the rule, the reasons are its words).
 * Guards here wait for the conversation. What they then need to know about runs and messages stands on that row
 * (`live_run`, `mail_version`) or on the run's, which they lock too; where a statement's snapshot turns out older than the
 * row it got, it answers `again` and the same statement is run once more.
 */
import { v7 as uuidv7 } from "uuid";
import { type Policy, policyOf } from "#rules/interrupt.ts";
import { MAX_BOT_TURNS, MAX_HOLD_MS } from "#rules/limits.ts";
import { quietMs } from "#rules/unfinished.ts";
import { answers } from "./answers.ts";
import type { Runner } from "./database.ts";
import { untilKnown } from "./looks.ts";
import { statement } from "./statement.ts";
import { ENTITLED, stopByMessage } from "./turns.ts";

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

/** When the turn begins that a message joins: after its quiet time, never past the longest wait, at once when it is full. */
const QUIET = "v.now + :quiet_ms * interval '1 ms'";
const LONGEST = "v.now + :max_wait_ms * interval '1 ms'";
/** A turn that is due and waits for a worker keeps its place. */
const MOVED_DUE = `
             case when v.trigger_count + 1 >= :max_count then least(r.due_at, v.now)
                  when greatest(r.due_at, least(r.window_until, ${QUIET})) <= v.now then r.due_at
                  else least(r.window_until, ${QUIET}) end`;

/** The chain up to where a model would have to be asked. Null: the conversation names a run that is not visible yet. */
const REASON = `case
        when not :addressed then 'NotAddressed'
        when :bot and bot_turns >= ${MAX_BOT_TURNS} then 'BotBound'
        when live_run is null then 'Free'
        when live_id is null then null
        when status = 'queued' and :stops then case when entitled then 'Stops' else 'NotEntitled' end
        when status = 'queued' and not same_grants then 'DifferentGrants'
        when status = 'queued' and trigger_count >= :max_count then 'WindowFull'
        when status = 'queued' then 'Window'
        when status = 'awaiting_input' and :stops then case when entitled then 'Stops' else 'NotEntitled' end
        when status = 'awaiting_input' then 'Waiting'
        when :bot and not :names_agent then 'Bot'
        when not entitled then 'NotEntitled'
        when reply_at is not null then 'AlreadyAnswered'
        when :stops then 'Stops'
        when :askable then 'AskingModel'
        when :mid_turn = 'enqueue' then 'Enqueue'
        else 'NoModel' end`;

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
    shown: "text?",
    about: "uuid?",
    reconciles: "uuid?",
    slice: "jsonb",
    generation: "int8",
    addressed: "bool",
    bot: "bool",
    names_agent: "bool",
    grants: "text",
    stops: "bool",
    askable: "bool",
    who: "text",
    mid_turn: "text",
    quiet_ms: "int8",
    max_wait_ms: "int8",
    max_count: "int4",
    max_supersessions: "int4",
    deadline_ms: "int8",
    namespace_uid: "text?",
    key: "text?",
    spec_hash: "text?",
    object_uid: "text?",
    object_name: "text?",
  },
  columns: { verdict: "text", seq: "int8?", run_id: "uuid?", live_id: "uuid?", reason: "text?", notified: "bool" },
  text: `
    with locked as (
      select * from conversations where id = :conversation for no key update),
    live_run as ( -- not visible yet although the conversation names it: our snapshot is too old
      select r.* from runs r join locked l on r.id = l.live_run for no key update of r),
    judged as (
      select l.*, r.id as live_id, r.status, r.request_id, r.reply_at, r.trigger_count, r.grants = :grants as same_grants,${ENTITLED} as entitled,
             r.interruptions >= :max_supersessions or coalesce(r.deadline_at <= pawl_now(), false) as bound, pawl_now() as now
      from locked l left join live_run r on true),
    verdict as (
      select *, case
        when reason is null then 'again'
        when reason in ('NotAddressed', 'BotBound') then 'observed'
        when reason = 'Free' then 'new_run'
        when reason = 'Window' then 'folded'
        when reason = 'Waiting' then 'answers'
        when reason = 'Stops' then 'stops'
        when reason = 'AskingModel' then 'undecided'
        else 'queued' end as verdict
      from (select *, ${REASON} as reason from judged) reasoned),
    keyed as (
      insert into run_keys (namespace_uid, key, spec_hash, event_id, object_uid, object_name)
      select :namespace_uid, :key, :spec_hash, :event, :object_uid, :object_name
      from verdict where verdict not in ('again', 'stops') and :key is not null
      on conflict do nothing returning key),
    event as (
      insert into message_events (id, conversation_id, seq, kind, ext_id, ext_rev, order_key, actor_id, addressed, bot, body, shown, about, reconciles, state,
                                  run_id, slice, grants, mid_turn, quiet_until, wait_until, deadline_ms, received_at)
      select :event, v.id, v.head_seq + 1, :kind, :ext_id, :ext_rev, :order_key, :actor, :addressed, :bot, :body, :shown, :about, :reconciles,
             case v.verdict when 'queued' then 'pending' when 'undecided' then 'undecided' when 'observed' then 'observed' else 'in_turn' end,
             case v.verdict when 'new_run' then :run when 'folded' then v.live_id when 'answers' then v.live_id end,
             :slice, :grants, :mid_turn, ${QUIET}, ${LONGEST}, :deadline_ms, v.now
      from verdict v where v.verdict not in ('again', 'stops') and (:key is null or exists (select from keyed))
      on conflict do nothing returning id, seq, state, run_id),
    request as (
      insert into logical_requests (id, conversation_id, requester, reconciles, deadline_at, opened_at)
      select :request, v.id, :actor, :reconciles, v.now + :deadline_ms * interval '1 ms', v.now
      from verdict v, event where v.verdict = 'new_run' returning id, deadline_at),
    run as (
      insert into runs (id, root_id, conversation_id, request_id, journal_scope, agent_id, agent_generation,
                        status, live, due_at, window_until, slice, requester, addressed, grants, deadline_at, version, queued_at, changed_at)
      select :run, :run, v.id, request.id, :run, v.agent_id, :generation, 'queued', true,
             case when :max_count <= 1 then v.now else least(${QUIET}, ${LONGEST}) end, ${LONGEST}, :slice,
             :actor, :actor, :grants, request.deadline_at, v.last_version + 1, v.now, v.now
      from verdict v, request returning id),
    joined as (
      update runs r set trigger_count = r.trigger_count + 1, addressed = :actor, due_at =${MOVED_DUE},
             version = r.version + 1, changed_at = v.now
      from verdict v, event where v.verdict = 'folded' and r.id = v.live_id returning r.id, r.due_at <= v.now as due),
    reconciling as (
      update logical_requests q set reconciles = coalesce(q.reconciles, :reconciles) from verdict v, event
      where v.verdict = 'folded' and :reconciles is not null and q.id = v.request_id),
    answering as (
      select v.live_id as run_id, event.id as event_id, event.seq, :actor as actor_id, :body as body, v.now as at
      from verdict v, event where v.verdict = 'answers'),
    ${answers()},
    held as ( -- nothing leaves while it is asked what the message means; not for ever, however much somebody types
      update runs r set hold_seq = event.seq, hold_until = v.now + interval '${MAX_HOLD_MS} ms'
      from verdict v, event where v.verdict = 'undecided' and not v.bound and r.id = v.live_id returning r.id),
    trigger as (
      insert into run_triggers (run_id, event_id, role)
      select event.run_id, event.id, 'trigger'
      from event, verdict v where event.run_id is not null and v.verdict <> 'answers' returning run_id),
    noted as (
      insert into interrupts (event_id, run_id, relation, asked, done, reason, source, at)
      select event.id, v.live_id, 'none', :mid_turn, case v.verdict when 'answers' then 'answered' else v.verdict end, v.reason, case when :kind in ('edit', 'delete') then :kind else 'policy' end, v.now
      from verdict v, event where v.verdict in ('queued', 'answers') or v.reason = 'BotBound'),
    conversation as (
      update conversations c set head_seq = c.head_seq + 1, mail_version = c.mail_version + 1,
             live_run = case when v.verdict = 'new_run' then :run else c.live_run end,
             max_count = case when v.verdict = 'observed' then c.max_count else :max_count end,
             bot_turns = case when v.verdict = 'observed' then c.bot_turns
                              when :bot then c.bot_turns + (v.verdict = 'new_run')::int else 0 end
      from verdict v, event where c.id = v.id returning c.id)
    select case when v.verdict in ('again', 'stops') then v.verdict when event.id is null then 'duplicate' else v.verdict end as verdict,
           event.seq, event.run_id, v.live_id, v.reason,
           (select pg_notify('pawl_due', '') from verdict n, event
            where n.verdict in ('new_run', 'answers', 'undecided') or exists (select from joined where due))::text is not null as notified
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
  /** Said to the agent, not only where it listens; absent = to it. */
  readonly addressed?: boolean;
  /** Written by a program. One that does not name the agent never interrupts. */
  readonly bot?: boolean;
  readonly namesAgent?: boolean;
  /** What its actor may have done, as one word; messages of different ones are never one turn. */
  readonly grants?: string;
  /** Says nothing but that the work under way shall stop (rules/stop-words.ts). */
  readonly stops?: boolean;
  /** Somebody can be asked what a message means to the work under way: the agent or the install names a model for it. */
  readonly askable?: boolean;
  /** Of its agent. Absent: as an Agent that says nothing, but its turn begins at once. */
  readonly policy?: Policy;
  /** For an applied Run: what makes it one message for ever. */
  readonly applied?: {
    readonly namespaceUid: string;
    readonly key: string;
    readonly specHash: string;
    readonly objectUid: string;
    readonly objectName: string;
  };
};

type Taken = { readonly eventId: string; readonly seq: number };
export type Ingested =
  /** answers: the turn had asked, and goes on with it. */
  | (Taken & { readonly kind: "new_run" | "folded" | "answers"; readonly runId: string })
  /** Waits for the next turn. */
  | (Taken & { readonly kind: "queued"; readonly reason: string })
  /** Read by nobody unless a later turn looks back. */
  | (Taken & { readonly kind: "observed"; readonly reason: string })
  /** A model is asked what it means to the turn at work. */
  | (Taken & { readonly kind: "undecided" })
  /** It was a stop: the turn is over, or only tells what it did. */
  | (Taken & { readonly kind: "cancelled" | "stopping" })
  /** Known before; nothing was written. `specHash` tells a replay from a key that was used for something else. */
  | { readonly kind: "duplicate"; readonly specHash: string | null };

export const AT_ONCE: Policy = { ...policyOf(null), quietMs: 0 };

const keyOf = (applied: Message["applied"]) => ({
  namespace_uid: applied?.namespaceUid ?? null,
  key: applied?.key ?? null,
  spec_hash: applied?.specHash ?? null,
  object_uid: applied?.objectUid ?? null,
  object_name: applied?.objectName ?? null,
});

/** The conversation and the author of what came in; both are made where they are new. */
export type Place = { readonly conversation: string; readonly actor: string };

export async function openPlace(
  db: Runner,
  of: Pick<Message, "agentId" | "connector" | "conversationKey" | "actor">,
): Promise<Place> {
  const opened = await db.one(openConversation, {
    conversation: uuidv7(),
    agent: of.agentId,
    connector: of.connector,
    ext_key: of.conversationKey,
    actor: uuidv7(),
    actor_connector: of.actor.connector,
    actor_ext_id: of.actor.extId,
  });
  return { conversation: opened.conversation_id, actor: opened.actor_id };
}

/** Of a message that an edit or a delete of an earlier one has become. */
export type Concerning = {
  readonly kind: "edit" | "delete";
  /** What later turns read in place of its text, which says nothing without the message that it is about. */
  readonly shown: string | null;
  readonly about: string | null;
  /** The request that it comes too late for, where that is put right. */
  readonly reconciles: string | null;
};
const ITSELF = { kind: "message", shown: null, about: null, reconciles: null } as const;

export const ingest = async (db: Runner, message: Message): Promise<Ingested> =>
  take(db, message, await openPlace(db, message));

export async function take(
  db: Runner,
  message: Message,
  place: Place,
  as: Concerning | typeof ITSELF = ITSELF,
): Promise<Ingested> {
  const eventId = uuidv7();
  const policy = message.policy ?? AT_ONCE;
  const said = {
    conversation: place.conversation,
    kind: as.kind,
    ext_id: message.extId,
    ext_rev: message.extRev ?? "",
    order_key: message.orderKey,
    actor: place.actor,
    body: message.text,
    who: policy.who,
    ...keyOf(message.applied),
  };
  const params = {
    ...said,
    shown: as.shown,
    about: as.about,
    reconciles: as.reconciles,
    event: eventId,
    request: uuidv7(),
    run: uuidv7(),
    slice: message.slice ?? {},
    generation: message.generation,
    addressed: message.addressed ?? true,
    bot: message.bot ?? false,
    names_agent: message.namesAgent ?? false,
    grants: message.grants ?? "",
    stops: message.stops ?? false,
    askable: message.askable ?? false,
    mid_turn: policy.midTurn,
    quiet_ms: quietMs(policy, message.text),
    max_wait_ms: policy.maxWaitMs,
    max_count: policy.maxCount,
    max_supersessions: policy.maxSupersessions,
    deadline_ms: policy.deadlineMs,
  };
  const nonce = uuidv7();
  return untilKnown<Ingested>(async () => {
    const row = await db.one(ingestEvent, params);
    if (row.verdict === "stops" && row.live_id !== null) {
      const stopped = await stopByMessage(db, { ...said, run: row.live_id, stop_event: eventId }, nonce);
      return stopped === "again" ? undefined : answerWritten(db, message, eventId);
    }
    if (row.verdict === "duplicate") return answerWritten(db, message, eventId);
    if (row.seq === null) return undefined;
    const taken = { eventId, seq: row.seq };
    switch (row.verdict) {
      case "new_run":
      case "folded":
      case "answers":
        return row.run_id === null ? undefined : { kind: row.verdict, ...taken, runId: row.run_id };
      case "queued":
      case "observed":
        return { kind: row.verdict, ...taken, reason: row.reason ?? "" };
      case "undecided":
        return { kind: "undecided", ...taken };
      default:
        return undefined;
    }
  });
}

const readEventStatement = statement({
  name: "read_event",
  params: { event: "uuid" },
  columns: {
    seq: "int8",
    run_id: "uuid?",
    state: "text",
    opened: "bool",
    role: "text?",
    done: "text?",
    reason: "text?",
  },
  text: `
    select e.seq, e.run_id, e.state, not exists (select from run_triggers t join message_events f on f.id = t.event_id
             where t.run_id = e.run_id and f.seq < e.seq) as opened, t.role, i.done, i.reason
    from message_events e left join run_triggers t on t.run_id = e.run_id and t.event_id = e.id
    left join interrupts i on i.event_id = e.id where e.id = :event`,
});

/**
 * What is written of a message. A duplicate may be our own insert whose reply was lost: then it is told as what it was, or
 * as what others have made of it since.
 */
async function answerWritten(db: Runner, message: Message, eventId: string): Promise<Ingested> {
  const [mine] = await db.rows(readEventStatement, { event: eventId });
  if (mine === undefined) {
    if (message.applied === undefined) return { kind: "duplicate", specHash: null };
    const key = await findRunKey(db, message.applied.namespaceUid, message.applied.key);
    return { kind: "duplicate", specHash: key?.specHash ?? null };
  }
  const taken = { eventId, seq: mine.seq };
  if (mine.state === "applied") return { kind: mine.done === "stopping" ? "stopping" : "cancelled", ...taken };
  if (mine.state === "observed") return { kind: "observed", ...taken, reason: mine.reason ?? "NotAddressed" };
  if (mine.state === "undecided") return { kind: "undecided", ...taken };
  if (mine.run_id === null) return { kind: "queued", ...taken, reason: mine.reason ?? "" };
  const kind = mine.role === "answer" ? "answers" : mine.opened ? "new_run" : "folded";
  return { kind, ...taken, runId: mine.run_id };
}

export type RunKey = { specHash: string; eventId: string; objectUid: string; objectName: string };

export async function findRunKey(db: Runner, namespaceUid: string, key: string): Promise<RunKey | null> {
  const [row] = await db.rows(readRunKey, { namespace_uid: namespaceUid, key });
  if (row === undefined) return null;
  return { specHash: row.spec_hash, eventId: row.event_id, objectUid: row.object_uid, objectName: row.object_name };
}
