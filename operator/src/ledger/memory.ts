/**
 * Memories: per agent, found by their words, shown only where they and all that they were built on may be. Remembering
 * and forgetting stand in the transaction that stores the call's result, under the run's lease: the verdicts are those
 * of `commit_results`, which comes after them with the same nonce.
 */
import { PawlError } from "#rules/errors.ts";
import type { Evidence } from "#rules/provenance.ts";
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

/** What `rules/provenance.ts` calls `mayShow`, for memory `m`. Evidence that is gone bars. */
const shownIn = (agent: string, conversation: string): string => `(
      (m.audience = 'agent' or m.conversation_id = ${conversation})
      and (m.evidence = '{}' or cardinality(m.evidence) = (
        select count(*) from tool_source_evidence e where e.id = any (m.evidence)
          and (e.audience = 'public' or (e.audience = 'agent' and e.agent_id = ${agent})
               or (e.audience = 'conversation' and e.conversation_id = ${conversation})))))`;

const LEASED = `case
        when last_nonce = :nonce then 'already'
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'`;

const rememberStatement = statement({
  name: "remember",
  guarded: true,
  params: {
    run: "uuid",
    token: "int8",
    nonce: "uuid",
    memory: "uuid",
    call: "uuid",
    text: "text",
    audience: "text",
    visibility: "text",
    evidence: "uuid[]",
  },
  columns: { verdict: "text" },
  // The same text in the same places is one memory: a unique index says so, also between two runs.
  text: `
    with locked as (select * from runs where id = :run for no key update),
    verdict as (
      select *, ${LEASED}
        else 'remembered' end as verdict from locked),
    made as (
      insert into memories (id, agent_id, conversation_id, text, audience, visibility, evidence, run_id, call_id, actors, created_at)
      select :memory, v.agent_id, coalesce(v.conversation_id, (select conversation_id from runs where id = v.root_id)), :text,
             :audience, :visibility, :evidence, v.id, :call,
             array(select distinct e.actor_id from run_triggers t join message_events e on e.id = t.event_id where t.run_id = v.id),
             pawl_now()
      from verdict v where v.verdict = 'remembered' on conflict do nothing returning id)
    select case when verdict = 'remembered' and not exists (select from made) then 'known' else verdict end as verdict
    from verdict`,
});

const findSameStatement = statement({
  name: "find_same_memory",
  params: { run: "uuid", call: "uuid", text: "text", visibility: "text" },
  columns: { id: "uuid" },
  text: `
    select m.id from runs r join memories m on m.agent_id = r.agent_id where r.id = :run
      and (m.call_id = :call or (m.visibility = :visibility and md5(m.text) = md5(:text) and m.forgotten_at is null))
    order by m.call_id = :call desc limit 1`,
});

const forgetStatement = statement({
  name: "forget",
  guarded: true,
  params: { run: "uuid", token: "int8", nonce: "uuid", memory: "uuid", call: "uuid" },
  columns: { verdict: "text" },
  // Only what may be shown here can be forgotten from here; anything else is as if it did not exist.
  text: `
    with locked as (
      select r.*, coalesce(r.conversation_id, root.conversation_id) as place
      from runs root join runs r on r.root_id = root.id where r.id = :run for no key update of root, r),
    verdict as (
      select *, ${LEASED}
        else 'forgotten' end as verdict from locked),
    gone as (
      update memories m set forgotten_at = pawl_now(), forgotten_by = 'the agent', forgotten_call = :call
      from verdict v where v.verdict = 'forgotten' and m.id = :memory and m.agent_id = v.agent_id and m.forgotten_at is null
        and ${shownIn("v.agent_id", "v.place")}
      returning m.id)
    select case when verdict = 'forgotten' and not exists (select from gone) then 'unknown_memory' else verdict end as verdict
    from verdict`,
});

const forgetByPersonStatement = statement({
  name: "forget_by_person",
  guarded: true,
  params: { memory: "uuid", by: "text" },
  columns: { verdict: "text", forgotten_by: "text?", forgotten_at: "timestamptz?" },
  text: `
    with locked as (select * from memories where id = :memory for no key update),
    verdict as (select *, case when forgotten_at is not null then 'already' else 'forgotten' end as verdict from locked),
    gone as (
      update memories m set forgotten_at = pawl_now(), forgotten_by = :by
      from verdict v where m.id = v.id and v.verdict = 'forgotten')
    select coalesce(v.verdict, 'unknown_memory') as verdict, v.forgotten_by, v.forgotten_at
    from (select 1) one left join verdict v on true`,
});

