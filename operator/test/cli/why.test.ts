import assert from "node:assert/strict";
import { renderWhy } from "#cli/why.ts";
import type { Story, StoryCall } from "#ledger/story.ts";
import { at, effect, interrupt, LINE, message, replied, reply, step, story, write } from "./story.ts";

const opening = (status: string): string => `run run-1  shop/clerk (generation 3)  ${status}
2026-01-02, times in UTC

09:00:00.000  alice asked (Run order-1), read by step 1:
                Order tea.
09:00:00.000  queued
09:00:01.000  claimed by a worker: lease 1
`;

const boundary = (
  what: string,
): string => `              ↑ up to here the turn may be restarted freely: that costs tokens
${`══ POINT OF NO RETURN ══ ${what} `.padEnd(LINE, "═")}
              ↓ from here on nothing is repeated silently: finished from rows, or told as not known
`;

const quick: StoryCall = {
  ...write,
  tool: "calculate",
  class: "pure",
  args: { expression: "6*7" },
  outcome: "real",
  result: "42",
};

const CASES: readonly { name: string; story: Story; text: string }[] = [
  {
    name: "has no line while a turn has only read and reckoned, and says that it may be restarted freely",
    story: story({
      status: "running",
      live: true,
      endedAt: null,
      leaseOwner: "worker-a",
      leaseUntil: at(20),
      steps: [step(1, { text: "Let me see." })],
      calls: [quick],
    }),
    text: `${opening("running")}09:00:10.000  step 1, lease 1, the model's response is recorded: Let me see.
                calculate {"expression":"6*7"}
                  → 42
              running: worker-a holds lease 1 until 09:00:20.000

No point of no return yet: nothing outside has been changed, all of this may be restarted freely.
`,
  },
  {
    name: "tells of a question: who answered, who came too late, and what the agent read",
    story: story({
      status: "running",
      live: true,
      endedAt: null,
      leaseOwner: "worker-a",
      leaseUntil: at(40),
      messages: [
        message(),
        message({ event: "e-2", actor: "bob", text: "blue", at: at(20), role: "answer", object: null }),
      ],
      steps: [step(1, { text: "" })],
      calls: [
        {
          ...quick,
          tool: "ask_user",
          class: "internal_durable",
          args: { question: "Which colour?" },
          result: "[answer of bob] blue",
        },
      ],
      questions: [
        {
          id: "request-1",
          call: quick.id,
          state: "answered",
          askedAt: at(10),
          expiresAt: at(3_600),
          closedAt: at(20),
          by: "bob",
          late: [{ actor: "carol", text: "red", at: at(21) }],
        },
      ],
    }),
    text: `${opening("running")}09:00:10.000  step 1, lease 1, the model's response is recorded
                ask_user {"question":"Which colour?"}
09:00:10.000    anybody may answer it: request request-1, until 2026-01-02T10:00Z
09:00:20.000    bob answered it
09:00:21.000    carol came too late: red
                  → [answer of bob] blue
              running: worker-a holds lease 1 until 09:00:40.000

No point of no return yet: nothing outside has been changed, all of this may be restarted freely.
`,
  },
  {
    name: "tells of a call that a person had to approve: who was asked, who tried, who did, before it crossed",
    story: story({
      committedAt: at(20),
      steps: [step(1, { text: "I order." })],
      calls: [write],
      effects: [effect({ dispatchedAt: at(20), settledAt: at(21) })],
      approvals: [
        {
          id: "request-1",
          call: "call-1",
          state: "approved",
          requestedAt: at(11),
          expiresAt: at(50),
          decidedAt: at(19),
          decisions: [
            {
              actor: "alice",
              asked: "approve",
              done: "refused",
              why: "RequesterMayNotApprove",
              reason: null,
              at: at(12),
            },
            { actor: "bob", asked: "approve", done: "approved", why: null, reason: "agreed on the phone", at: at(19) },
            { actor: "carol", asked: "reject", done: "late", why: null, reason: null, at: at(22) },
          ],
        },
      ],
    }),
    text: `${opening("succeeded")}09:00:10.000  step 1, lease 1, the model's response is recorded: I order.
                http_request {"method":"POST"}
09:00:11.000    a person must approve it: request request-1, until 2026-01-02T09:00Z
09:00:12.000    alice said approve: refused, RequesterMayNotApprove
09:00:19.000    bob approved it: agreed on the phone
09:00:22.000    carol said reject: too late
${boundary("09:00:20.000 ══ http_request, step 1")}09:00:20.000    dispatched to https://shop.example/orders, key effect-1
09:00:21.000    confirmed: it took place
                  → HTTP 201
09:00:30.000  succeeded, claimed once
`,
  },
  {
    name: "stands before the write that a tool made, and tells its second sending by another worker",
    story: story({
      leaseToken: 2,
      committedAt: at(10),
      steps: [step(1, { text: "I order." }), step(2, { token: 2, text: "Ordered." })],
      calls: [write, reply(2)],
      effects: [effect({ attempt: 2, token: 2 }), replied(2, 20)],
    }),
    text: `${opening("succeeded")}09:00:10.000  step 1, lease 1, the model's response is recorded: I order.
${boundary("09:00:10.000 ══ http_request, step 1")}                http_request {"method":"POST"}
09:00:10.000    dispatched to https://shop.example/orders, key effect-1
09:00:11.000    sent again under the same key, attempt 2, by lease 2
09:00:12.000    confirmed: it took place
                  → HTTP 201
09:00:20.000  step 2, lease 2, an answer is recorded
09:00:20.000    the reply is out:
                Ordered.
09:00:30.000  succeeded, claimed 2 times
`,
  },
  {
    name: "stands before the reply when nothing else changed the world",
    story: story({
      reason: "Answered",
      committedAt: at(10),
      steps: [step(1, { text: "42." })],
      calls: [reply(1)],
      effects: [replied(1, 10)],
    }),
    text: `${opening("succeeded")}09:00:10.000  step 1, lease 1, an answer is recorded
${boundary("09:00:10.000 ══ the reply, step 1")}09:00:10.000    the reply is out:
                42.
09:00:30.000  succeeded (Answered), claimed once
`,
  },
  {
    name: "stands before a reply that says what it was built on",
    story: story({
      committedAt: at(10),
      steps: [step(1, { text: "42." })],
      calls: [reply(1)],
      effects: [{ ...replied(1, 10), sources: ["api.test", "crm.test\u001b[2J"] }],
    }),
    text: `${opening("succeeded")}09:00:10.000  step 1, lease 1, an answer is recorded
${boundary("09:00:10.000 ══ the reply, step 1")}09:00:10.000    the reply is out:
                42.
                built on results of 2 sources outside: api.test, crm.test\ufffd[2J
09:00:30.000  succeeded, claimed once
`,
  },
  {
    name: "is followed by what nobody knows when a write has no known outcome",
    story: story({
      leaseToken: 2,
      message: "check there",
      committedAt: at(11),
      steps: [step(1), step(2, { token: 2, text: "I cannot tell." })],
      calls: [{ ...write, outcome: "unknown", result: "Outcome unknown." }, reply(2)],
      effects: [
        effect({
          state: "unknown",
          keyed: false,
          settledAt: at(16),
          observation: "its worker died",
          resolvedBy: "takeover",
        }),
        replied(2, 20),
      ],
    }),
    text: `${opening("succeeded")}09:00:10.000  step 1, lease 1, the model's response is recorded
${boundary("09:00:11.000 ══ http_request, step 1")}                http_request {"method":"POST"}
09:00:11.000    dispatched to https://shop.example/orders, effect effect-1, the receiver honours no key
09:00:16.000    unknown: nobody knows whether it took place (settled by: takeover)
                  its worker died
                  → unknown: Outcome unknown.
              claimed again: lease 2; the one before had lapsed or was given back
09:00:20.000  step 2, lease 2, an answer is recorded
09:00:20.000    the reply is out:
                I cannot tell.
09:00:30.000  succeeded (check there), claimed 2 times

Not known: whether the write to https://shop.example/orders took place. Look there first.
`,
  },
  {
    name: "is not there when somebody cancelled before anything had changed",
    story: story({
      status: "cancelled",
      reason: "Stopped",
      message: "wrong shop",
      endedAt: at(15),
      messages: [message({ state: "withdrawn", step: null })],
      interrupts: [interrupt({ text: "wrong shop", said: at(15), at: at(15) })],
    }),
    text: `${opening("cancelled").replace("read by step 1", "withdrawn, no recorded step has read it")}09:00:15.000  alice asked to stop:
                wrong shop
09:00:15.000    → the turn ends at once: nothing had been changed (a stop)
09:00:15.000  cancelled (Stopped: wrong shop), claimed once

No point of no return: nothing outside was changed.
`,
  },
  {
    name: "is above a stop that came after it: the turn ends by saying what it did",
    story: story({
      status: "cancelled",
      reason: "Stopped",
      endedAt: at(21),
      stopRequestedAt: at(14),
      committedAt: at(11),
      steps: [step(1), step(2, { text: "Stopped, as you asked." })],
      calls: [write, reply(2)],
      effects: [effect(), replied(2, 20)],
      interrupts: [interrupt({ actor: "bob", done: "stopping", reason: "Committed" })],
    }),
    text: `${opening("cancelled")}09:00:10.000  step 1, lease 1, the model's response is recorded
${boundary("09:00:11.000 ══ http_request, step 1")}                http_request {"method":"POST"}
09:00:11.000    dispatched to https://shop.example/orders, key effect-1
09:00:12.000    confirmed: it took place
                  → HTTP 201
09:00:14.000  bob asked to stop
09:00:14.000    → too late to undo: the turn does nothing more but say what it did: something had been changed (a stop)
09:00:20.000  step 2, lease 1, an answer is recorded
09:00:20.000    the reply is out:
                Stopped, as you asked.
09:00:21.000  cancelled (Stopped), claimed once
`,
  },
  {
    name: "is drawn as soon as a write is in flight, which says until when nobody touches it",
    story: story({
      status: "awaiting_tool",
      live: true,
      endedAt: null,
      dueAt: at(15),
      committedAt: at(11),
      steps: [step(1)],
      calls: [{ ...write, outcome: null, result: null, at: null }],
      effects: [effect({ state: "dispatched", settledAt: null, observation: null })],
    }),
    text: `${opening("awaiting_tool")}09:00:10.000  step 1, lease 1, the model's response is recorded
${boundary("09:00:11.000 ══ http_request, step 1")}                http_request {"method":"POST"}
09:00:11.000    dispatched to https://shop.example/orders, key effect-1
                in flight: nobody looks or sends again before 09:00:15.000
              awaiting_tool, due 09:00:15.000
`,
  },
];

