/** Events for what a person would want to see in `kubectl describe run`: a few per Run, made from two statuses. Pure. */
import type { RunStatus } from "@pawl/crds";
import { conditionOf, isFinished } from "./conditions.ts";

export type Announcement = {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly action: string;
  readonly note: string;
};

/** What is said when a message is taken into the turn of another one, by the reason shown with `Folded`. */
const JOINED: Readonly<Record<string, { reason: string; action: string }>> = {
  Folded: { reason: "MessageFolded", action: "Fold" },
  Amended: { reason: "MessageAmended", action: "Amend" },
  Restarted: { reason: "TurnRestarted", action: "Restart" },
  AnswersQuestion: { reason: "QuestionAnswered", action: "Answer" },
  Stopping: { reason: "StopRequested", action: "Stop" },
};

export type Told = {
  /** Requests that nobody decided or answered in time. Who did is told where that is taken in. */
  readonly expired?: readonly string[];
  /** Less was done with the message than its agent asks for: why. */
  readonly downgraded?: string | null;
};

/**
 * At most one per step of a Run's life: four over the whole of it, so that its API writes stay under ten; two per
 * approval or question, one per restart. What the turn does that answers a message together with others is told on the Run that
 * opened it.
 */
export function announcements(before: RunStatus | undefined, after: RunStatus, told: Told = {}): Announcement[] {
  const list = after.answeredBy === undefined ? atWork(before, after, told.expired ?? []) : joined(before, after);
  const was = before?.interrupts?.last;
  const is = after.interrupts?.last;
  if (told.downgraded != null && (was?.done !== is?.done || was?.reason !== is?.reason)) {
    list.push({ type: "Normal", reason: "InterruptDowngraded", action: "Queue", note: told.downgraded });
  }
  if (!isFinished(before) && isFinished(after)) {
    const succeeded = conditionOf(after, "Succeeded")?.status === "True";
    list.push({
      type: succeeded ? "Normal" : "Warning",
      reason: conditionOf(after, "Accepted")?.status === "False" ? "NotAccepted" : "Finished",
      action: "Finish",
      note: `${after.reason ?? ""}: ${after.message ?? ""}`,
    });
  }
  return list;
}

function joined(before: RunStatus | undefined, after: RunStatus): Announcement[] {
  if (after.phase !== "Folded" || (before?.phase === "Folded" && before.reason === after.reason)) return [];
  const word = JOINED[after.reason ?? ""];
  return word === undefined ? [] : [{ type: "Normal", ...word, note: after.message ?? "" }];
}

function atWork(before: RunStatus | undefined, after: RunStatus, expired: readonly string[]): Announcement[] {
  const list: Announcement[] = [];
  if (before?.startedAt === undefined && after.startedAt !== undefined) {
    list.push({ type: "Normal", reason: "TurnStarted", action: "Claim", note: "a worker has begun the turn" });
  }
  if (after.supersededBy !== undefined && before?.supersededBy !== after.supersededBy) {
    const note = `restarted for ${after.supersededBy}, which is newer; nothing had been changed`;
    list.push({ type: "Normal", reason: "Superseded", action: "Restart", note });
  }
  list.push(...waits(before, after, expired));
  const [was, is] = [conditionOf(before, "Committed"), conditionOf(after, "Committed")];
  // When the answer itself is the first change, Finished says it.
  if (was?.status !== "True" && is?.status === "True" && after.boundary?.by !== "reply") {
    list.push({ type: "Normal", reason: "EffectCommitted", action: "Cross", note: is.message });
  }
  if ((before?.effects?.unknown ?? 0) === 0 && (after.effects?.unknown ?? 0) > 0) {
    const note = "nobody can prove or rule out that a change took place; the transcript names it";
    list.push({ type: "Warning", reason: "EffectUnknown", action: "Settle", note });
  }
  return list;
}

function waits(before: RunStatus | undefined, after: RunStatus, expired: readonly string[]): Announcement[] {
  const [was, is] = [before?.waiting, after.waiting];
  if (was?.request === is?.request) return [];
  const list: Announcement[] = [];
  if (was?.request !== undefined && expired.includes(was.request)) {
    const question = was.kind === "Question";
    const note = question
      ? `nobody answered in time (request ${was.request})`
      : `nobody decided about ${was.tool ?? "the call"} in time (request ${was.request})`;
    list.push({ type: "Warning", reason: question ? "QuestionExpired" : "ApprovalExpired", action: "Expire", note });
  }
  if (is !== undefined) {
    const reason = is.kind === "Question" ? "QuestionAsked" : "ApprovalRequested";
    list.push({ type: "Normal", reason, action: "Wait", note: after.message ?? "" });
  }
  return list;
}