const RECALLED = `m.id, m.text, m.created_at, m.evidence, m.actors, ${shownIn(":agent", ":conversation")} as shown`;

const recallStatement = statement({
  name: "recall",
  params: { agent: "uuid", conversation: "uuid", query: "text", most: "int4" },
  columns: { memories: "jsonb", evidence: "jsonb", left_out: "int4", more: "int4" },
  // Memories with all of the words; when none may be shown that has, those with a word that begins with one of them
  // (not where the query says what must not be in it). Without a query: the newest.
  text: `
    with asked as (
      select websearch_to_tsquery('simple', :query) as every,
             case when websearch_to_tsquery('simple', :query)::text like '%!%' then null
                  else (nullif(replace(plainto_tsquery('simple', :query)::text, ' & ', ':* | '), '') || ':*')::tsquery end as some),
    mine as (
      select ${RECALLED}, true as whole, 0 as rank from memories m
      where :query = '' and m.agent_id = :agent and m.forgotten_at is null
      union all
      select ${RECALLED}, m.words @@ a.every, ts_rank(m.words, case when m.words @@ a.every then a.every else a.some end)
      from asked a join memories m on m.words @@ a.every or m.words @@ a.some
      where :query <> '' and m.agent_id = :agent and m.forgotten_at is null),
    found as (
      select *, row_number() over (order by not shown, rank desc, created_at desc, id desc) as nth from mine
      where whole or not exists (select from mine w where w.whole and w.shown)),
    kept as (select * from found where shown and nth <= :most)
    select
      (select coalesce(jsonb_agg(jsonb_build_object('id', k.id, 'text', k.text, 'at', k.created_at, 'from',
           (select string_agg(coalesce(w.display, w.ext_id), ', ' order by w.id) from actors w where w.id = any (k.actors))) order by k.nth), '[]')
         from kept k) as memories,
      (select coalesce(jsonb_agg(jsonb_build_object('id', e.id, 'source', e.source, 'audience', e.audience, 'agentId', e.agent_id,
           'conversationId', e.conversation_id) order by e.created_at, e.id), '[]')
         from tool_source_evidence e where e.id in (select unnest(k.evidence) from kept k)) as evidence,
      (select count(*)::int from found where not shown) as left_out,
      (select count(*)::int from found where shown and nth > :most) as more`,
});

const listMemoriesStatement = statement({
  name: "list_memories",
  params: { namespace: "text", agent: "text", every: "bool", most: "int4" },
  columns: {
    id: "uuid?",
    text: "text?",
    audience: "text?",
    conversation: "text?",
    visibility: "text?",
    sources: "jsonb",
    actors: "text?",
    created_at: "timestamptz?",
    forgotten_at: "timestamptz?",
    forgotten_by: "text?",
  },
  // An agent without memories is one row without a memory; no row says that there is no such agent.
  text: `
    select m.id, m.text, m.audience, c.ext_key as conversation, m.visibility,
      (select coalesce(jsonb_agg(distinct e.source), '[]') from tool_source_evidence e where e.id = any (m.evidence)) as sources,
      (select string_agg(coalesce(w.display, w.ext_id), ', ' order by w.id) from actors w where w.id = any (m.actors)) as actors,
      m.created_at, m.forgotten_at, m.forgotten_by
    from agents a left join memories m on m.agent_id = a.id and (:every or m.forgotten_at is null)
    left join conversations c on c.id = m.conversation_id
    where a.namespace = :namespace and a.name = :agent order by m.created_at desc, m.id desc limit :most`,
});

/** The commit that stores the call's result, of which this is a part. */
export type StoreCommit = { readonly runId: string; readonly token: number; readonly nonce: string };
type Refused = { readonly kind: "already" | "fenced" | "ended" };

export type NewMemory = {
  readonly id: string;
  readonly callId: string;
  readonly text: string;
  readonly audience: "conversation" | "agent";
  readonly visibility: string;
  readonly evidence: readonly string[];
};

/** Somebody else forgets the same text at the same moment: rarely once, never this often. */
const MAX_LOOKS = 5;

