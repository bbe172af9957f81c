/** What the answer of a probe says about the write that it looked for. Pure. */
import type { Seen } from "./journal.ts";

export type ProbeAnswer = {
  readonly kind: "confirmed" | "failed" | "unknown";
  readonly observation: string;
  /** The observation leaves something of the answer out. */
  readonly partial?: boolean;
  /** The service said that there is nothing at that place. */
  readonly absent?: boolean;
};

/** `found`: text that a hit has. Empty text is in every answer, so it proves nothing. */
export function seenIn(answer: ProbeAnswer, found: string): Seen {
  if (found.trim() === "") return "inconclusive";
  if (answer.kind === "failed") return answer.absent === true ? "absent" : "inconclusive";
  if (answer.kind === "unknown") return "inconclusive";
  if (answer.observation.includes(found)) return "landed";
  return answer.partial === true ? "inconclusive" : "absent";
}
