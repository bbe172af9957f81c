/** What a turn that puts an earlier one right has to know of that: its writes, what took them back, what they rest on. */
import type { Evidence } from "#rules/provenance.ts";
import { type State, storedState } from "#rules/state.ts";
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const readReconciledStatement = statement({
  name: "read_reconciled",
  params: { conversation: "uuid", request: "uuid" },
  columns: {
    id: "uuid",
    tool: "text",
    args: "jsonb",
    target: "text",
    state: "text",
    receipt: "jsonb?",
    prior: "jsonb?",
    compensates: "uuid?",
    undo_state: "text?",
    evidence: "jsonb",
  },
  // Of every run that its request had. A source whose row is gone bars, as everywhere.
  text: `
    select e.id, c.tool, c.args, e.target, e.state, e.receipt, e.prior, e.compensates, u.state as undo_state,
           (select coalesce(jsonb_agg(jsonb_build_object('id', i.id, 'source', coalesce(s.source, 'a source whose record is gone'),
                'audience', coalesce(s.audience, 'conversation'), 'agentId', coalesce(s.agent_id, i.id), 'conversationId', s.conversation_id)), '[]')
              from unnest(c.evidence) i (id) left join tool_source_evidence s on s.id = i.id) as evidence
    from runs r join commitment_effects e on e.run_id = r.id join tool_calls c on c.id = e.call_id
    left join commitment_effects u on u.compensates = e.id and u.state <> 'failed'
    where r.conversation_id = :conversation and r.request_id = :request and e.kind <> 'reply' and e.state <> 'failed'
    order by e.dispatched_at, e.id`,
});

const readReconcileNoteStatement = statement({
  name: "read_reconcile_note",
  params: { run: "uuid" },
  columns: { note: "text" },
  text: `
    select s.request ->> 'reconciling' as note from runs r join run_steps s on s.run_id = any (r.inherits || r.id)
    where r.id = :run and s.request ->> 'reconciling' is not null order by s.ordinal limit 1`,
});

/** A write that took place, or of which nobody knows whether it did. */
export type ReconciledEffect = {
  readonly id: string;
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly target: string;
  readonly state: "confirmed" | "unknown" | "dispatched";
  readonly receipt: Readonly<Record<string, unknown>> | null;
  readonly prior: State | null;
  readonly compensates: string | null;
  /** Of the effect that undoes it; null: there is none. */
  readonly undoState: string | null;
  readonly evidence: readonly Evidence[];
};

/** Oldest first. */
export async function readReconciled(
  db: Runner,
  of: { readonly conversation: string; readonly request: string },
): Promise<ReconciledEffect[]> {
  return (await db.rows(readReconciledStatement, of)).map(({ undo_state, ...row }) => ({
    ...row,
    state: row.state as ReconciledEffect["state"],
    args: row.args as ReconciledEffect["args"],
    receipt: row.receipt as ReconciledEffect["receipt"],
    prior: storedState(row.prior),
    undoState: undo_state,
    evidence: row.evidence as readonly Evidence[],
  }));
}

/** As the first request of this turn contained it; null: none has been recorded. */
export async function readReconcileNote(db: Runner, runId: string): Promise<string | null> {
  const [row] = await db.rows(readReconcileNoteStatement, { run: runId });
  return row?.note ?? null;
}
