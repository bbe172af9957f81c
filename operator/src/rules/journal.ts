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
  /** Look whether it is there; that changes nothing. */
  | { readonly kind: "probe" }
  /** It was seen. */
  | { readonly kind: "landed" }
  | { readonly kind: "send_again" }
  /** It is certain that nothing took place, and it is not sent again. */
  | { readonly kind: "not_applied" }
  | { readonly kind: "give_up" };

/** Sends of one effect, each after the settle time of the one before: minutes, longer than a restart. */
export const MAX_EFFECT_ATTEMPTS = 5;

/** A call that was given up before its first byte crosses again, by the same guard; one that always is, is told of. */
export const crossesAnew = (unsent: number): boolean => unsent > 0 && unsent < MAX_EFFECT_ATTEMPTS;

/** Looks without an answer at one send of one effect: a service that is away for longer is told of as unknown. */
export const MAX_PROBES = 3;

/** What a look found. `inconclusive`: it gave no answer, or one that says nothing. */
export type Seen = "landed" | "absent" | "inconclusive";

export function settling(effect: {
  readonly state: "dispatched" | "confirmed" | "failed" | "unknown";
  readonly keyed: boolean;
  readonly attempt: number;
  readonly waitMs: number;
  readonly stopping: boolean;
  /** Can it be looked for, and does finding nothing prove anything? Null: no probe is declared. */
  readonly probe: { readonly absenceIsConclusive: boolean } | null;
  /** The looks at this send, oldest first. */
  readonly seen: readonly Seen[];
}): Settling {
  if (effect.state === "confirmed" || effect.state === "failed") return { kind: "done" };
  if (effect.waitMs > 0) return { kind: "wait", ms: effect.waitMs };
  const last = effect.seen.at(-1);
  if (last === "landed") return { kind: "landed" };
  // A look comes before a send even where there is a key: it never writes.
  const looksLeft = last === undefined || (last === "inconclusive" && effect.seen.length < MAX_PROBES);
  if (effect.probe !== null && looksLeft) return { kind: "probe" };
  const gone = last === "absent" && effect.probe?.absenceIsConclusive === true;
  const again = (effect.keyed || gone) && effect.attempt < MAX_EFFECT_ATTEMPTS && !effect.stopping;
  if (again) return { kind: "send_again" };
  return { kind: gone ? "not_applied" : "give_up" };
}

/**
 * The state that a sender's outcome gives the effect. "It was refused", "nothing was sent" speak for one send only:
 * after an earlier one whose answer was lost they prove nothing about the effect.
 */
export function stateAfter<S extends "confirmed" | "failed" | "unknown">(outcome: S, attempt: number): S | "unknown" {
  return outcome === "failed" && attempt > 1 ? "unknown" : outcome;
}
