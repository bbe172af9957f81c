/** Agents and their generations, as the controller wrote them; references, as a worker last found them. */
import { v7 as uuidv7 } from "uuid";
import { PawlError } from "#rules/errors.ts";
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const recordAgentStatement = statement({
  name: "record_agent",
  guarded: true,
  params: {
    id: "uuid",
    namespace_uid: "text",
    namespace: "text",
    name: "text",
    spec: "jsonb",
    spec_hash: "text",
    suspended: "bool",
  },
  columns: { verdict: "text", id: "uuid?", generation: "int8?" },
  // A new generation only if the text changed; the row of the agent is locked, its present hash is copied beside it.
  text: `
    with locked as (
      select a.*, (select g.spec_hash from agent_generations g where g.agent_id = a.id and g.generation = a.generation) as spec_hash
      from agents a where a.namespace_uid = :namespace_uid and a.name = :name for no key update of a),
    verdict as (
      select case when l.id is null then 'created' when l.spec_hash is null then 'again'
                  when l.spec_hash = :spec_hash then 'same' else 'changed' end as verdict,
             coalesce(l.id, :id) as id, coalesce(l.generation, 0) as generation
      from (select 1) one left join locked l on true),
    created as (
      insert into agents (id, namespace_uid, namespace, name, generation, suspended)
      select id, :namespace_uid, :namespace, :name, 1, :suspended from verdict where verdict = 'created'
      on conflict (namespace_uid, name) do nothing returning id),
    changed as (
      update agents a set generation = case when v.verdict = 'changed' then v.generation + 1 else a.generation end,
                          suspended = :suspended, namespace = :namespace
      from verdict v where a.id = v.id and v.verdict in ('same', 'changed') returning a.id),
    written as (
      insert into agent_generations (agent_id, generation, spec, spec_hash, created_at)
      select v.id, v.generation + 1, :spec, :spec_hash, pawl_now() from verdict v
      where v.verdict = 'changed' or (v.verdict = 'created' and exists (select from created)) returning generation)
    select case when v.verdict = 'created' and not exists (select from created) then 'again' else v.verdict end as verdict,
           v.id, coalesce((select generation from written), v.generation) as generation
    from verdict v`,
});

const readAgentStatement = statement({
  name: "read_agent",
  params: { namespace_uid: "text", name: "text" },
  columns: {
    id: "uuid",
    generation: "int8",
    suspended: "bool",
    refs_generation: "int8?",
    refs_reason: "text?",
    refs_message: "text?",
    interrupt: "jsonb?",
    fast: "bool",
    active: "int4",
    queued: "int4",
  },
  text: `
    select a.id, a.generation, a.suspended, a.refs_generation, a.refs_reason, a.refs_message,
      g.spec -> 'interrupt' as interrupt, g.spec #> '{models,fast}' is not null as fast,
      (select count(*)::int from runs r where r.agent_id = a.id and r.live and r.status <> 'queued') as active,
      (select count(*)::int from runs r where r.agent_id = a.id and r.live and r.status = 'queued') as queued
    from agents a join agent_generations g on g.agent_id = a.id and g.generation = a.generation
    where a.namespace_uid = :namespace_uid and a.name = :name`,
});

const agentsToCheck = statement({
  name: "agents_to_check",
  params: { after_ms: "int4", settled_ms: "int4" },
  columns: { id: "uuid", namespace: "text", generation: "int8", spec: "jsonb" },
  text: `
    select a.id, a.namespace, a.generation, g.spec from agents a
    join agent_generations g on g.agent_id = a.id and g.generation = a.generation
    where a.refs_generation is distinct from a.generation
       or (a.refs_reason is not null and a.refs_checked_at < pawl_now() - :after_ms * interval '1 ms')
       or a.refs_checked_at < pawl_now() - :settled_ms * interval '1 ms'
    order by a.refs_checked_at nulls first limit 50`,
});

const recordRefsStatement = statement({
  name: "record_refs",
  params: { id: "uuid", generation: "int8", reason: "text?", message: "text?" },
  columns: { id: "uuid" },
  text: `
    update agents set refs_generation = :generation, refs_reason = :reason, refs_message = :message, refs_checked_at = pawl_now()
    where id = :id returning id`,
});

const suspendAgentStatement = statement({
  name: "suspend_agent",
  params: { namespace_uid: "text", name: "text" },
  columns: { id: "uuid" },
  text: `update agents set suspended = true where namespace_uid = :namespace_uid and name = :name returning id`,
});

