/**
 * A turn that puts right what an earlier one did begins with a note about that: read from rows, worded once, and kept with
 * the first request that contained it, so that every later request of the turn begins with the same words.
 */
import { readReconciled, readReconcileNote, type ReconciledEffect } from "#ledger/reconcile.ts";
import { type LateEffect, reconcileNote } from "#rules/reconcile.ts";
import type { EngineDeps } from "./deps.ts";
import type { Turn } from "./turn.ts";
import { undoOf } from "./undo.ts";
import { UNDO } from "./undo-tool.ts";

function undoWord(turn: Turn, effect: ReconciledEffect): LateEffect["undo"] {
  if (effect.undoState !== null) return effect.undoState === "confirmed" ? "undone" : "open";
  const can = turn.tools.has(UNDO) && effect.tool !== UNDO && undoOf(turn, effect).kind === "act";
  return can ? "offered" : "none";
}

/** Costs nothing in a turn that puts nothing right. */
export async function beginReconciling(deps: Pick<EngineDeps, "db">, turn: Turn): Promise<void> {
  const { id, conversationId, reconciles } = turn.run;
  if (reconciles === null) return;
  const effects = await readReconciled(deps.db, { conversation: conversationId, request: reconciles });
  // What the note tells of their answers came from outside.
  turn.saw(effects.map(({ evidence }) => ({ restsOn: evidence })));
  const kept = await readReconcileNote(deps.db, id);
  const text = kept ?? reconcileNote(effects.map((effect) => ({ ...effect, undo: undoWord(turn, effect) })));
  turn.reconciling = { text, isKept: kept !== null };
}
