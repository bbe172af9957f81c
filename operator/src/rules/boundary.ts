/**
 * The commit boundary: `buffering` until the first external effect, `committed` for ever after (I3). The reply slot is
 * a fact of its own: a tool that crossed does not take it, the reply takes over the cause, and after the reply nothing
 * crosses. `ledger/effects.ts` repeats this in SQL.
 */
import { EFFECTS, type JournaledKind } from "./effects.ts";

export const BOUNDARIES = ["buffering", "committed_by_tool", "committed_by_reply"] as const;
export type Boundary = (typeof BOUNDARIES)[number];
export type Crossing = "tool" | "reply";

/** Where a crossing leads, or that the reply has already left. */
export const BOUNDARY = {
  buffering: { tool: "committed_by_tool", reply: "committed_by_reply" },
  committed_by_tool: { tool: "committed_by_tool", reply: "committed_by_reply" },
  committed_by_reply: { tool: "refuse", reply: "refuse" },
} as const satisfies Record<Boundary, Record<Crossing, Boundary | "refuse">>;

export const crossingOf = (kind: JournaledKind): Crossing => (EFFECTS[kind].replySlot ? "reply" : "tool");

export function boundaryOf(run: { committedAt: unknown; replyAt: unknown }): Boundary {
  if (run.replyAt !== null) return "committed_by_reply";
  return run.committedAt === null ? "buffering" : "committed_by_tool";
}

/** What a stop does, by where the turn stands: after the boundary only the reply may follow, after the reply nothing. */
export const STOP = {
  buffering: "cancelled",
  committed_by_tool: "stopping",
  committed_by_reply: "nothing_left",
} as const satisfies Record<Boundary, "cancelled" | "stopping" | "nothing_left">;

/** What a crossing is refused for, in the order in which it is asked; the locked row answers each. */
export type CrossingFacts = {
  readonly leaseHeld: boolean;
  readonly live: boolean;
  readonly boundary: Boundary;
  readonly stopRequested: boolean;
  readonly newerInput: boolean;
  readonly held: boolean;
};
export type CrossingVerdict = "crossed" | "fenced" | "ended" | "reply_sent" | "stopping" | "stale_input" | "hold";

export function crossingVerdict(facts: CrossingFacts, crossing: Crossing): CrossingVerdict {
  if (!facts.live) return "ended";
  if (!facts.leaseHeld) return "fenced";
  if (BOUNDARY[facts.boundary][crossing] === "refuse") return "reply_sent";
  if (facts.stopRequested && crossing !== "reply") return "stopping";
  // A person who asked for the end has said all that this turn needs to hear.
  if (facts.stopRequested) return "crossed";
  if (facts.newerInput) return "stale_input";
  if (facts.held) return "hold";
  return "crossed";
}
