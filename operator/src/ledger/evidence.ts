/** Provenance in SQL: where the results of a run came from, and the rows as statements that store results take them. */
import type { Audience, Evidence } from "#rules/provenance.ts";
import { ofRun } from "./chain.ts";
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

/** What a stored result says of where it came from. */
export type Provenance = {
  /** Its own row: the result came from outside. */
  readonly source?: Evidence;
  /** What it read that had come from outside before. */
  readonly restsOn?: readonly Evidence[];
};

export const evidenceIn = (results: readonly Provenance[]): Evidence[] =>
  results.flatMap(({ source, restsOn = [] }) => [...(source === undefined ? [] : [source]), ...restsOn]);

/** The columns of `jsonb_to_recordset` that carry it. */
export const PROVENANCE_COLUMNS = "evidence uuid[], source_id uuid, source text, audience text";

export const provenanceColumns = (result: Provenance) => ({
  evidence: [...new Set(evidenceIn([result]).map(({ id }) => id))],
  source_id: result.source?.id ?? null,
  source: result.source?.source ?? null,
  audience: result.source?.audience ?? null,
});

/** Rows made with the results of `calls`, a CTE with provenance columns and the call's id; `v` is the verdict. */
export const insertEvidence = (calls: string, where: string): string => `
      insert into tool_source_evidence (id, call_id, run_id, agent_id, conversation_id, source, audience, created_at)
      select c.source_id, c.id, v.id, v.agent_id, coalesce(v.conversation_id, (select conversation_id from runs where id = v.root_id)),
             c.source, c.audience, pawl_now()
      from verdict v, ${calls} where ${where} and c.source_id is not null`;

const readEvidenceStatement = statement({
  name: "read_evidence",
  params: { run: "uuid", turns: "int4" },
  columns: { id: "uuid", source: "text", audience: "text", agent_id: "uuid", conversation_id: "uuid?" },
  // Also what the replies of earlier turns were built on: they stand in the request. A row that is gone bars.
  text: `
    with earlier as (
      select p.id from runs r join runs p on p.conversation_id = r.conversation_id and not p.live and p.id <> r.id
      where r.id = :run and p.superseded_by is null and p.id <> all (r.inherits) order by p.queued_at desc, p.id desc limit :turns),
    ids as (
      select unnest(c.evidence) as id from tool_calls c where ${ofRun("c.run_id")}
      union
      select unnest(f.built_on) from earlier p join commitment_effects f on f.run_id = p.id and f.kind = 'reply')
    select i.id, coalesce(e.source, 'a source whose record is gone') as source, coalesce(e.audience, 'conversation') as audience,
           coalesce(e.agent_id, i.id) as agent_id, e.conversation_id
    from ids i left join tool_source_evidence e on e.id = i.id order by e.created_at, i.id`,
});

/** All that the requests of this run contain of the outside. */
export async function readEvidence(db: Runner, runId: string, turns: number): Promise<Evidence[]> {
  return (await db.rows(readEvidenceStatement, { run: runId, turns })).map((row) => ({
    id: row.id,
    source: row.source,
    audience: row.audience as Audience,
    agentId: row.agent_id,
    conversationId: row.conversation_id,
  }));
}