describe("pawl why: the point of no return", () => {
  for (const { name, story, text } of CASES) {
    it(name, () => assert.equal(renderWhy(story), text));
  }

  it("is followed by results that are cut where they get long, with the number of lines left out", () => {
    const result = Array.from({ length: 20 }, (_, line) => `line ${line}`).join("\n");
    const text = renderWhy(story({ steps: [step(1)], calls: [{ ...quick, result }] }));
    assert.match(text, / {18}→ line 0\n {18}line 1\n/);
    assert.match(text, /line 5\n {18}… \(14 more lines\)\n/);
  });

  it("names a write that was given up before its first byte, and the one that its call crossed as then", () => {
    const given = effect({ id: "effect-0", state: "failed", unsent: true, settledAt: at(12) });
    const text = renderWhy(
      story({
        committedAt: at(11),
        steps: [step(1)],
        calls: [write],
        effects: [given, effect({ dispatchedAt: at(13), settledAt: at(14) })],
      }),
    );
    assert.match(
      text,
      /09:00:12\.000 +given up before its first byte: nothing left\n09:00:13\.000 +dispatched to .*\n09:00:14\.000 +confirmed/,
    );
  });

  it("says which effect an undo takes back, that a probe told an outcome, and why it was sent again without a key", () => {
    const text = renderWhy(
      story({
        committedAt: at(11),
        steps: [step(1)],
        calls: [{ ...write, tool: "undo" }],
        effects: [effect({ compensates: "effect-0", resolvedBy: "probe", keyed: false, attempt: 2 })],
      }),
    );
    assert.match(text, /^ +undoes effect effect-0$/m);
    assert.match(text, /sent again under the same id, after a look that found nothing, attempt 2/);
    assert.match(text, /confirmed: it took place \(settled by: a probe, which looked for it\)/);
  });
});
