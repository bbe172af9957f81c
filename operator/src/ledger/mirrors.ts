/** What a Run object may show of the ledger: one row per applied key, references and counts, no transcript. */
import { DEFAULT_MAX_RUNS } from "#rules/limits.ts";
import { ofChain } from "./chain.ts";
import type { Runner } from "./database.ts";
import { statement, type Values } from "./statement.ts";
import { CROSSED_ANEW } from "./unsent.ts";

/** Nobody counts on beyond this, neither here nor in front of a status. */
export const MAX_AHEAD = 1_000;

const MIRROR_COLUMNS = {
  namespace_uid: "text",
  key: "text",
  spec_hash: "text",
  object_uid: "text",
  object_name: "text",
  event_id: "uuid",
  event_state: "text",
  conversation_version: "int8",
  position: "int4?",
  ahead: "int4?",
  agent_held: "int4?",
  agent_runs: "int4?",
  install_held: "int4?",
  opening_event: "uuid?",
  answered_by: "text?",
  role: "text?",
  own_interrupt: "jsonb?",
  restarts: "int4",
  superseded_by: "text?",
  due_at: "timestamptz?",
  triggers: "int4",
  actors: "text[]?",
  run_id: "uuid?",
  request_id: "uuid?",
  status: "text?",
  shape: "text?",
  reason: "text?",
  message: "text?",
  version: "int8?",
  lease_owner: "text?",
  streamed: "int4?",
  stop: "bool?",
  committed_at: "timestamptz?",
  committed_kind: "text?",
  committed_tool: "text?",
  committed_target: "text?",
  committed_step: "int4?",
  replied: "bool?",
  model_calls: "int4?",
  tool_calls: "int4?",
  input_tokens: "int8?",
  output_tokens: "int8?",
  cost_micros: "int8?",
  steps: "int4?",
  queued_at: "timestamptz",
  started_at: "timestamptz?",
  ended_at: "timestamptz?",
  reply: "text?",
  effects_total: "int4",
  effects_unknown: "int4",
  last_effects: "jsonb?",
  interrupts_total: "int4",
  last_interrupt: "jsonb?",
  open_tool: "text?",
  waiting: "jsonb?",
  expired: "jsonb?",
  open_since: "timestamptz?",
  now: "timestamptz",
} as const;

