/**
 * What the tool `undo` does when its turn comes: the write is read from its row, and the declared tool gets arguments made
 * from that row. It is an effect on the same target, which points at the one that it undoes.
 */
import { type EffectWithCall, readEffect } from "#ledger/effect-record.ts";
import { fillArguments } from "#rules/template.ts";
import type { Action } from "./action.ts";
import type { EngineDeps } from "./deps.ts";
import type { Turn } from "./turn.ts";
import { UNDO } from "./undo-tool.ts";

export type Undoing =
  | { readonly kind: "act"; readonly action: Action }
  /** It is undone already: this is what was recorded of that. */
  | { readonly kind: "done"; readonly observation: string }
  /** An earlier undo of it has no known outcome. */
  | { readonly kind: "open"; readonly effectId: string }
  | { readonly kind: "refused"; readonly why: string };

const refused = (why: string): Undoing => ({ kind: "refused", why: `Not undone: ${why}` });

const STATES: Readonly<Record<string, string>> = {
  failed: "it did not take place, so there is nothing to undo.",
  unknown: "its outcome is not known. Go and look whether it took place first.",
  dispatched: "it is still under way.",
};

/** What is sent for an undo that has crossed already, or may now. `resumed`: it has. */
export async function undoing(
  deps: Pick<EngineDeps, "db">,
  turn: Turn,
  effectId: string,
  resumed = false,
): Promise<Undoing> {
  const write = await readEffect(deps.db, { effect: effectId, conversation: turn.run.conversationId });
  if (write === null || write.kind === "reply") return refused("this conversation knows no such effect.");
  if (write.tool === UNDO) return refused("that effect is an undo itself. Do the thing again instead.");
  const open = STATES[write.state];
  if (open !== undefined) return refused(open);
  if (!resumed && write.undo !== null) return undone(write.undo);
  return undoOf(turn, write);
}

function undone(undo: NonNullable<EffectWithCall["undo"]>): Undoing {
  return undo.state === "confirmed"
    ? { kind: "done", observation: undo.observation ?? "" }
    : { kind: "open", effectId: undo.id };
}

/** What an undo of a write that took place would send. */
export function undoOf(
  turn: Turn,
  write: Pick<EffectWithCall, "id" | "tool" | "args" | "target" | "receipt">,
): Undoing {
  const compensation = turn.toolset.all.get(write.tool)?.compensate;
  if (compensation === undefined) return refused(`the Agent declares no way to undo ${write.tool}.`);
  const tool = turn.tools.get(compensation.tool);
  if (tool === undefined) return refused(`${compensation.tool}, which would undo it, is not offered here.`);
  const result = write.receipt?.["result"];
  const filled = fillArguments(compensation.arguments, { args: write.args, effectId: write.id, result });
  if (!filled.ok) return refused(`{${filled.missing}} of the declared arguments is not known for this write.`);
  const parsed = tool.parse(filled.value);
  if (!parsed.ok) return refused(`the declared arguments do not fit ${tool.name}. ${parsed.message}`);
  return {
    kind: "act",
    action: { tool, args: parsed.value, target: write.target, compensates: write.id },
  };
}
