/**
 * The effect journal's decisions: what stands in the way of a crossing, and what may be done about an effect whose
 * outcome nobody saw. Pure; the rows come from `ledger/effects.ts`.
 */
export type JournalRow = {
  readonly id: string;
  readonly nonce: string;
  readonly callId: string;
  readonly kind: string;
  readonly target: string;
  readonly argsHash: string;
  readonly repeat: number;
  readonly state: "dispatched" | "confirmed" | "unknown";
  readonly observation: string | null;
  /** Until `settle_at`; 0 = passed. */
  readonly waitMs: number;
};

export type OccupiedBy =
  /** Our own row: the reply of the first run of the statement was lost. */
  | { readonly kind: "already" }
  /** The same call was confirmed in this scope: here is what it returned. */
  | { readonly kind: "replayed"; readonly effectId: string; readonly observation: string }
  /** Another effect on this target is still under way. */
  | { readonly kind: "busy"; readonly effectId: string; readonly waitMs: number }
  /** Another effect on this target has no known outcome. */
  | { readonly kind: "ambiguous"; readonly effectId: string };

/**
 * Rows in order of their outcome (oldest first), all of this scope, none failed.
 * The same call is answered from its row, unless another effect on its target was confirmed since (A-B-A): then it is
 * a new effect, told by `repeat`.
 */
export function occupied(
  rows: readonly JournalRow[],
  wanted: { readonly effectId: string; readonly nonce: string; readonly target: string; readonly argsHash: string },
): OccupiedBy | { readonly kind: "repeat"; readonly repeat: number } {
  const own = rows.find((row) => row.id === wanted.effectId);
  if (own !== undefined) return { kind: "already" };
  const open = rows.find((row) => row.target === wanted.target && row.state !== "confirmed");
  if (open !== undefined) {
    return open.state === "dispatched"
      ? { kind: "busy", effectId: open.id, waitMs: open.waitMs }
      : { kind: "ambiguous", effectId: open.id };
  }
  const same = rows.filter((row) => row.argsHash === wanted.argsHash && row.kind !== "reply");
  const last = same.at(-1);
  if (last === undefined) return { kind: "ambiguous", effectId: rows.at(-1)?.id ?? wanted.effectId };
  const since = rows.slice(rows.indexOf(last) + 1);
  if (since.some((row) => row.target === last.target && row.argsHash !== last.argsHash)) {
    return { kind: "repeat", repeat: Math.max(...same.map((row) => row.repeat)) + 1 };
  }
  return { kind: "replayed", effectId: last.id, observation: last.observation ?? "" };
}

/** What to do about an effect that left, by what is known of it. */
export type Settling =
  | { readonly kind: "done" }
  /** Its sender may still be alive; nobody looks or sends before that. */
  | { readonly kind: "wait"; readonly ms: number }
  | { readonly kind: "send_again" }
  | { readonly kind: "give_up" };

/** Sends of one effect under its key, each after the settle time of the one before: minutes, longer than a restart. */
export const MAX_EFFECT_ATTEMPTS = 5;

export function settling(effect: {
  readonly state: "dispatched" | "confirmed" | "failed" | "unknown";
  readonly keyed: boolean;
  readonly attempt: number;
  readonly waitMs: number;
  readonly stopping: boolean;
}): Settling {
  if (effect.state === "confirmed" || effect.state === "failed") return { kind: "done" };
  if (effect.waitMs > 0) return { kind: "wait", ms: effect.waitMs };
  if (effect.keyed && effect.attempt < MAX_EFFECT_ATTEMPTS && !effect.stopping) return { kind: "send_again" };
  return { kind: "give_up" };
}

/**
 * The state that a sender's outcome gives the effect. "It was refused", "nothing was sent" speak for one send only:
 * after an earlier one whose answer was lost they prove nothing about the effect.
 */
export function stateAfter<S extends "confirmed" | "failed" | "unknown">(outcome: S, attempt: number): S | "unknown" {
  return outcome === "failed" && attempt > 1 ? "unknown" : outcome;
}
