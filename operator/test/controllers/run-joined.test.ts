/** A Run that is applied to a busy conversation: what it shows, and what is told of it. */
import assert from "node:assert/strict";
import { runStatus, type RunStatus } from "@pawl/crds";
import { announcements } from "#controllers/run/announce.ts";
import { downgradeOf } from "#controllers/run/joined.ts";
import { project, QUEUE_NEAR_MS } from "#controllers/run/project.ts";
import type { Mirror } from "#ledger/mirrors.ts";
import { aMirror, at, ended, pending, replied, shown, working } from "./support.ts";

const own = (done: string, reason: string, changes: Record<string, unknown> = {}) => ({
  own_interrupt: { relation: "refines", asked: "preempt", done, reason, here: true, ...changes },
});
/** Of the turn that Run zero opened. */
const IN_ZERO = { opening_event: "event-0", answered_by: "zero", triggers: 2 } as const;

type Row = {
  readonly what: string;
  readonly mirror: Mirror;
  readonly phase: string;
  readonly reason: string;
  readonly says: RegExp;
  readonly answeredBy?: string;
};

const waits = (reason: string, says: RegExp, done = "queued"): Row => ({
  what: `that waits: ${done}, ${reason}`,
  mirror: pending(own(done, reason)),
  phase: "Queued",
  reason,
  says,
});

const joins = (what: string, changes: Partial<Mirror>, reason: string, says: RegExp): Row => ({
  what,
  mirror: working({ ...IN_ZERO, ...changes }),
  phase: "Folded",
  reason,
  says,
  answeredBy: "zero",
});

