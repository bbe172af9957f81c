/** The whole text of turns that somebody interrupted, as a person reads it. */
import assert from "node:assert/strict";
import { renderWhy } from "#cli/why.ts";
import { at, effect, interrupt, LINE, message, replied, reply, step, story, write } from "./story.ts";

const line = (words: string): string => `              ↑ up to here the turn may be restarted freely: that costs tokens
${`══ POINT OF NO RETURN ══ ${words} `.padEnd(LINE, "═")}
              ↓ from here on nothing is repeated silently: finished from rows, or told as not known
`;

const said = (second: number, text: string, done: string, reason: string, changes = {}) =>
  interrupt({
    event: `event-${second}`,
    kind: "message",
    text,
    said: at(second),
    at: at(second + 1),
    object: `order-${second}`,
    relation: "refines",
    asked: "preempt",
    done,
    reason,
    source: "model",
    state: "accounted",
    ...changes,
  });

const CASES = [
  {
    name: "tells of a restart as one turn: for which message, who said so, what was kept",
    story: story({
      id: "run-2",
      inherits: ["run-1"],
      runs: [
        { id: "run-1", queuedAt: at(0), startedAt: at(1), endedAt: at(13), superseded: true },
        { id: "run-2", queuedAt: at(13), startedAt: at(15), endedAt: at(30), superseded: false },
      ],
      queuedAt: at(13),
      startedAt: at(15),
      committedAt: at(20),
      messages: [
        message(),
        message({ event: "event-12", text: "Two, please.", at: at(12), object: "order-12", step: 2 }),
        message({ event: "event-14", text: "Black tea.", at: at(14), object: "order-14", step: 2 }),
      ],
      interrupts: [said(12, "Two, please.", "preempted", "Buffering")],
      steps: [step(1, { text: "Let me look." }), step(2, { run: "run-2", text: "Ordered two." })],
      calls: [{ ...write, id: "call-q", tool: "find_tea", class: "pure", args: {}, result: "black, green" }, reply(2)],
      effects: [{ ...replied(2, 20), run: "run-2" }],
    }),
    text: `run run-2  shop/clerk (generation 3)  succeeded
2026-01-02, times in UTC

09:00:00.000  alice asked (Run order-1), read by step 1:
                Order tea.
09:00:00.000  queued
09:00:01.000  claimed by a worker: lease 1
09:00:10.000  step 1, lease 1, the model's response is recorded: Let me look.
                find_tea {}
                  → black, green
09:00:12.000  alice wrote (Run order-12), read by step 2:
                Two, please.
09:00:13.000    → the turn is restarted for this message: nothing had been changed (about this work, says a model; the agent asks to preempt)
              restarted as run run-2: the steps so far are kept, calls that had not ended are closed
09:00:14.000  alice asked (Run order-14), read by step 2:
                Black tea.
09:00:15.000  claimed by a worker: lease 1
09:00:20.000  step 2, lease 1, an answer is recorded
${line("09:00:20.000 ══ the reply, step 2")}09:00:20.000    the reply is out:
                Ordered two.
09:00:30.000  succeeded, claimed once
`,
  },
  {
    name: "tells a message that came before the line above it, and one that came too late below it",
    story: story({
      committedAt: at(15),
      messages: [
        message(),
        message({ event: "event-11", text: "Green.", at: at(11), object: "order-11", step: 2, role: "amend" }),
      ],
      interrupts: [
        said(11, "Green.", "amended", "Amend", { asked: "amend" }),
        said(17, "Rather none.", "reconcile", "Committed", { now: "run-9", state: "in_turn" }),
        interrupt({
          event: "event-18",
          kind: "message",
          actor: "bob",
          text: "And coffee.",
          said: at(18),
          at: at(18),
          relation: "none",
          asked: "preempt",
          done: "queued",
          reason: "NotEntitled",
          state: "pending",
        }),
        interrupt({
          event: "event-19",
          kind: "message",
          text: "Stop!",
          said: at(19),
          at: at(19),
          done: "stopping",
          reason: "Committed",
          source: "stop_word",
        }),
      ],
      steps: [step(1, { text: "I order." }), step(2, { text: "I have ordered green tea." })],
      calls: [write, reply(2)],
      effects: [effect({ dispatchedAt: at(15), settledAt: at(16) }), replied(2, 21)],
      reconciledBy: [{ run: "run-9", object: "order-17" }],
    }),
    text: `run run-1  shop/clerk (generation 3)  succeeded
2026-01-02, times in UTC

09:00:00.000  alice asked (Run order-1), read by step 1:
                Order tea.
09:00:00.000  queued
09:00:01.000  claimed by a worker: lease 1
09:00:10.000  step 1, lease 1, the model's response is recorded: I order.
09:00:11.000  alice wrote (Run order-11), read by step 2:
                Green.
09:00:12.000    → joins the turn at the next decision: the agent takes in what belongs to its work (about this work, says a model; the agent asks to amend)
${line("09:00:15.000 ══ http_request, step 1")}                http_request {"method":"POST"}
09:00:15.000    dispatched to https://shop.example/orders, key effect-1
09:00:16.000    confirmed: it took place
                  → HTTP 201
09:00:17.000  alice wrote (Run order-17):
                Rather none.
09:00:18.000    → too late: the next turn puts it right: something had been changed (about this work, says a model; the agent asks to preempt); it is in run run-9
09:00:18.000  bob wrote:
                And coffee.
09:00:18.000    → waits for the next turn: its author may not interrupt this turn (the agent asks to preempt)
09:00:19.000  alice wrote:
                Stop!
09:00:19.000    → too late to undo: the turn does nothing more but say what it did: something had been changed (a stop, says the message itself)
09:00:20.000  step 2, lease 1, an answer is recorded
09:00:21.000    the reply is out:
                I have ordered green tea.
09:00:30.000  succeeded, claimed once

What came too late is put right in Run order-17 (run run-9).
`,
  },
  {
    name: "says which turn it puts right, and which effect it undoes, after whose approval",
    story: story({
      reconciles: { run: "run-0", object: "order-0" },
      committedAt: at(13),
      messages: [message({ text: "Rather none." })],
      steps: [step(1), step(2, { text: "Cancelled." })],
      calls: [{ ...write, tool: "undo", args: { effect: "effect-0" } }, reply(2)],
      effects: [
        effect({ kind: "compensation", compensates: "effect-0", dispatchedAt: at(13), settledAt: at(14) }),
        replied(2, 20),
      ],
      approvals: [
        {
          id: "request-1",
          call: "call-1",
          state: "approved",
          requestedAt: at(11),
          expiresAt: at(50),
          decidedAt: at(12),
          decisions: [{ actor: "bob", asked: "approve", done: "approved", why: null, reason: null, at: at(12) }],
        },
      ],
    }),
    text: `run run-1  shop/clerk (generation 3)  succeeded
2026-01-02, times in UTC

              puts right what Run order-0 (run run-0) had changed when a message came too late
09:00:00.000  alice asked (Run order-1), read by step 1:
                Rather none.
09:00:00.000  queued
09:00:01.000  claimed by a worker: lease 1
09:00:10.000  step 1, lease 1, the model's response is recorded
                undo {"effect":"effect-0"}
09:00:11.000    a person must approve it: request request-1, until 2026-01-02T09:00Z
09:00:12.000    bob approved it
${line("09:00:13.000 ══ undo, step 1")}09:00:13.000    dispatched to https://shop.example/orders, key effect-1
                undoes effect effect-0
09:00:14.000    confirmed: it took place
                  → HTTP 201
09:00:20.000  step 2, lease 1, an answer is recorded
09:00:20.000    the reply is out:
                Cancelled.
09:00:30.000  succeeded, claimed once
`,
  },
];

describe("pawl why: messages that met the turn", () => {
  for (const { name, story: told, text } of CASES) {
    it(name, () => assert.equal(renderWhy(told), text));
  }

  it("says whose decision it is where other messages came between", () => {
    const late = { said: at(12), at: at(14) };
    const told = renderWhy(
      story({
        live: true,
        endedAt: null,
        interrupts: [
          said(12, "Two.", "amended", "Amend", { ...late, event: "a", object: "one" }),
          said(13, "Green.", "queued", "Unsure", { event: "b", object: null }),
        ],
      }),
    );
    assert.match(told, /→ Run one: joins the turn at the next decision/);
    assert.match(told, /→ alice: waits for the next turn: nobody could say what it is about/);
    assert.ok(told.indexOf("alice wrote:") < told.indexOf("→ Run one"));
  });
});
