/**
 * What the tool `undo` does when its turn comes: the write is read from its row, and the declared tool gets arguments made
 * from that row. It is an effect on the same target, which points at the one that it undoes.
 */
import { type EffectWithCall, readEffect } from "#ledger/effect-record.ts";
import type { Evidence } from "#rules/provenance.ts";
import { shownState, valueOf } from "#rules/state.ts";
import { fillArguments } from "#rules/template.ts";
import type { Action } from "./action.ts";
import { canonicalHash } from "./canonical.ts";
import type { EngineDeps } from "./deps.ts";
import { sourceOf } from "./provenance.ts";
import { keepsState, lookAtState, readingOf, writtenBy } from "./state.ts";
import type { Turn } from "./turn.ts";
import { UNDO } from "./undo-tool.ts";

export type Undoing =
  /** `note`: what has to be said with its result. */
  | { readonly kind: "act"; readonly action: Action; readonly note?: string }
  /** It is undone already: this is what was recorded of that. */
  | { readonly kind: "done"; readonly observation: string }
  /** An earlier undo of it has no known outcome. */
  | { readonly kind: "open"; readonly effectId: string }
  /** `source`: of what it tells, where that came from outside. */
  | { readonly kind: "refused"; readonly why: string; readonly source?: Evidence };

const refused = (why: string, source?: Evidence): Undoing => ({
  kind: "refused",
  why: `Not undone: ${why}`,
  ...(source === undefined ? {} : { source }),
});

const UNCOMPARED =
  "(What was there right after the write is not recorded, so nobody could say whether somebody else has changed it since.)";

const STATES: Readonly<Record<string, string>> = {
  failed: "it did not take place, so there is nothing to undo.",
  unknown: "its outcome is not known. Go and look whether it took place first.",
  dispatched: "it is still under way.",
};

/** What is sent for an undo that has crossed already, or may now. `resumed`: it has. */
export async function undoing(
  deps: Pick<EngineDeps, "db" | "log" | "newId">,
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
  const undo = undoOf(turn, write);
  return resumed || undo.kind !== "act" ? undo : compared(deps, turn, write, undo);
}

/** Taken back is only what is still as the write left it: else somebody else's work would go with it. */
async function compared(
  deps: Pick<EngineDeps, "log" | "newId">,
  turn: Turn,
  write: EffectWithCall,
  undo: Extract<Undoing, { kind: "act" }>,
): Promise<Undoing> {
  const tool = turn.toolset.all.get(write.tool);
  const state = tool === undefined ? undefined : keepsState(tool);
  if (state === undefined) return undo;
  if (write.post === null) return { ...undo, note: UNCOMPARED };
  const reading = readingOf(turn, state, writtenBy(write.args, write.id, write.receipt));
  const now = await lookAtState(deps, turn, reading, state.path);
  if (reading === null || now === null) {
    const why = `${state.tool} could not read what is there now, so nobody can say whether it is still as the write left it. Look yourself, or try again later.`;
    return refused(why);
  }
  if (canonicalHash(now) === canonicalHash(write.post)) return undo;
  const source = sourceOf(reading.tool, { tool: reading.tool.name, args: reading.args }, turn.callRun, deps.newId);
  return refused(`the world has moved since: it was ${shownState(write.post)}, it is ${shownState(now)}.`, source);
}

function undone(undo: NonNullable<EffectWithCall["undo"]>): Undoing {
  return undo.state === "confirmed"
    ? { kind: "done", observation: undo.observation ?? "" }
    : { kind: "open", effectId: undo.id };
}

/** What an undo of a write that took place would send. */
export function undoOf(
  turn: Turn,
  write: Pick<EffectWithCall, "id" | "tool" | "args" | "target" | "receipt" | "prior">,
): Undoing {
  const compensation = turn.toolset.all.get(write.tool)?.compensate;
  if (compensation === undefined) return refused(`the Agent declares no way to undo ${write.tool}.`);
  const tool = turn.tools.get(compensation.tool);
  if (tool === undefined) return refused(`${compensation.tool}, which would undo it, is not offered here.`);
  const prior = valueOf(write.prior);
  const known = { ...writtenBy(write.args, write.id, write.receipt), ...(prior === undefined ? {} : { prior }) };
  const filled = fillArguments(compensation.arguments, known);
  if (!filled.ok) return refused(`{${filled.missing}} of the declared arguments is not known for this write.`);
  const parsed = tool.parse(filled.value);
  if (!parsed.ok) return refused(`the declared arguments do not fit ${tool.name}. ${parsed.message}`);
  return {
    kind: "act",
    action: { tool, args: parsed.value, target: write.target, compensates: write.id },
  };
}
