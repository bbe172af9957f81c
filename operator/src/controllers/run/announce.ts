/** Events for what a person would want to see in `kubectl describe run`: a few per Run, made from two statuses. Pure. */
import type { RunStatus } from "@pawl/crds";
import { conditionOf, isFinished } from "./conditions.ts";

export type Announcement = {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly action: string;
  readonly note: string;
};

/** At most one per step of a Run's life: four over the whole of it, so that its API writes stay under ten; and two per approval or question. */
/** `expired`: requests that nobody decided or answered in time. Who did is told where that is taken in. */
export function announcements(
  before: RunStatus | undefined,
  after: RunStatus,
  expired: readonly string[] = [],
): Announcement[] {
  const list: Announcement[] = [];
  if (before?.startedAt === undefined && after.startedAt !== undefined) {
    list.push({ type: "Normal", reason: "TurnStarted", action: "Claim", note: "a worker has begun the turn" });
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
