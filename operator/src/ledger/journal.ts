/** The journal as a list, for a person who looks for what nobody knows. */
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const listEffectsStatement = statement({
  name: "list_effects",
  params: { namespace: "text", every: "bool", most: "int4" },
  columns: {
    id: "uuid",
    object: "text?",
    namespace: "text",
    agent: "text",
    kind: "text",
    target: "text",
    state: "text",
    attempt: "int4",
    since: "timestamptz",
    resolved_by: "text?",
    approved_by: "text?",
  },
  // A run is known by the Run object that opened it; those that wait longest come last, next to the prompt.
  text: `
    select e.id, o.name as object, a.namespace, a.name as agent, e.kind, e.target, e.state, e.attempt,
           coalesce(e.settled_at, e.dispatched_at) as since, e.resolved_by, p.decided_by as approved_by
    from commitment_effects e join runs r on r.id = e.run_id join agents a on a.id = r.agent_id
    left join approvals p on p.call_id = e.call_id and p.state = 'approved'
    left join lateral (
      select k.object_name as name from run_triggers t join message_events m on m.id = t.event_id
      join run_keys k on k.event_id = m.id where t.run_id = r.id order by m.seq limit 1) o on true
    where a.namespace = :namespace and (:every or e.state in ('dispatched', 'unknown'))
    order by since desc, e.id limit :most`,
});

const effectOfRunStatement = statement({
  name: "effect_of_run",
  params: { effect: "uuid", namespace_uid: "text", object: "text" },
  columns: { known: "bool" },
  text: `
    select exists (
      select from commitment_effects e join run_triggers t on t.run_id = e.root_id join run_keys k on k.event_id = t.event_id
      where e.id = :effect and k.namespace_uid = :namespace_uid and k.object_name = :object) as known`,
});

const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Whether this Run made it: who may decide about one Run says nothing about another's. */
export async function isEffectOf(
  db: Runner,
  { effectId, namespaceUid, run }: { effectId: string; namespaceUid: string; run: string },
): Promise<boolean> {
  if (!ID.test(effectId)) return false;
  return (await db.one(effectOfRunStatement, { effect: effectId, namespace_uid: namespaceUid, object: run })).known;
}

export type ListedEffect = {
  readonly id: string;
  /** The Run object; null when the message came another way. */
  readonly object: string | null;
  readonly namespace: string;
  readonly agent: string;
  readonly kind: string;
  readonly target: string;
  readonly state: string;
  readonly attempt: number;
  /** Of its outcome, or of its last sending while it has none. */
  readonly since: Date;
  readonly resolvedBy: string | null;
  /** Who let its call run; null: nobody had to. */
  readonly approvedBy: string | null;
};

/** Newest first, at most `most`. Without `every` only those that are in flight or whose outcome nobody knows. */
export async function listEffects(
  db: Runner,
  which: { readonly namespace: string; readonly every: boolean; readonly most: number },
): Promise<ListedEffect[]> {
  const rows = await db.rows(listEffectsStatement, which);
  return rows.map(({ resolved_by, approved_by, ...row }) => ({
    ...row,
    resolvedBy: resolved_by,
    approvedBy: approved_by,
  }));
}