const MIRROR_SELECT = `
  select k.namespace_uid, k.key, k.spec_hash, k.object_uid, k.object_name, e.id as event_id, e.state as event_state,
    c.last_version as conversation_version,
    case when e.state = 'pending' then (select count(*)::int from message_events p
      where p.conversation_id = e.conversation_id and p.state = 'pending' and p.seq <= e.seq) end as position,
    u.ahead, u.agent_held, u.agent_runs, u.install_held,
    o.event_id as opening_event, o.object_name as answered_by, j.role, case when n.event_id is not null then
      jsonb_build_object('relation', n.relation, 'asked', n.asked, 'done', n.done, 'reason', n.reason,
        'here', coalesce(n.run_id = r.id or n.run_id = any (r.inherits), false), 'changed', g.changed) end as own_interrupt,
    coalesce(h.restarts, 0) as restarts, v.superseded_by, case when r.live then r.due_at end as due_at,
    coalesce(o.triggers, 0) as triggers, o.actors,
    r.id as run_id, r.request_id, r.status, r.shape, r.reason, r.message, r.version, r.lease_owner, r.streamed,
    r.stop_requested_at is not null as stop, r.committed_at, x.kind as committed_kind, xt.tool as committed_tool, x.target as committed_target, r.committed_step,
    r.reply_at is not null as replied, r.model_calls, r.tool_calls, r.input_tokens, r.output_tokens, r.cost_micros, r.next_ordinal - 1 as steps,
    e.received_at as queued_at, coalesce(h.started_at, r.started_at) as started_at, r.ended_at,
    (select t.args ->> 'text' from tool_calls t where t.run_id = r.id and t.class = 'reply' and t.outcome = 'real') as reply,
    f.total as effects_total, f.unknown as effects_unknown, f.last as last_effects,
    i.total as interrupts_total, i.last as last_interrupt, q.tool as open_tool, q.committed_at as open_since, coalesce(w.request, wq.request) as waiting, z.ids as expired,
    pawl_now() as now
  from run_keys k join message_events e on e.id = k.event_id join conversations c on c.id = e.conversation_id
  left join interrupts n on n.event_id = e.id -- what was decided about this message itself
  left join lateral ( -- what the turn that it met had changed, and can have undone
    select jsonb_agg(jsonb_build_object('target', f.target, 'undoable', exists (select from runs m join agent_generations d
               on d.agent_id = m.agent_id and d.generation = m.agent_generation, jsonb_array_elements(d.spec #> '{tools,effects}') said
             where m.id = n.run_id and said ->> 'tool' = t.tool and said ? 'compensate')) order by f.dispatched_at) as changed
    from commitment_effects f join tool_calls t on t.id = f.call_id
    where f.run_id = n.run_id and f.kind <> 'reply' and f.state <> 'failed') g on n.reason = 'Committed'
  left join lateral (select coalesce(e.run_id, (select s.run_id from run_triggers s join runs z on z.id = s.run_id
      where s.event_id = e.id order by z.queued_at desc limit 1), case when e.state = 'applied' then n.run_id end) as id) b on true
  left join runs r on r.id = b.id
  left join run_triggers j on j.run_id = r.id and j.event_id = e.id
  left join lateral ( -- the turn began with the first of its runs, however often it was restarted since
    select count(*)::int as restarts, min(p.started_at) as started_at
    from runs p where p.id = any (r.inherits) and p.request_id = r.request_id and p.superseded_by is not null) h on true
  left join lateral ( -- the newest message that restarted it, and came after this one
    select coalesce(y.object_name, r.id::text) as superseded_by
    from run_triggers t join message_events m on m.id = t.event_id join interrupts i on i.event_id = m.id and i.done = 'preempted'
    left join run_keys y on y.event_id = m.id
    where t.run_id = r.id and h.restarts > 0 and m.seq > e.seq order by m.seq desc limit 1) v on true
  left join commitment_effects x on x.id = r.committed_by
  left join tool_calls xt on xt.id = x.call_id
  left join lateral (
    select (array_agg(t.event_id order by m.seq))[1] as event_id, (array_agg(y.object_name order by m.seq))[1] as object_name,
           count(*)::int as triggers, array_agg(distinct a.ext_id) as actors
    from run_triggers t join message_events m on m.id = t.event_id join actors a on a.id = m.actor_id
    left join run_keys y on y.event_id = t.event_id where t.run_id = r.id) o on true
  left join lateral (
    select count(*)::int as total, (count(*) filter (where state = 'unknown'))::int as unknown,
           jsonb_agg(jsonb_build_object('name', name, 'target', target, 'state', state) order by nth) filter (where nth <= 3) as last
    from (select e.target, e.state, t.tool as name, row_number() over (order by e.dispatched_at desc, e.id desc) as nth
          from commitment_effects e join tool_calls t on t.id = e.call_id
          where e.run_id = r.id and e.kind <> 'reply' and not ${CROSSED_ANEW}) n) f on true
  left join lateral (
    select count(*)::int as total, (array_agg(jsonb_build_object('relation', relation, 'asked', asked, 'done', done, 'reason', reason)
           order by at desc))[1] as last from interrupts where ${ofChain("run_id", "r")}) i on true
  left join lateral (
    select t.tool, s.committed_at from tool_calls t join run_steps s on s.run_id = t.run_id and s.ordinal = t.ordinal
    where t.run_id = r.id and t.outcome is null and t.class <> 'reply' order by t.ordinal, t.idx limit 1) q on r.live
  left join lateral ( -- what a run that nobody works on yet waits for
    select (select count(*)::int from (
              select from runs b where b.agent_id = r.agent_id and b.live and b.due_at is not null and b.started_at is null
                and b.due_at < r.due_at limit ${MAX_AHEAD}) b) as ahead,
           (select count(*)::int from runs b where b.live and b.lease_owner is not null and b.agent_id = r.agent_id) as agent_held,
           (select count(*)::int from runs b where b.live and b.lease_owner is not null) as install_held,
           (select coalesce((g.spec #>> '{concurrency,maxRuns}')::int, ${DEFAULT_MAX_RUNS}) from agents a join agent_generations g
              on g.agent_id = a.id and g.generation = a.generation where a.id = r.agent_id) as agent_runs) u on r.live and r.status = 'queued'
  left join lateral ( -- the first call that waits for a person
    select jsonb_build_object('request', a.id, 'hash', a.hash, 'since', a.requested_at, 'tool', a.tool, 'target', a.target) as request
    from approvals a join tool_calls t on t.id = a.call_id where a.run_id = r.id and a.state = 'open' and t.outcome is null
    order by t.ordinal, t.idx limit 1) w on r.live and r.reason = 'WaitingForApproval'
  left join lateral (
    select jsonb_build_object('kind', 'Question', 'request', q.id, 'since', q.asked_at, 'text', q.text) as request
    from questions q where q.run_id = r.id and q.state = 'open') wq on r.status = 'awaiting_input'
  left join lateral (
    select jsonb_agg(x.id) as ids from (select a.id from approvals a where ${ofChain("a.run_id", "r")} and a.state = 'expired'
      union all select q.id from questions q where q.run_id = r.id and q.state = 'expired') x) z on true`;

