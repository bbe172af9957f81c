/** Decision: what a person says about something that waits for him. Created once, never changed. */
import { z } from "zod";
import { matching, note, object, objectName, oneOf, set, text, time } from "./fields.ts";
import { type Rule, same, withRules } from "./rules.ts";
import { DECISION_STATES } from "./vocabulary.ts";

const unchanged: Rule = {
  cel: "self == oldSelf",
  message: "a Decision is said once and does not change: apply another one under a new name",
  holds: (self, old) => old === undefined || same(self, old),
};

/** What is approved is the exact thing that the person saw, and nothing that came after it. */
const approveNamesHash: Rule = {
  cel: "self.verdict != 'Approve' || has(self.hash)",
  message:
    "verdict: Approve needs hash: the one in status.waiting.hash of the Run, of the exact thing that you approve",
  fieldPath: ".hash",
  holds: (self) => self["verdict"] !== "Approve" || self["hash"] !== undefined,
};

const answerHasText: Rule = {
  cel: "(self.verdict == 'Answer') == has(self.text)",
  message: "text belongs to verdict: Answer, and only to it (why something is approved or rejected goes into reason)",
  fieldPath: ".text",
  holds: (self) => (self["verdict"] === "Answer") === (self["text"] !== undefined),
};

export const decisionSpec = withRules(
  object("Who says what about which request. Nothing in it can be changed.", {
    subject: object("What it is about.", {
      kind: oneOf(["Run", "WorkGraph"], "The kind of the object."),
      name: objectName("Its name, in the Decision's own namespace."),
      uid: text(64, "Its UID. Absent: whatever has that name now.").optional(),
    }),
    request: text(64, "The request, as in status.waiting.request; for Landed and NotLanded the effect's id."),
    verdict: oneOf(
      ["Approve", "Reject", "Answer", "Landed", "NotLanded"],
      "Approve, Reject: a call that waits. Answer: a question. Landed, NotLanded: what became of a change whose outcome nobody saw.",
    ),
    hash: matching(/^[0-9a-f]{64}$/, 64, "The hash of the exact thing, as in status.waiting.hash.").optional(),
    text: text(4_096, "The answer to a question.").optional(),
    reason: text(512, "Why, for those who read along; the agent is told why something was rejected.").optional(),
    actor: text(
      253,
      "The Kubernetes user who says this. Leave it out and it is filled in; nobody can name another.",
    ).optional(),
    groups: set(
      text(253, "A group."),
      256,
      "Groups of that user, for Agents that name approvers by group. Leave it out and it is filled in; nobody can name one that is not his.",
    ).optional(),
  }),
  [unchanged, approveNamesHash, answerHasText],
);

export const decisionStatus = object("What became of it. Written by Pawl only.", {
  state: oneOf(
    DECISION_STATES,
    "Applied: it counts. Late: it had been decided before, or the time was over. Refused: it may not decide this.",
  ).optional(),
  reason: note(64, "Why, in one CamelCase word.").optional(),
  message: note(256, "What happened and what to do, for a person.").optional(),
  at: time("When it was looked at.").optional(),
});

export type DecisionSpec = z.infer<typeof decisionSpec>;
export type DecisionStatus = z.infer<typeof decisionStatus>;
