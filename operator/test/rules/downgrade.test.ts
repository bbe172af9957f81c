/** What a person is told whose message did not get what the policy asks for: one row here is one sentence. */
import assert from "node:assert/strict";
import { type Changed, downgradeWords } from "#rules/downgrade.ts";
import { AFTER_COMMIT, decide, MID_TURN, POSITIONS, RELATIONS } from "#rules/interrupt.ts";

const issue: Changed = { target: "issue 7", undoable: true };
const post: Changed = { target: "channel #news", undoable: false };
const TOO_LATE = "Too late to restart: issue 7 was changed already.";

/** asked, done, reason, what was changed, and what is said */
const TABLE: readonly [string, string, string, readonly Changed[], string | null][] = [
  ["preempt", "preempted", "Buffering", [], null],
  ["amend", "amended", "Amend", [issue], null],
  ["cancel", "cancelled", "Buffering", [], null],
  ["preempt", "folded", "Window", [], null],
  ["preempt", "answered", "Waiting", [], null],
  ["enqueue", "queued", "Enqueue", [], null],
  ["enqueue", "queued", "NotEntitled", [], null],
  ["preempt", "queued", "Committed", [issue], `${TOO_LATE} I take this up next.`],
  [
    "preempt",
    "queued",
    "Committed",
    [],
    "Too late to restart: something outside was changed already. I take this up next.",
  ],
  ["preempt", "reconcile", "Committed", [issue], `${TOO_LATE} I put it right next: undo issue 7.`],
  [
    "enqueue",
    "reconcile",
    "Committed",
    [issue],
    "Too late to change it: issue 7 was changed already. I put it right next: undo issue 7.",
  ],
  [
    "preempt",
    "reconcile",
    "Committed",
    [issue, post],
    "Too late to restart: issue 7 and channel #news were changed already. I put it right next: undo issue 7. The rest cannot be taken back.",
  ],
  [
    "preempt",
    "reconcile",
    "Committed",
    [post],
    "Too late to restart: channel #news was changed already. I put it right next, as far as I can: nothing takes it back by itself.",
  ],
  [
    "cancel",
    "stopping",
    "Committed",
    [issue, issue],
    "Too late to stop it whole: issue 7 was changed already. I do nothing more, and tell you what was done.",
  ],
  ["cancel", "nothing_left", "AlreadyAnswered", [issue], "Too late to stop: I have answered already."],
  ["cancel", "queued", "NotEntitled", [], "Only those whom I am at work for may stop this. I take this up next."],
  ["cancel", "queued", "AlreadyAnswered", [issue], "I have answered already. I take this up next."],
  [
    "preempt",
    "queued",
    "NotEntitled",
    [],
    "I am at work for somebody else, and only they may change that. I take this up next.",
  ],
  [
    "amend",
    "queued",
    "DifferentGrants",
    [],
    "I may use other tools for you than for those I am at work for. I take this up next.",
  ],
  [
    "preempt",
    "queued",
    "Bound",
    [issue],
    "What I am doing was changed often enough: I finish it first. I take this up next.",
  ],
  ["amend", "queued", "Stopping", [issue], "I was told to stop what I am doing. I take this up next."],
  ["amend", "queued", "AlreadyAnswered", [issue], "I have answered already. I take this up next."],
  ["amend", "queued", "WindowFull", [], "One turn takes no more messages than it has by now. I take this up next."],
  ["amend", "queued", "Independent", [], "This is no part of what I am doing. I take this up next."],
  ["amend", "queued", "NoModel", [], "Nobody can say whether this is part of what I am doing. I take this up next."],
  ["amend", "queued", "Unsure", [], "I am not sure whether this is part of what I am doing. I take this up next."],
  ["amend", "queued", "Bot", [], "A program does not interrupt me. I take this up next."],
  ["amend", "queued", "ANewReason", [], "I take this up next."],
];

describe("the words for a message that did not get what was asked for", () => {
  for (const [asked, done, reason, changed, words] of TABLE) {
    it(`${asked}, done ${done}, because ${reason}: ${words ?? "nothing to say"}`, () =>
      assert.equal(downgradeWords({ asked, done, reason }, changed), words));
  }

  it("name three writes by their beginning, each once, and count the rest", () => {
    const changed = ["a", "a", "b", "x".repeat(500), "d", "e"].map((target) => ({
      target: `${target}\n`,
      undoable: false,
    }));
    const words = downgradeWords({ asked: "preempt", done: "queued", reason: "Committed" }, changed) ?? "";
    assert.match(
      words,
      /^Too late to restart: a , b , x{80}… and 2 more were changed already\. I take this up next\.$/,
    );
  });

  it("are there for every decision that denies what was asked for, and are one line", () => {
    for (const position of POSITIONS) {
      for (const relation of RELATIONS) {
        for (const midTurn of MID_TURN) {
          for (const afterCommit of AFTER_COMMIT) {
            for (let bits = 0; bits < 64; bits += 1) {
              const is = (bit: number): boolean => (bits & (1 << bit)) !== 0;
              const facts = {
                addressed: true,
                strangerBot: is(0),
                position,
                entitled: is(1),
                sameGrants: is(2),
                room: is(3),
                stopping: is(4),
                bound: is(5),
                relation,
              };
              const decided = decide(facts, { midTurn, afterCommit });
              const asked = relation === "cancels" ? "cancel" : midTurn;
              const words = downgradeWords({ asked, ...decided }, [issue]);
              const denied =
                decided.done === "reconcile" ||
                decided.done === "stopping" ||
                (decided.done === "queued" && asked !== "enqueue");
              assert.equal(words !== null, denied, JSON.stringify({ asked, ...decided }));
              assert.doesNotMatch(words ?? "", /\n/);
            }
          }
        }
      }
    }
  });
});