const listAgentsStatement = statement({
  name: "list_agents",
  params: {},
  columns: {
    namespace_uid: "text",
    namespace: "text",
    name: "text",
    generation: "int8",
    suspended: "bool",
    refs_generation: "int8?",
    refs_reason: "text?",
    refs_message: "text?",
    active: "int4",
    queued: "int4",
    recorded_at: "timestamptz",
  },
  text: `
    select a.namespace_uid, a.namespace, a.name, a.generation, a.suspended, a.refs_generation, a.refs_reason, a.refs_message,
           coalesce(n.active, 0) as active, coalesce(n.queued, 0) as queued, g.created_at as recorded_at
    from agents a join agent_generations g on g.agent_id = a.id and g.generation = a.generation left join (
      select agent_id, (count(*) filter (where status <> 'queued'))::int as active,
             (count(*) filter (where status = 'queued'))::int as queued
      from runs where live group by agent_id) n on n.agent_id = a.id`,
});

export type AgentKey = { namespaceUid: string; name: string };
export type AgentRecord = { id: string; generation: number };

/** Stores what is applied now. `spec` is the Agent's spec with the install's defaults filled in. */
export async function recordAgent(
  db: Runner,
  agent: AgentKey & { namespace: string; spec: unknown; specHash: string; suspended: boolean },
): Promise<AgentRecord> {
  // `again`: another controller wrote the same name between our snapshot and our lock. The next look sees it.
  for (let look = 0; look < 5; look += 1) {
    const row = await db.one(recordAgentStatement, {
      id: uuidv7(),
      namespace_uid: agent.namespaceUid,
      namespace: agent.namespace,
      name: agent.name,
      spec: agent.spec,
      spec_hash: agent.specHash,
      suspended: agent.suspended,
    });
    if (row.verdict !== "again" && row.id !== null && row.generation !== null) {
      return { id: row.id, generation: row.generation };
    }
  }
  throw new PawlError("conflict", "LedgerConflict", `agent ${agent.name} is being written by somebody else`);
}

export type AgentView = AgentRecord & {
  suspended: boolean;
  /** Of the newest generation that was tried; `generation` below the agent's own: not tried yet. */
  refs: { generation: number; reason: string | null; message: string | null } | null;
  /** How messages meet its turns, as its spec says; the install's answers are in it. */
  interrupt: unknown;
  /** It names a model for small questions. */
  fast: boolean;
  active: number;
  queued: number;
};

export async function readAgent(db: Runner, key: AgentKey): Promise<AgentView | null> {
  const [row] = await db.rows(readAgentStatement, { namespace_uid: key.namespaceUid, name: key.name });
  if (row === undefined) return null;
  return {
    id: row.id,
    generation: row.generation,
    suspended: row.suspended,
    refs:
      row.refs_generation === null
        ? null
        : { generation: row.refs_generation, reason: row.refs_reason, message: row.refs_message },
    interrupt: row.interrupt,
    fast: row.fast,
    active: row.active,
    queued: row.queued,
  };
}

export type AgentToCheck = { id: string; namespace: string; generation: number; spec: unknown };

/** Agents whose references were never tried, were missing `afterMs` ago, or were found more than `settledMs` ago. */
export async function listAgentsToCheck(db: Runner, afterMs: number, settledMs: number): Promise<AgentToCheck[]> {
  return db.rows(agentsToCheck, { after_ms: afterMs, settled_ms: settledMs });
}

/** `reason` null: every reference was found. */
export async function recordRefs(
  db: Runner,
  refs: { id: string; generation: number; reason: string | null; message: string | null },
): Promise<void> {
  await db.rows(recordRefsStatement, refs);
}

/** Its object is gone; when it comes back, `recordAgent` lets it go on. */
export async function suspendAgent(db: Runner, key: AgentKey): Promise<void> {
  await db.rows(suspendAgentStatement, { namespace_uid: key.namespaceUid, name: key.name });
}

export type ListedAgent = AgentKey & {
  namespace: string;
  suspended: boolean;
  /** Turns that have not ended. */
  live: number;
  /** When its present generation was. */
  recordedAt: Date;
  digest: string;
};

/** Every agent with what its status shows, as a digest: a controller looks again at those whose digest changed. */
export async function listAgents(db: Runner): Promise<ListedAgent[]> {
  return (await db.rows(listAgentsStatement, {})).map(({ namespace_uid, recorded_at, namespace, name, ...shown }) => ({
    namespaceUid: namespace_uid,
    namespace,
    name,
    suspended: shown.suspended,
    live: shown.active + shown.queued,
    recordedAt: recorded_at,
    digest: JSON.stringify(Object.values(shown)),
  }));
}