const readMirrorStatement = statement({
  name: "read_mirror",
  params: { namespace_uid: "text", key: "text" },
  columns: MIRROR_COLUMNS,
  text: `${MIRROR_SELECT} where k.namespace_uid = :namespace_uid and k.key = :key`,
});

const changedMirrorsStatement = statement({
  name: "changed_mirrors",
  params: { since: "timestamptz" },
  columns: {
    namespace_uid: "text",
    namespace: "text",
    key: "text",
    object_name: "text",
    version: "int8",
    decided: "text",
  },
  text: `
    with changed as (
      select id, agent_id, version from runs where live and changed_at > :since
      union all select id, agent_id, version from runs where not live and ended_at > :since
      union all select r.id, r.agent_id, r.version from commitment_effects e join runs r on r.id = e.root_id -- said after its end
        where e.resolved_by is not null and e.settled_at > :since and not r.live)
    select k.namespace_uid, a.namespace, k.key, k.object_name, h.version, ''::text as decided
    from changed h join agents a on a.id = h.agent_id
    join run_triggers t on t.run_id = h.id join run_keys k on k.event_id = t.event_id
    union all -- stops: they are in no turn, and show the one that they stopped
    select k.namespace_uid, a.namespace, k.key, k.object_name, h.version, ''
    from changed h join agents a on a.id = h.agent_id join interrupts i on i.run_id = h.id
    join message_events e on e.id = i.event_id and e.state = 'applied' join run_keys k on k.event_id = e.id
    union all -- decided about, which changes no run where the message waits
    select k.namespace_uid, a.namespace, k.key, k.object_name, c.last_version, i.at::text
    from interrupts i join message_events e on e.id = i.event_id join run_keys k on k.event_id = e.id
    join conversations c on c.id = e.conversation_id join agents a on a.id = c.agent_id where i.at > :since`,
});

const databaseTime = statement({
  name: "database_time",
  params: {},
  columns: { now: "timestamptz" },
  text: `select pawl_now() as now`,
});

const findTranscriptRun = statement({
  name: "find_run_by_name",
  params: { namespace: "text", name: "text" },
  columns: { run_id: "uuid?", met_run: "uuid?", event_id: "uuid", state: "text" },
  text: `
    select coalesce(e.run_id, (select t.run_id from run_triggers t where t.event_id = e.id order by t.run_id desc limit 1),
                    case when e.state = 'applied' then (select i.run_id from interrupts i where i.event_id = e.id) end) as run_id,
           (select i.run_id from interrupts i where i.event_id = e.id) as met_run, e.id as event_id, e.state
    from run_keys k join message_events e on e.id = k.event_id join conversations c on c.id = e.conversation_id
    join agents a on a.id = c.agent_id
    where a.namespace = :namespace and k.object_name = :name order by e.received_at desc limit 1`,
});

const MESSAGE_COLUMNS = {
  namespace_uid: "text",
  namespace: "text",
  agent: "text",
  key: "text?",
  object_uid: "text?",
  object_name: "text?",
  event_id: "uuid",
  actor_connector: "text",
  actor: "text",
  stopping: "bool",
  received_at: "timestamptz",
} as const;

/** Messages that nobody has answered yet, newest first: withdrawn in that order none opens a turn on its way out. */
const liveMessages = (where: string): string => `
  select a.namespace_uid, a.namespace, a.name as agent, k.key, k.object_uid, k.object_name, e.id as event_id,
         w.connector as actor_connector, w.ext_id as actor, r.stop_requested_at is not null as stopping, e.received_at
  from message_events e join conversations c on c.id = e.conversation_id join agents a on a.id = c.agent_id
  join actors w on w.id = e.actor_id left join run_keys k on k.event_id = e.id
  left join runs r on r.id = e.run_id
  where e.kind = 'message' and e.state in ('undecided', 'pending', 'in_turn') and ${where}
  order by e.conversation_id, e.seq desc`;

