/** The Agent that `mailbox` talks to: waits as long as the others do, and never for longer than it says. */
import { type Policy, policyOf } from "../../operator/src/rules/interrupt.ts";
import { QUIET_MS, THINK_MS } from "./schedule.ts";
import type { Mode } from "./system.ts";

export const MAX_WAIT_MS = 1_000;

/** `who`: two people share the work, so either of them may change it. */
export const policy = (mode: Mode): Policy => ({
  ...policyOf(null),
  who: "thread_scoped",
  midTurn: mode,
  quietMs: QUIET_MS,
  maxWaitMs: MAX_WAIT_MS,
});

/** For the ledger, the machine's timers and a model that is asked what a message means. */
const SLACK_MS = 500;

/**
 * The longest that a message can wait for its answer. Queued: the turn at work, then its own window, then its own turn.
 * Joined: as often as a turn may begin anew, and what came after the bound waits for one more turn.
 */
export function boundMs(mode: Mode): number {
  const turn = MAX_WAIT_MS + THINK_MS;
  const { maxSupersessions } = policy(mode);
  return (mode === "enqueue" ? THINK_MS : (maxSupersessions + 1) * turn) + turn + SLACK_MS;
}