export async function remember(
  tx: Runner,
  commit: StoreCommit,
  memory: NewMemory,
): Promise<Refused | { readonly kind: "remembered" | "known"; readonly id: string }> {
  for (let look = 0; look < MAX_LOOKS; look += 1) {
    const { verdict } = await tx.one(rememberStatement, {
      run: commit.runId,
      token: commit.token,
      nonce: commit.nonce,
      memory: memory.id,
      call: memory.callId,
      text: memory.text,
      audience: memory.audience,
      visibility: memory.visibility,
      evidence: memory.evidence,
    });
    if (verdict === "remembered") return { kind: "remembered", id: memory.id };
    if (verdict !== "known") return { kind: verdict as Refused["kind"] };
    const { runId: run } = commit;
    const { callId: call, text, visibility } = memory;
    const [same] = await tx.rows(findSameStatement, { run, call, text, visibility });
    if (same !== undefined) return { kind: "known", id: same.id };
  }
  throw new PawlError("transient", "MemoryBusy", "the same memory is being made and forgotten at once");
}

export async function forget(
  tx: Runner,
  commit: StoreCommit,
  which: { readonly id: string; readonly callId: string },
): Promise<Refused | { readonly kind: "forgotten" | "unknown_memory" }> {
  const { verdict } = await tx.one(forgetStatement, {
    run: commit.runId,
    token: commit.token,
    nonce: commit.nonce,
    memory: which.id,
    call: which.callId,
  });
  return { kind: verdict as "forgotten" };
}

export type ForgottenByPerson =
  | { readonly kind: "forgotten" | "unknown_memory" }
  | { readonly kind: "already"; readonly by: string; readonly at: Date };

export async function forgetByPerson(db: Runner, memory: string, by: string): Promise<ForgottenByPerson> {
  const row = await db.one(forgetByPersonStatement, { memory, by });
  if (row.verdict === "already")
    return { kind: "already", by: row.forgotten_by ?? "", at: row.forgotten_at ?? new Date(0) };
  return { kind: row.verdict as "forgotten" | "unknown_memory" };
}

export type Recalled = {
  readonly memories: readonly {
    readonly id: string;
    readonly text: string;
    readonly at: Date;
    /** Whose messages it was made of. */
    readonly from: string;
  }[];
  /** What they were built on. */
  readonly evidence: readonly Evidence[];
  /** Matches that may not be shown here. */
  readonly leftOut: number;
  /** Matches that may be shown and are beyond `most`. */
  readonly more: number;
};

export async function recall(
  db: Runner,
  asked: {
    readonly agentId: string;
    readonly conversationId: string;
    readonly query: string;
    readonly most: number;
  },
): Promise<Recalled> {
  const { agentId: agent, conversationId: conversation, query, most } = asked;
  const row = await db.one(recallStatement, { agent, conversation, query, most });
  const memories = row.memories as { id: string; text: string; at: string; from: string | null }[];
  return {
    memories: memories.map(({ id, text, at, from }) => ({ id, text, at: new Date(at), from: from ?? "nobody" })),
    evidence: row.evidence as Evidence[],
    leftOut: row.left_out,
    more: row.more,
  };
}

export type ListedMemory = {
  readonly id: string;
  readonly text: string;
  readonly audience: string;
  readonly visibility: string;
  readonly conversation: string;
  readonly sources: readonly string[];
  readonly actors: string;
  readonly at: Date;
  readonly forgotten: { readonly at: Date; readonly by: string } | null;
};

/** Newest first; null: there is no such agent. */
export async function listMemories(
  db: Runner,
  which: { readonly namespace: string; readonly agent: string; readonly every: boolean; readonly most: number },
): Promise<ListedMemory[] | null> {
  const rows = await db.rows(listMemoriesStatement, which);
  if (rows.length === 0) return null;
  return rows.flatMap((row) =>
    row.id === null || row.created_at === null
      ? []
      : [
          {
            id: row.id,
            text: row.text ?? "",
            audience: row.audience ?? "",
            visibility: row.visibility ?? "",
            conversation: row.conversation ?? "",
            sources: row.sources as string[],
            actors: row.actors ?? "",
            at: row.created_at,
            forgotten: row.forgotten_at === null ? null : { at: row.forgotten_at, by: row.forgotten_by ?? "" },
          },
        ],
  );
}