const liveAppliedKeys = statement({
  name: "live_applied_keys",
  params: {},
  columns: MESSAGE_COLUMNS,
  text: liveMessages("k.object_uid is not null"),
});

const liveMessagesOfObject = statement({
  name: "live_messages_of_object",
  params: { object_uid: "text" },
  columns: MESSAGE_COLUMNS,
  text: liveMessages("k.object_uid = :object_uid"),
});

const liveMessagesOfAgent = statement({
  name: "live_messages_of_agent",
  params: { namespace_uid: "text", name: "text" },
  columns: MESSAGE_COLUMNS,
  text: liveMessages("a.namespace_uid = :namespace_uid and a.name = :name"),
});

type Row = Awaited<ReturnType<typeof rawMirror>>;
export type Mirror = NonNullable<Row>;

async function rawMirror(db: Runner, namespaceUid: string, key: string) {
  const [row] = await db.rows(readMirrorStatement, { namespace_uid: namespaceUid, key });
  return row ?? null;
}

/** Everything a Run object shows, or null when the key was never a message here. Column names as in the statement. */
export async function readMirror(db: Runner, namespaceUid: string, key: string): Promise<Mirror | null> {
  return rawMirror(db, namespaceUid, key);
}

export type ChangedKey = {
  readonly namespaceUid: string;
  readonly namespace: string;
  readonly key: string;
  readonly objectName: string;
  /** Of the run: tells a new change from one that was seen a look ago. */
  readonly version: number;
  /** When a decision about the message itself was taken; empty: this is about its run. */
  readonly decided: string;
};

/** Keys whose run changed after `since`; pass the time of the last look minus an overlap, for commits still on their way. */
export async function listChangedMirrors(db: Runner, since: Date): Promise<ChangedKey[]> {
  const rows = await db.rows(changedMirrorsStatement, { since });
  return rows.map((row) => ({
    namespaceUid: row.namespace_uid,
    namespace: row.namespace,
    key: row.key,
    objectName: row.object_name,
    version: row.version,
    decided: row.decided,
  }));
}

export type LiveMessage = {
  readonly namespaceUid: string;
  readonly namespace: string;
  readonly agent: string;
  readonly eventId: string;
  readonly actor: { readonly connector: string; readonly extId: string };
  /** Its turn has been told to stop. */
  readonly stopping: boolean;
  readonly receivedAt: Date;
  /** The Run that said it; null when it came another way. */
  readonly object: { readonly key: string; readonly uid: string; readonly name: string } | null;
};

const liveMessage = (row: Values<typeof MESSAGE_COLUMNS>): LiveMessage => ({
  namespaceUid: row.namespace_uid,
  namespace: row.namespace,
  agent: row.agent,
  eventId: row.event_id,
  actor: { connector: row.actor_connector, extId: row.actor },
  stopping: row.stopping,
  receivedAt: row.received_at,
  object:
    row.key === null || row.object_uid === null || row.object_name === null
      ? null
      : { key: row.key, uid: row.object_uid, name: row.object_name },
});

/** Every unanswered message that an object stands for: what a sweep compares with the objects that are there. */
export async function listLiveAppliedKeys(db: Runner): Promise<LiveMessage[]> {
  return (await db.rows(liveAppliedKeys, {})).map(liveMessage);
}

/** The unanswered message of one Run object, by its UID: none, or one. */
export async function listLiveMessagesOfObject(db: Runner, objectUid: string): Promise<LiveMessage[]> {
  return (await db.rows(liveMessagesOfObject, { object_uid: objectUid })).map(liveMessage);
}

/** Newest first in each conversation: stop them in this order. */
export async function listLiveMessagesOfAgent(
  db: Runner,
  key: { namespaceUid: string; name: string },
): Promise<LiveMessage[]> {
  const rows = await db.rows(liveMessagesOfAgent, { namespace_uid: key.namespaceUid, name: key.name });
  return rows.map(liveMessage);
}

export async function readDatabaseTime(db: Runner): Promise<Date> {
  return (await db.one(databaseTime, {})).now;
}

/** `metRunId`: the turn at work that it met, and that a decision about it speaks of. */
export async function findRunByName(
  db: Runner,
  namespace: string,
  name: string,
): Promise<{ runId: string | null; metRunId: string | null; state: string } | null> {
  const [row] = await db.rows(findTranscriptRun, { namespace, name });
  return row === undefined ? null : { runId: row.run_id, metRunId: row.met_run, state: row.state };
}
