import assert from "node:assert/strict";
import { isFinalPhase, RUN_REASONS, runStatus, type RunStatus } from "@pawl/crds";
import { announcements } from "#controllers/run/announce.ts";
import { project, QUEUE_FAR_MS, QUEUE_NEAR_MS, type Shown } from "#controllers/run/project.ts";
import type { Mirror } from "#ledger/mirrors.ts";
import { aMirror, at, ended, pending, replied, shown, working } from "./support.ts";

type Row = {
  readonly what: string;
  readonly mirror: Mirror;
  readonly shown?: Partial<Shown>;
  readonly phase: string;
  readonly reason: string;
  readonly restartable?: "Yes" | "No" | undefined;
  /** Committed, WaitingForHuman, Finished, Succeeded as status/reason. */
  readonly conditions: readonly [string, string, string, string];
};

const NOTHING = "False/NothingCommitted";
const CROSSED = "True/EffectCommitted";
const NOBODY = "False/NotWaiting";
const BUSY = "False/Working";
const OPEN = "Unknown/Working";
const OVER = "True/Finished";
const effect = {
  committed_at: at(-20),
  committed_kind: "tool.effect",
  committed_tool: "http_request",
  committed_step: 1,
};

const approval = (changes: Partial<Mirror> = {}): Mirror =>
  working({
    status: "awaiting_tool",
    lease_owner: null,
    reason: "WaitingForApproval",
    message: "a person must decide on http_request: apply a Decision that names request r and its hash",
    open_tool: "http_request",
    open_since: at(-0.1),
    waiting: {
      request: "r",
      hash: "h".repeat(64),
      since: "2026-03-01T11:59:00+00:00",
      tool: "http_request",
      target: "t".repeat(900),
    },
    ...changes,
  });

const TABLE: readonly Row[] = [
  {
    what: "a message behind a turn at work",
    mirror: pending(),
    phase: "Queued",
    reason: "TurnAtWork",
    conditions: [NOTHING, NOBODY, BUSY, OPEN],
  },
  {
    what: "a run that waits for a worker",
    mirror: aMirror(),
    phase: "Queued",
    reason: "WaitingForWorker",
    restartable: "Yes",
    conditions: [NOTHING, NOBODY, BUSY, OPEN],
  },
  {
    what: "a message taken into the turn of another Run",
    mirror: aMirror({ opening_event: "event-0", answered_by: "zero", triggers: 2 }),
    phase: "Folded",
    reason: "Folded",
    restartable: "Yes",
    conditions: [NOTHING, NOBODY, BUSY, OPEN],
  },
  {
    what: "a run that asks its model",
    mirror: working(),
    phase: "Running",
    reason: "Working",
    restartable: "Yes",
    conditions: [NOTHING, NOBODY, BUSY, OPEN],
  },
  {
    what: "a call that waits for a person, at once",
    mirror: approval(),
    phase: "AwaitingTool",
    reason: "WaitingForApproval",
    restartable: "Yes",
    conditions: [NOTHING, "True/Approval", BUSY, OPEN],
  },
  {
    what: "a call that waits for a person in a turn that is told to stop",
    mirror: approval({ stop: true }),
    phase: "AwaitingTool",
    reason: "Stopping",
    restartable: "Yes",
    conditions: [NOTHING, "True/Approval", BUSY, OPEN],
  },
  {
    what: "a tool that has just begun",
    mirror: working({ status: "awaiting_tool", open_tool: "http_request", open_since: at(-4.9) }),
    phase: "Running",
    reason: "Working",
    restartable: "Yes",
    conditions: [NOTHING, NOBODY, BUSY, OPEN],
  },
  {
    what: "a tool that takes longer",
    mirror: working({ status: "awaiting_tool", open_tool: "http_request", open_since: at(-5), ...effect }),
    phase: "AwaitingTool",
    reason: "ToolAtWork",
    restartable: "No",
    conditions: [CROSSED, NOBODY, BUSY, OPEN],
  },
  {
    what: "a run whose model is away",
    mirror: working({ lease_owner: null, reason: "ModelUnreachable", message: "no answer from the endpoint" }),
    phase: "Running",
    reason: "ModelUnreachable",
    restartable: "Yes",
    conditions: [NOTHING, NOBODY, BUSY, OPEN],
  },
  {
    what: "a run that was told to stop",
    mirror: working({ stop: true, ...effect }),
    phase: "Running",
    reason: "Stopping",
    restartable: "No",
    conditions: [CROSSED, NOBODY, BUSY, OPEN],
  },
  {
    what: "a run that asked a question",
    mirror: working({ status: "awaiting_input", lease_owner: null }),
    phase: "AwaitingInput",
    reason: "Question",
    restartable: "Yes",
    conditions: [NOTHING, "True/Question", BUSY, OPEN],
  },
  {
    what: "an answer",
    mirror: replied("The tooth of a ratchet."),
    phase: "Succeeded",
    reason: "Answered",
    restartable: "No",
    conditions: [CROSSED, NOBODY, OVER, "True/Answered"],
  },
  {
    what: "an answer given in the turn of another Run",
    mirror: replied("To both.", { opening_event: "event-0", answered_by: "zero", triggers: 2 }),
    phase: "Succeeded",
    reason: "Answered",
    restartable: "No",
    conditions: [CROSSED, NOBODY, OVER, "True/Answered"],
  },
  {
    what: "a failure",
    mirror: ended("failed", { reason: "ModelUnauthorized", message: "the endpoint refuses the key" }),
    phase: "Failed",
    reason: "ModelUnauthorized",
    restartable: "Yes",
    conditions: [NOTHING, NOBODY, OVER, "False/ModelUnauthorized"],
  },
  {
    what: "a failure without a word",
    mirror: ended("failed", effect),
    phase: "Failed",
    reason: "Failed",
    restartable: "No",
    conditions: [CROSSED, NOBODY, OVER, "False/Failed"],
  },
  {
    what: "a budget that was used up",
    mirror: ended("budget_exhausted"),
    phase: "BudgetExhausted",
    reason: "BudgetExhausted",
    restartable: "Yes",
    conditions: [NOTHING, NOBODY, OVER, "False/BudgetExhausted"],
  },
  {
    what: "a turn that was stopped after its message was taken in",
    mirror: ended("cancelled", { reason: "Stopped" }),
    phase: "Cancelled",
    reason: "Stopped",
    restartable: "Yes",
    conditions: [NOTHING, NOBODY, OVER, "False/Cancelled"],
  },
  {
    what: "a message taken back with its turn",
    mirror: ended("cancelled", { event_state: "withdrawn", reason: "Stopped" }),
    phase: "Cancelled",
    reason: "Withdrawn",
    restartable: "Yes",
    conditions: [NOTHING, NOBODY, OVER, "False/Withdrawn"],
  },
  {
    what: "a message taken back while it waited",
    mirror: pending({ event_state: "withdrawn", position: null }),
    phase: "Cancelled",
    reason: "Withdrawn",
    conditions: [NOTHING, NOBODY, OVER, "False/Withdrawn"],
  },
];