const TABLE: readonly Row[] = [
  waits("Enqueue", /its agent takes nothing into one at work \(spec\.interrupt\.midTurn: Enqueue\)/),
  waits("NoModel", /set the Agent's spec\.models\.fast/),
  waits("NotEntitled", /may not change the one at work \(spec\.interrupt\.whoInterrupts\)/),
  waits("DifferentGrants", /may use other tools/),
  waits("WindowFull", /is full \(spec\.interrupt\.maxCount\)/),
  waits("AlreadyAnswered", /has given its answer/),
  waits("Independent", /about something else/),
  waits("Committed", /too late for the one at work, which has changed something/),
  waits("Committed", /the next one puts it right/, "reconcile"),
  waits("Bound", /maxSupersessions, deadline/),
  waits("Stopping", /was told to stop/),
  waits("Bot", /a program/),
  waits("TurnEnded", /ended before it was known/),
  {
    what: "that nobody has decided about",
    mirror: pending({ event_state: "undecided", position: null }),
    phase: "Queued",
    reason: "AskingModel",
    says: /it is being found out/,
  },
  {
    what: "that opens a turn to which more may be said",
    mirror: aMirror({ due_at: at(2) }),
    phase: "Queued",
    reason: "Window",
    says: /nothing more was said for a moment/,
  },
  joins("that came before the turn began", { role: "trigger" }, "Folded", /answered together with zero/),
  joins(
    "that had waited for this turn",
    { role: "trigger", ...own("queued", "Enqueue", { here: false }) },
    "Folded",
    /zero/,
  ),
  joins("that was amended", { role: "amend", ...own("amended", "Amend") }, "Amended", /joined the turn of zero while/),
  joins(
    "that restarted it",
    { role: "trigger", ...own("preempted", "Buffering") },
    "Restarted",
    /restarted the turn of zero/,
  ),
  joins(
    "that was amended and carried into a restart",
    { role: "inherited", ...own("amended", "Amend") },
    "Amended",
    /joined/,
  ),
  joins("that answered a question", { role: "answer" }, "AnswersQuestion", /answers what the turn of zero had asked/),
  joins(
    "that told it to stop",
    { event_state: "applied", role: null, ...own("stopping", "Committed") },
    "Stopping",
    /told the turn of zero to stop/,
  ),
  {
    what: "that stopped a turn which had changed nothing",
    mirror: ended("cancelled", { ...IN_ZERO, event_state: "applied", role: null, ...own("cancelled", "Buffering") }),
    phase: "Succeeded",
    reason: "Stopped",
    says: /stopped the turn of zero: it had changed nothing/,
    answeredBy: "zero",
  },
  {
    what: "that stopped a turn which told what it had done",
    mirror: ended("cancelled", { ...IN_ZERO, event_state: "applied", role: null, ...own("stopping", "Committed") }),
    phase: "Succeeded",
    reason: "Stopped",
    says: /its answer says what it had changed/,
    answeredBy: "zero",
  },
  {
    what: "that its author's stop took back with the turn",
    mirror: pending({ event_state: "withdrawn", position: null, ...own("withdrawn", "Stopped") }),
    phase: "Cancelled",
    reason: "Withdrawn",
    says: /taken back/,
  },
];

describe("a Run that meets a conversation at work", () => {
  for (const row of TABLE) {
    it(`shows a message ${row.what}`, () => {
      const { status } = project(shown(row.mirror));
      assert.deepEqual([status.phase, status.reason, status.answeredBy?.name], [row.phase, row.reason, row.answeredBy]);
      assert.match(status.message ?? "", row.says);
      assert.ok((status.message ?? "").length <= 256 && !(status.message ?? "").endsWith("…"), "whole");
      const parsed = runStatus.safeParse(status);
      assert.equal(parsed.success, true, JSON.stringify(parsed.error?.issues));
    });
  }

  it("shows the decision about itself, also while it has no turn", () => {
    const { status } = project(shown(pending(own("queued", "Bound"))));
    const last = { relation: "refines", asked: "preempt", done: "queued", reason: "Bound" };
    assert.deepEqual(status.interrupts, { total: 1, last });
    const theirs = { relation: "independent", asked: "preempt", done: "queued", reason: "Independent" };
    const met = project(shown(working({ interrupts_total: 3, last_interrupt: theirs }))).status;
    assert.deepEqual(met.interrupts, { total: 3, last: theirs }, "a Run that opened the turn shows what it met");
    const joined = working({ ...IN_ZERO, ...own("amended", "Amend"), interrupts_total: 3, last_interrupt: theirs });
    assert.equal(project(shown(joined)).status.interrupts?.last?.done, "amended");
  });

  it("names the Run that restarted its turn, and says so while it works", () => {
    const mirror = working({ restarts: 2, superseded_by: "third" });
    const { status } = project(shown(mirror));
    assert.equal(status.supersededBy, "third");
    assert.match(status.message ?? "", /restarted 2 times for newer messages, nothing had been changed; at work/);
    const queued = project(shown(aMirror({ restarts: 1, superseded_by: "two", due_at: at(1) }))).status;
    assert.match(queued.message ?? "", /^restarted once for newer messages.*begins when/);
    assert.equal(queued.phase, "Queued");
  });

  it("is looked at again when its window is over, and while it waits for the next turn", () => {
    assert.equal(project(shown(aMirror({ ahead: 0, due_at: at(2) }))).recheckMs, 2_000);
    assert.equal(project(shown(aMirror({ ahead: 0, due_at: at(30) }))).recheckMs, QUEUE_NEAR_MS);
    assert.equal(project(shown(pending(own("queued", "Enqueue")))).recheckMs, QUEUE_NEAR_MS);
  });

  it("takes the verdict of the turn that answers it, and its version", () => {
    const { status } = project(shown(replied("To both.", { ...IN_ZERO, version: 12, ...own("amended", "Amend") })));
    const verdicts = status.conditions?.map(({ type, status: verdict }) => `${type}=${verdict}`);
    assert.ok(verdicts?.includes("Finished=True") && verdicts.includes("Succeeded=True"), String(verdicts));
    assert.deepEqual([status.ledger?.seq, status.answeredBy?.name], [12, "zero"]);
    const failed = project(shown(ended("failed", { ...IN_ZERO, reason: "ModelUnauthorized" }))).status;
    assert.equal(failed.conditions?.find(({ type }) => type === "Succeeded")?.status, "False");
  });
});

describe("what is told of it", () => {
  const statusOf = (mirror: Mirror): RunStatus => project(shown(mirror)).status;
  const told = (before: Mirror | undefined, after: Mirror) =>
    announcements(before === undefined ? undefined : statusOf(before), statusOf(after), {
      downgraded: downgradeOf(after),
    }).map(({ reason, note }) => `${reason}: ${note}`);
  const undecided = pending({ event_state: "undecided", position: null });

  it("says once that the message was taken into another turn, and nothing of that turn's own course", () => {
    const amended = working({ ...IN_ZERO, ...own("amended", "Amend") });
    assert.deepEqual(told(undecided, amended), [
      "MessageAmended: joined the turn of zero while that was at work: answered together with it",
    ]);
    const crossed = { ...amended, committed_at: at(0), committed_kind: "tool.effect", committed_tool: "http_request" };
    assert.deepEqual(told(amended, crossed), []);
    assert.deepEqual(
      told(undefined, aMirror({ ...IN_ZERO, status: "queued" })).map((one) => one.split(":")[0]),
      ["MessageFolded"],
    );
    const restarted = aMirror({ ...IN_ZERO, ...own("preempted", "Buffering") });
    assert.deepEqual(
      told(undecided, restarted).map((one) => one.split(":")[0]),
      ["TurnRestarted"],
    );
  });

  it("says that a turn was restarted, each time, and begins once", () => {
    const [first, second, third] = [
      working(),
      aMirror({ restarts: 1, superseded_by: "two", started_at: at(-30) }),
      working({ restarts: 2, superseded_by: "three" }),
    ];
    assert.deepEqual(told(aMirror(), first), ["TurnStarted: a worker has begun the turn"]);
    assert.deepEqual(told(first, second), ["Superseded: restarted for two, which is newer; nothing had been changed"]);
    assert.deepEqual(told(second, third), [
      "Superseded: restarted for three, which is newer; nothing had been changed",
    ]);
    assert.deepEqual(told(third, third), []);
  });

  it("says once when less is done than the agent asks for, and not when it is what it asks for", () => {
    const late = pending(own("reconcile", "Committed", { changed: [{ target: "order 7", undoable: true }] }));
    assert.deepEqual(told(undecided, late), [
      "InterruptDowngraded: Too late to restart: order 7 was changed already. I put it right next: undo order 7.",
    ]);
    assert.deepEqual(told(late, late), []);
    assert.deepEqual(told(undecided, pending(own("queued", "Independent"))), []);
    assert.deepEqual(told(undecided, pending(own("queued", "Enqueue", { asked: "enqueue" }))), []);
  });
});
