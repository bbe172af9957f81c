/**
 * What to do about a Decision, and how its outcome is worded. Pure. Whether it counts is the ledger's to say; what is
 * refused here could not even be asked there.
 */
import type { Checked, DecisionReason, DecisionSpec, DecisionState, DecisionStatus } from "@pawl/crds";
import type { KubeObject } from "#kube/resources.ts";
import type { Decided, Verdict } from "#ledger/approvals.ts";
import type { Answer, Answered } from "#ledger/questions.ts";
import type { Resolved, Resolution } from "#ledger/effects.ts";
import { redactTokens } from "#rules/secrets.ts";
import { hasNul, instant, line } from "../text.ts";

/** How long a Decision stays to be read once it has been looked at. */
export const KEEP_MS = 24 * 60 * 60 * 1_000;
const MAX_MESSAGE_BYTES = 256;

export type DecisionFacts = {
  readonly object: KubeObject;
  readonly spec: Checked<DecisionSpec>;
  readonly enabled: boolean;
  /** Whose the Agent of its Run is. */
  readonly holder: "ours" | "nobody" | "other";
  readonly namespaceUid: string;
  /** The Run that it names, as it is now. */
  readonly run: KubeObject | undefined;
  readonly now: Date;
};

export type Outcome = {
  readonly state: DecisionState;
  readonly reason: DecisionReason;
  readonly message: string;
};

/** The effect must be one of the Run's: that is what its author may decide about. */
export type Settling = Resolution & { readonly namespaceUid: string; readonly run: string };

export type DecisionAction =
  /** Not ours to speak about. */
  | { readonly do: "nothing" }
  /** It was looked at; goes after so many milliseconds (0: now). */
  | { readonly do: "keep"; readonly leftMs: number }
  | { readonly do: "say"; readonly outcome: Outcome }
  | { readonly do: "decide"; readonly verdict: Verdict }
  | { readonly do: "answer"; readonly answer: Answer }
  | { readonly do: "settle"; readonly settling: Settling };

const refused = (reason: DecisionReason, message: string): DecisionAction => ({
  do: "say",
  outcome: { state: "Refused", reason, message },
});

export const statusOf = (object: KubeObject): DecisionStatus | undefined =>
  object["status"] as DecisionStatus | undefined;

function keep({ object, now }: DecisionFacts): DecisionAction {
  const at = new Date(statusOf(object)?.at ?? object.metadata.creationTimestamp ?? now).getTime();
  return { do: "keep", leftMs: Math.max(0, at + KEEP_MS - now.getTime()) };
}

/** What is asked of the ledger, in its own words. */
function asked(facts: DecisionFacts, spec: DecisionSpec, actor: string): DecisionAction {
  const { request, verdict } = spec;
  const reason = spec.reason === undefined ? null : redactTokens(spec.reason);
  const { name, uid } = spec.subject;
  if (verdict === "Landed" || verdict === "NotLanded") {
    const resolution = { effectId: request, landed: verdict === "Landed", by: actor, reason };
    return { do: "settle", settling: { ...resolution, namespaceUid: facts.namespaceUid, run: name } };
  }
  const decision = facts.object.metadata.uid ?? "";
  const subject = { namespaceUid: facts.namespaceUid, name, ...(uid === undefined ? {} : { uid }) };
  if (verdict === "Answer") {
    const text = redactTokens(spec.text ?? "");
    return {
      do: "answer",
      answer: { request, decision, subject, actor: { connector: "kubernetes", extId: actor }, text },
    };
  }
  return {
    do: "decide",
    verdict: {
      request,
      decision,
      subject,
      actor: { connector: "kubernetes", extId: actor, groups: spec.groups ?? [] },
      approve: verdict === "Approve",
      hash: spec.hash ?? null,
      reason,
    },
  };
}