const verdictOf = (status: RunStatus, type: string): string => {
  const found = status.conditions?.find((condition) => condition.type === type);
  return `${found?.status ?? "-"}/${found?.reason ?? "-"}`;
};

describe("a Run's status", () => {
  for (const row of TABLE) {
    it(`shows ${row.what}`, () => {
      const { status } = project(shown(row.mirror, row.shown));
      assert.equal(status.phase, row.phase);
      assert.equal(status.reason, row.reason);
      assert.equal(status.boundary?.restartable, row.restartable);
      const types = ["Committed", "WaitingForHuman", "Finished", "Succeeded"] as const;
      assert.deepEqual(
        types.map((type) => verdictOf(status, type)),
        row.conditions,
      );
      assert.equal(verdictOf(status, "Accepted"), "True/Accepted");
      assert.equal(isFinalPhase(status.phase), verdictOf(status, "Finished") === OVER, "phase and Finished agree");
      for (const { type, reason } of status.conditions ?? []) {
        // The ledger's reason for an ending passes through.
        const words = (RUN_REASONS as Record<string, readonly string[]>)[type] ?? [];
        assert.ok(type === "Succeeded" || words.includes(reason), `${type} does not know ${reason}`);
      }
      const parsed = runStatus.safeParse(status);
      assert.equal(parsed.success, true, JSON.stringify(parsed.error?.issues));
      assert.ok((status.message ?? "") !== "", "says what happened");
    });
  }

  it("shows an answer by size, hash and beginning, and says how to read the rest", () => {
    const { status } = project(shown(replied("ä".repeat(5_000))));
    assert.equal(status.answer?.bytes, 10_000);
    assert.match(status.answer?.sha256 ?? "", /^[0-9a-f]{64}$/);
    assert.ok(Buffer.byteLength(status.answer?.preview ?? "") <= 1_024);
    assert.match(status.answer?.preview ?? "", /^ä+…$/);
    assert.match(status.message ?? "", /kubectl exec deploy\/pawl-worker -- pawl transcript one/);
  });

  it("shows no text where the Agent does not want it, and none that nobody was given", () => {
    assert.equal(project(shown(replied("secret"), { previews: false })).status.answer?.preview, undefined);
    assert.equal(project(shown(working({ reply: "a draft", replied: false }))).status.answer, undefined);
  });

  it("shows what a run that failed told its person, and Failed all the same", () => {
    const told = { reply: "I could not answer this.", replied: true, committed_at: at(-20), committed_kind: "reply" };
    const { status } = project(shown(ended("failed", { ...told, reason: "ModelUnauthorized", message: "401" })));
    assert.deepEqual(
      [status.phase, status.reason, status.answer?.preview],
      ["Failed", "ModelUnauthorized", "I could not answer this."],
    );
    const succeeded = status.conditions?.find(({ type }) => type === "Succeeded");
    assert.deepEqual([succeeded?.status, succeeded?.reason], ["False", "ModelUnauthorized"]);
  });

  it("shows a cost in dollars where it is known: nothing before the first step, and never zero for unknown", () => {
    const cost = (changes: Partial<Mirror>) => project(shown(working(changes))).status.usage?.costUSD;
    assert.equal(cost({ steps: 2, cost_micros: 1_250 }), 0.00125);
    assert.equal(cost({ steps: 2, cost_micros: 0 }), 0, "a model of one's own has a price of nothing");
    assert.equal(cost({ steps: 2, cost_micros: null }), undefined);
    assert.equal(cost({ steps: 0, cost_micros: 0 }), undefined);
  });

  describe("of a run that nobody works on yet", () => {
    const waits = (changes: Partial<Mirror>, maxRuns = 0) =>
      project(shown(aMirror({ ahead: 3, agent_held: 1, agent_runs: 2, install_held: 7, ...changes }), { maxRuns }));

    it("says which ceiling holds it, and its place", () => {
      const busy = waits({ agent_held: 2 }).status;
      assert.deepEqual([busy.phase, busy.reason, busy.queuePosition], ["Queued", "AgentBusy", 3]);
      assert.match(
        busy.message ?? "",
        /2 runs of this agent are at work, at most 2 may be \(spec\.concurrency\.maxRuns\)/,
      );
      const full = waits({}, 7).status;
      assert.deepEqual([full.reason, full.queuePosition], ["InstallBusy", 3]);
      assert.match(full.message ?? "", /at most 7 may be \(limits\.maxRuns/);
    });

    it("waits for a worker when no ceiling does, and has no place then", () => {
      const { status } = waits({}, 8);
      assert.deepEqual([status.reason, status.queuePosition], ["WaitingForWorker", undefined]);
    });

    it("is looked at again, the first ones sooner: nothing about it changes while its place does", () => {
      assert.deepEqual([waits({}).recheckMs, waits({ ahead: 500 }).recheckMs], [QUEUE_NEAR_MS, QUEUE_FAR_MS]);
      assert.equal(project(shown(pending({ position: 500 }))).recheckMs, QUEUE_FAR_MS);
    });
  });

  it("counts on from a run's version when the message moves to the next run", () => {
    const first = project(shown(pending({ conversation_version: 41 }))).status;
    const next = project(shown(aMirror({ version: 42, conversation_version: 41 }), { before: first })).status;
    assert.deepEqual([first.ledger?.seq, next.ledger?.seq], [41, 42]);
  });

  it("keeps its version when the message was taken out of a queued turn", () => {
    const before = project(shown(aMirror({ version: 7 }))).status;
    const withdrawn = pending({ event_state: "withdrawn", position: null, conversation_version: 3 });
    assert.equal(project(shown(withdrawn, { before })).status.ledger?.seq, 7);
  });

  it("shows what a person must name to decide, and says what the run waits for", () => {
    const { status } = project(shown(approval()));
    assert.deepEqual(status.waiting, {
      request: "r",
      kind: "Approval",
      hash: "h".repeat(64),
      since: "2026-03-01T11:59:00Z",
      tool: "http_request",
      target: `${"t".repeat(125)}…`,
    });
    assert.equal(status.activity, "waits for an approval");
    assert.match(status.message ?? "", /apply a Decision that names request r/);
    assert.equal(project(shown(working())).status.waiting, undefined);
  });

  it("is told in events: that a call waits, for each one; and that nobody came", () => {
    const before = project(shown(working())).status;
    const one = project(shown(approval())).status;
    const other = { ...(approval().waiting as object), request: "s" };
    const two = project(shown(approval({ waiting: other }))).status;
    const reasons = (...args: Parameters<typeof announcements>) => announcements(...args).map(({ reason }) => reason);
    assert.deepEqual(reasons(before, one), ["ApprovalRequested"]);
    assert.deepEqual(reasons(one, one), []);
    assert.deepEqual(reasons(one, two), ["ApprovalRequested"]);
    assert.deepEqual(reasons(one, two, { expired: ["r"] }), ["ApprovalExpired", "ApprovalRequested"]);
    assert.deepEqual(reasons(one, before, { expired: ["r"] }), ["ApprovalExpired"]);
    assert.deepEqual(reasons(one, before, { expired: ["another"] }), []);
  });

  const question = (changes: Partial<Mirror> = {}) =>
    working({
      status: "awaiting_input",
      lease_owner: null,
      reason: "Question",
      message: "a person must answer: Which colour? — apply a Decision that names request q",
      waiting: { kind: "Question", request: "q", since: "2026-03-01T11:59:00Z", text: "Which colour?\n- red" },
      ...changes,
    });

  it("shows what it asks, what an answer must name, and that a person is waited for", () => {
    const { status } = project(shown(question()));
    assert.deepEqual(status.waiting, {
      request: "q",
      kind: "Question",
      since: "2026-03-01T11:59:00Z",
      text: "Which colour? - red",
    });
    assert.equal(status.phase, "AwaitingInput");
    const waiting = status.conditions?.find(({ type }) => type === "WaitingForHuman");
    assert.deepEqual([waiting?.status, waiting?.reason], ["True", "Question"]);
    const long = project(
      shown(question({ waiting: { request: "q", since: "2026-03-01T11:59:00Z", text: "ü".repeat(2_000) } })),
    );
    assert.ok(Buffer.byteLength(long.status.waiting?.text ?? "") <= 256);
  });

  it("is told in events: that it asks; and that nobody answered", () => {
    const before = project(shown(working())).status;
    const asked = project(shown(question())).status;
    const reasons = (...args: Parameters<typeof announcements>) => announcements(...args).map(({ reason }) => reason);
    assert.deepEqual(reasons(before, asked), ["QuestionAsked"]);
    assert.deepEqual(reasons(asked, before), []);
    assert.deepEqual(reasons(asked, before, { expired: ["q"] }), ["QuestionExpired"]);
  });

  it("says what it does: asks, hears an answer come, runs a tool", () => {
    const activity = (mirror: Mirror) => project(shown(mirror)).status.activity;
    assert.equal(activity(working()), "asks the model");
    assert.equal(activity(working({ streamed: 1_200 })), "hears the model answer: 1200 characters so far");
    assert.equal(
      activity(working({ streamed: 1_200, open_tool: "http_request", open_since: at(-1) })),
      "runs http_request",
    );
  });

  it("asks to be looked at again when time alone will make a tool long", () => {
    const open = working({ status: "awaiting_tool", open_tool: "http_request", open_since: at(-2) });
    assert.equal(project(shown(open)).recheckMs, 3_000);
    assert.equal(project(shown(working())).recheckMs, undefined);
  });

  it("names the three newest effects and counts them all", () => {
    const last = ["confirmed", "failed", "unknown"].map((state) => ({
      name: "http_request",
      target: "https://a",
      state,
    }));
    const { status } = project(shown(working({ ...effect, effects_total: 9, effects_unknown: 1, last_effects: last })));
    assert.deepEqual(
      [status.effects?.total, status.effects?.unknown, status.effects?.last?.map(({ state }) => state)],
      [9, 1, ["Confirmed", "Failed", "Unknown"]],
    );
  });

  it("stamps every condition with the generation it speaks of, also long after the end", () => {
    const before = project(shown(replied("Done."))).status;
    const after = project(shown(replied("Done."), { before, generation: 2, now: at(3_600) })).status;
    assert.equal(after.observedGeneration, 2);
    for (const condition of after.conditions ?? []) {
      const old = before.conditions?.find(({ type }) => type === condition.type);
      assert.equal(condition.observedGeneration, 2);
      assert.equal(condition.lastTransitionTime, old?.lastTransitionTime);
    }
  });

  it("replaces words that a condition cannot hold", () => {
    const { status } = project(shown(ended("failed", { reason: "not a word!", message: "a\nb" })));
    assert.equal(verdictOf(status, "Succeeded"), "False/Other");
    assert.equal(status.message, "a b");
  });
});
