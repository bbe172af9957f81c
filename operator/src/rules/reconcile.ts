/**
 * The note with which a turn begins that puts right what an earlier one did: a message came too late for that one, and
 * what it had changed outside cannot be restarted, only taken back or told. Pure; the rows come from `ledger/reconcile.ts`.
 */
import { MAX_NAMED_EFFECTS } from "./limits.ts";
import { head } from "./text.ts";

export type LateEffect = {
  readonly id: string;
  readonly tool: string;
  readonly target: string;
  /** Those that did not take place are not told. */
  readonly state: "confirmed" | "unknown" | "dispatched";
  readonly receipt: unknown;
  /** The effect that it took back. */
  readonly compensates: string | null;
  /** offered: the tool `undo` takes it back · undone: that has happened · open: nobody knows whether · none: nothing does. */
  readonly undo: "offered" | "undone" | "open" | "none";
};

/** Characters of a receipt: enough for an id or an address. */
const MAX_RECEIPT = 300;
const MAX_TARGET = 200;

/** What others wrote never begins a line, so that it reads like nobody's words. */
const oneLine = (text: string, max: number): string => {
  const line = text.replaceAll(/\s+/g, " ");
  return line.length > max ? `${head(line, max)}…` : line;
};

const UNDO: Readonly<Record<LateEffect["undo"], string>> = {
  offered: "the tool undo takes it back, by this id",
  undone: "taken back already",
  open: "an undo of it has no known outcome: look first",
  none: "nothing takes it back: say so in your answer",
};

function line(effect: LateEffect): string {
  const what = `- effect ${effect.id}, ${oneLine(effect.tool, MAX_TARGET)} on ${oneLine(effect.target, MAX_TARGET)}`;
  if (effect.state !== "confirmed") return `${what}: outcome unknown; look whether it took place before anything else`;
  const receipt = effect.receipt === null ? "" : ` (${oneLine(JSON.stringify(effect.receipt), MAX_RECEIPT)})`;
  if (effect.compensates !== null) return `${what}: took effect ${effect.compensates} back${receipt}`;
  return `${what}: done${receipt}; ${UNDO[effect.undo]}`;
}

/** What nobody knows, and what cannot be taken back, comes first: it must not be left out of the answer. */
const rank = (effect: LateEffect): number => {
  if (effect.state !== "confirmed") return 0;
  return effect.undo === "none" && effect.compensates === null ? 1 : 2;
};

/** `effects`: of the earlier turn, oldest first. */
export function reconcileNote(effects: readonly LateEffect[]): string {
  if (effects.length === 0) {
    return "(From Pawl, not from a person: what follows came too late for an earlier turn of yours. Nothing that it tried to change took place.)";
  }
  const ordered = effects.toSorted((one, other) => rank(one) - rank(other));
  const rest = ordered.length - MAX_NAMED_EFFECTS;
  return [
    "(From Pawl, not from a person: what follows came too late for an earlier turn of yours, which had changed this outside:",
    ...ordered.slice(0, MAX_NAMED_EFFECTS).map(line),
    ...(rest > 0 ? [`- and ${rest} more`] : []),
    "Put it right as what follows asks: take back what no longer holds, or change it further, and do not repeat what still does. Say in your answer what you took back and what stays as it is.)",
  ].join("\n");
}