export function decideDecision(facts: DecisionFacts): DecisionAction {
  const { object, spec, run } = facts;
  if (object.metadata.deletionTimestamp !== undefined) return { do: "nothing" };
  if (facts.holder === "other" || (!facts.enabled && facts.holder !== "ours")) return { do: "nothing" };
  if (statusOf(object)?.state !== undefined) return keep(facts);
  if (!spec.ok) return refused("Invalid", spec.problems.map(({ path, message }) => `${path}: ${message}`).join("; "));
  if (hasNul(spec.value)) return refused("Invalid", "spec holds a NUL character, which the ledger cannot store");
  const { subject, actor } = spec.value;
  if (actor === undefined) {
    const write = "this cluster does not fill it in, so write your own user name (kubectl auth whoami)";
    return refused("ActorMissing", `spec.actor is missing: ${write}, in a new Decision`);
  }
  if (subject.kind !== "Run") return refused("NotYet", "this version of Pawl has no WorkGraphs to decide about");
  if (run === undefined) return refused("RunNotFound", `there is no Run ${subject.name} in this namespace`);
  if (subject.uid !== undefined && subject.uid !== run.metadata.uid) {
    return refused("OtherRun", `the Run ${subject.name} is another one now: look at it, and decide about that`);
  }
  return asked(facts, spec.value, actor);
}

const NOT_FOUND: Outcome = {
  state: "Refused",
  reason: "RequestNotFound",
  message: "its Run has no such request: take request and hash from status.waiting of the Run",
};

const LATE = {
  AlreadyDecided: "it was decided before",
  Expired: "nobody decided in time; the agent was told that it did not run",
  Withdrawn: "newer input came first; the call was not run",
  TurnEnded: "the turn that asked has ended",
} as const;

const REFUSED = {
  HashDiffers: "the hash is not that of the call that waits: look at status.waiting of the Run, and decide about that",
  RequesterMayNotApprove:
    "you are one of those who asked for this, so somebody else must approve it (approvals.requesterMayApprove of the Agent)",
  NotAnApprover: "the Agent's approvals.approvers name neither you nor a group of yours",
} as const;

export function decided(answer: Decided): Outcome {
  switch (answer.kind) {
    case "approved":
      return { state: "Applied", reason: "Approved", message: "the call runs, once, exactly as it was shown" };
    case "rejected":
      return { state: "Applied", reason: "Rejected", message: "the call does not run; the agent is told, and by whom" };
    case "refused":
      return { state: "Refused", reason: answer.why, message: REFUSED[answer.why] };
    case "late": {
      const by = answer.by === null ? "" : ` by ${answer.by} (${answer.state})`;
      return { state: "Late", reason: answer.over, message: `${LATE[answer.over]}${by}` };
    }
    case "unknown":
      return NOT_FOUND;
  }
}

const UNANSWERABLE = {
  AlreadyAnswered: "it was answered before",
  Expired: "nobody answered in time, and its turn ended",
  TurnEnded: "the turn that asked has ended",
} as const;

export function answered(answer: Answered): Outcome {
  switch (answer.kind) {
    case "answered":
      return { state: "Applied", reason: "Answered", message: "the agent goes on with this answer" };
    case "late": {
      const by = answer.by === null ? "" : ` by ${answer.by}`;
      const message = `${UNANSWERABLE[answer.over]}${by}: to say something all the same, apply a Run in its conversation`;
      return { state: "Late", reason: answer.over, message };
    }
    case "unknown":
      return { ...NOT_FOUND, message: "its Run asks no such thing: take request from status.waiting of the Run" };
  }
}

export function settled(answer: Resolved, by: string, landed: boolean): Outcome {
  const reason = landed ? "Landed" : "NotLanded";
  switch (answer.kind) {
    case "resolved":
      return { state: "Applied", reason, message: `recorded: ${by} says what became of the change` };
    case "already":
    case "conflict": {
      const state = answer.state === "confirmed" ? "it took place" : "it did not take place";
      // Said by this very person before: our own word, whose answer was lost.
      if (answer.kind === "already" && answer.resolvedBy === by)
        return settled({ kind: "resolved", target: "" }, by, landed);
      return {
        state: "Late",
        reason: "AlreadySettled",
        message: `known before: ${state} (${answer.resolvedBy ?? "its sender saw the answer"})`,
      };
    }
    case "too_early":
      return {
        state: "Refused",
        reason: "TooEarly",
        message: `its sender may still be at it until ${instant(answer.settleAt)}: look after that, and say it again in a new Decision`,
      };
    case "unknown_effect":
      return { ...NOT_FOUND, message: "its Run has made no such change: pawl effects names the ids" };
  }
}

export const statusFor = ({ state, reason, message }: Outcome, now: Date): DecisionStatus => ({
  state,
  reason,
  message: line(message, MAX_MESSAGE_BYTES),
  at: instant(now),
});
