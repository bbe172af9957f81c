import assert from "node:assert/strict";
import { checkDecision, DECISION_REASONS, decisionStatus } from "@pawl/crds";
import {
  answered,
  decided,
  decideDecision,
  type DecisionFacts,
  KEEP_MS,
  type Outcome,
  settled,
  statusFor,
} from "#controllers/decision/decide.ts";
import { at, NOW, runObject } from "./support.ts";

const HASH = "0123456789abcdef".repeat(4);
const REQUEST = "0190a8b0-0000-7000-8000-000000000001";

function facts(
  spec: Record<string, unknown> = {},
  changes: Partial<DecisionFacts> & { status?: unknown; metadata?: Record<string, unknown> } = {},
): DecisionFacts {
  const { status, metadata, ...rest } = changes;
  const object = {
    apiVersion: "pawl.dev/v1alpha1",
    kind: "Decision",
    metadata: {
      namespace: "demo",
      name: "yes",
      uid: "decision-uid",
      creationTimestamp: "2026-03-01T11:50:00Z",
      ...metadata,
    },
    spec: {
      subject: { kind: "Run", name: "one" },
      request: REQUEST,
      verdict: "Approve",
      hash: HASH,
      actor: "bob",
      ...spec,
    },
  };
  return {
    object: status === undefined ? object : { ...object, status },
    spec: checkDecision(JSON.parse(JSON.stringify(object))),
    enabled: true,
    holder: "ours",
    namespaceUid: "ns-uid",
    run: runObject(),
    now: NOW,
    ...rest,
  };
}

const reasonOf = (given: DecisionFacts): string => {
  const action = decideDecision(given);
  return action.do === "say" ? `${action.outcome.state}/${action.outcome.reason}` : action.do;
};

