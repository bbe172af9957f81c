/** Does a message look as if more of it is coming? By visible signs only, so that a person can tell why a turn waits. Pure. */
import type { Policy } from "./interrupt.ts";

/** Words that nobody ends a thought with. English and German, because a wrong guess only costs a few seconds. */
const CONJUNCTIONS = new Set(
  "and or but because so that which then if when while although also plus und oder aber weil dass denn wenn falls damit sowie auch".split(
    " ",
  ),
);
/** The quiet time of an unfinished message is so many times as long: somebody who goes on writing needs seconds, not one. */
export const UNFINISHED_FACTOR = 3;

export function isUnfinished(text: string): boolean {
  // An open code fence: what follows is the code.
  if ((text.match(/^\s*(```|~~~)/gm) ?? []).length % 2 === 1) return true;
  const end = text.trimEnd();
  if (/(\.\.\.|…|[,:;])$/.test(end)) return true;
  const word = /([\p{L}]+)$/u.exec(end)?.[1];
  return word !== undefined && CONJUNCTIONS.has(word.toLowerCase());
}

/** How long nothing more may come before the turn begins; never longer than the longest wait. */
export function quietMs(policy: Pick<Policy, "quietMs" | "maxWaitMs" | "adaptive">, text: string): number {
  const quiet = policy.adaptive && isUnfinished(text) ? policy.quietMs * UNFINISHED_FACTOR : policy.quietMs;
  return Math.min(quiet, policy.maxWaitMs);
}
