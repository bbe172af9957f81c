/** One effect with the call that made it, whatever run of the conversation it belongs to: for a look, and for an undo. */
import { type State, storedState } from "#rules/state.ts";
import type { Runner } from "./database.ts";
import type { RecordedEffect } from "./reads.ts";
import { statement } from "./statement.ts";
import { TIMES_UNSENT } from "./unsent.ts";

const readEffectStatement = statement({
  name: "read_effect",
  params: { effect: "uuid", conversation: "uuid" },
  columns: {
    id: "uuid",
    call_id: "uuid",
    kind: "text",
    target: "text",
    state: "text",
    attempt: "int4",
    nonce: "uuid",
    keyed: "bool",
    observation: "text?",
    receipt: "jsonb?",
    prior: "jsonb?",
    post: "jsonb?",
    wait_ms: "int8",
    unsent: "int4",
    tool: "text",
    args: "jsonb",
    undo: "uuid?",
    undo_state: "text?",
    undo_observation: "text?",
  },
  text: `
    select e.id, e.call_id, e.kind, e.target, e.state, e.attempt, e.nonce, e.keyed, e.observation, e.receipt, e.prior, e.post,
           greatest(0, ceil(extract(epoch from coalesce(e.settle_at, pawl_now()) - pawl_now()) * 1000))::bigint as wait_ms,
           ${TIMES_UNSENT} as unsent, c.tool, c.args, u.id as undo, u.state as undo_state, u.observation as undo_observation
    from commitment_effects e join runs r on r.id = e.run_id join tool_calls c on c.id = e.call_id
    left join commitment_effects u on u.compensates = e.id and u.state <> 'failed'
    where e.id = :effect and r.conversation_id = :conversation`,
});

export type EffectWithCall = RecordedEffect & {
  readonly receipt: Readonly<Record<string, unknown>> | null;
  /** What was there before and after it; null: nobody looked, or saw it. */
  readonly prior: State | null;
  readonly post: State | null;
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** The effect that undoes it, if there is one that did not fail. */
  readonly undo: { readonly id: string; readonly state: string; readonly observation: string | null } | null;
};

/** Null: the conversation knows no such effect. */
export async function readEffect(
  db: Runner,
  which: { readonly effect: string; readonly conversation: string },
): Promise<EffectWithCall | null> {
  const [row] = await db.rows(readEffectStatement, which);
  if (row === undefined) return null;
  return {
    id: row.id,
    callId: row.call_id,
    kind: row.kind,
    target: row.target,
    state: row.state as RecordedEffect["state"],
    attempt: row.attempt,
    nonce: row.nonce,
    keyed: row.keyed,
    observation: row.observation,
    waitMs: row.wait_ms,
    unsent: row.unsent,
    receipt: row.receipt as EffectWithCall["receipt"],
    prior: storedState(row.prior),
    post: storedState(row.post),
    tool: row.tool,
    args: row.args as EffectWithCall["args"],
    undo: row.undo === null ? null : { id: row.undo, state: row.undo_state ?? "", observation: row.undo_observation },
  };
}