describe("a Decision", () => {
  it("is asked of the ledger with everything that it names, under its own UID", () => {
    const action = decideDecision(facts({ reason: "looked at it", groups: ["ops"] }));
    assert.deepEqual(action, {
      do: "decide",
      verdict: {
        request: REQUEST,
        decision: "decision-uid",
        subject: { namespaceUid: "ns-uid", name: "one" },
        actor: { connector: "kubernetes", extId: "bob", groups: ["ops"] },
        approve: true,
        hash: HASH,
        reason: "looked at it",
      },
    });
  });

  it("about a change of unknown outcome is a person's word about that change of that Run", () => {
    const action = decideDecision(facts({ verdict: "NotLanded", hash: undefined, reason: "not in the list" }));
    assert.deepEqual(action, {
      do: "settle",
      settling: {
        effectId: REQUEST,
        landed: false,
        by: "bob",
        reason: "not in the list",
        namespaceUid: "ns-uid",
        run: "one",
      },
    });
  });

  it("that answers is what its author says to that question, under the Decision's own UID", () => {
    const action = decideDecision(facts({ verdict: "Answer", hash: undefined, text: "blue" }));
    assert.deepEqual(action, {
      do: "answer",
      answer: {
        request: REQUEST,
        decision: "decision-uid",
        subject: { namespaceUid: "ns-uid", name: "one" },
        actor: { connector: "kubernetes", extId: "bob" },
        text: "blue",
      },
    });
  });

  it("keeps no credential of its answer", () => {
    const token = `ghp_${"a1B2".repeat(9)}`;
    const action = decideDecision(facts({ verdict: "Answer", hash: undefined, text: `use ${token}` }));
    assert.ok(action.do === "answer" && !action.answer.text.includes(token));
  });

  it("keeps no credential of its reason", () => {
    const token = `ghp_${"a1B2".repeat(9)}`;
    const action = decideDecision(facts({ verdict: "Reject", hash: undefined, reason: `leaks ${token}` }));
    assert.ok(action.do === "decide" && action.verdict.reason?.includes(token) === false);
  });

  for (const [what, given, expected] of [
    ["about a WorkGraph", facts({ subject: { kind: "WorkGraph", name: "one" } }), "Refused/NotYet"],
    ["without an actor", facts({ actor: undefined }), "Refused/ActorMissing"],
    ["that no schema would take", facts({ hash: "short" }), "Refused/Invalid"],
    ["with a NUL character", facts({ reason: "a\0b" }), "Refused/Invalid"],
    ["about a Run that is not there", facts({}, { run: undefined }), "Refused/RunNotFound"],
    [
      "about a Run that was made anew",
      facts({ subject: { kind: "Run", name: "one", uid: "old" } }),
      "Refused/OtherRun",
    ],
    ["about a Run of another installation", facts({}, { holder: "other" }), "nothing"],
    ["in a namespace that is not served", facts({}, { enabled: false, holder: "nobody" }), "nothing"],
    ["that is being deleted", facts({}, { metadata: { deletionTimestamp: "2026-03-01T11:59:00Z" } }), "nothing"],
  ] as const) {
    it(`${what} ends as ${expected}`, () => assert.equal(reasonOf(given), expected));
  }

  it("that was looked at is not asked again, stays a day, and then goes", () => {
    const status = { state: "Applied", reason: "Approved", at: at(-60).toISOString() };
    assert.deepEqual(decideDecision(facts({}, { status })), { do: "keep", leftMs: KEEP_MS - 60_000 });
    const old = { ...status, at: at(-KEEP_MS / 1_000).toISOString() };
    assert.deepEqual(decideDecision(facts({}, { status: old })), { do: "keep", leftMs: 0 });
  });

  it("has a sentence for every answer of the ledger, in words that its status can hold", () => {
    const outcomes: Outcome[] = [
      decided({ kind: "approved", runId: "r" }),
      decided({ kind: "rejected", runId: "r" }),
      ...(["HashDiffers", "RequesterMayNotApprove", "NotAnApprover"] as const).map((why) =>
        decided({ kind: "refused", why }),
      ),
      ...(["AlreadyDecided", "Expired", "Withdrawn", "TurnEnded"] as const).map((over) =>
        decided({ kind: "late", state: "approved", by: "x".repeat(253), over }),
      ),
      decided({ kind: "unknown" }),
      answered({ kind: "answered", runId: "r" }),
      ...(["AlreadyAnswered", "Expired", "TurnEnded"] as const).map((over) =>
        answered({ kind: "late", by: "x".repeat(253), over }),
      ),
      answered({ kind: "unknown" }),
      settled({ kind: "resolved", target: "t" }, "bob", true),
      settled({ kind: "already", state: "confirmed", resolvedBy: "alice" }, "bob", true),
      settled({ kind: "conflict", state: "failed", resolvedBy: null }, "bob", true),
      settled({ kind: "too_early", settleAt: NOW }, "bob", false),
      settled({ kind: "unknown_effect" }, "bob", false),
    ];
    for (const outcome of outcomes) {
      assert.ok((DECISION_REASONS[outcome.state] as readonly string[]).includes(outcome.reason), outcome.reason);
      decisionStatus.parse(statusFor(outcome, NOW));
    }
    assert.match(
      decided({ kind: "late", state: "approved", by: "bob", over: "AlreadyDecided" }).message,
      /decided before by bob/,
    );
  });

  it("that answers too late says by whom it was answered, and how to say something all the same", () => {
    const { state, message } = answered({ kind: "late", by: "bob", over: "AlreadyAnswered" });
    assert.deepEqual(
      [state, message],
      ["Late", "it was answered before by bob: to say something all the same, apply a Run in its conversation"],
    );
  });

  it("about a change that is applied twice by the same person says the same twice", () => {
    assert.deepEqual(
      settled({ kind: "already", state: "failed", resolvedBy: "bob" }, "bob", false),
      settled({ kind: "resolved", target: "t" }, "bob", false),
    );
  });
});
