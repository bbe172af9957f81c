import assert from "node:assert/strict";
import {
  BOUNDARIES,
  BOUNDARY,
  boundaryOf,
  type Crossing,
  type CrossingFacts,
  crossingOf,
  crossingVerdict,
  STOP,
} from "#rules/boundary.ts";
import { JOURNALED } from "#rules/effects.ts";

const CALM: CrossingFacts = {
  leaseHeld: true,
  live: true,
  boundary: "buffering",
  stopRequested: false,
  newerInput: false,
  held: false,
};

describe("the commit boundary", () => {
  it("goes from buffering to committed once, gives the cause to the reply, and refuses after it", () => {
    assert.deepEqual(BOUNDARY, {
      buffering: { tool: "committed_by_tool", reply: "committed_by_reply" },
      committed_by_tool: { tool: "committed_by_tool", reply: "committed_by_reply" },
      committed_by_reply: { tool: "refuse", reply: "refuse" },
    });
  });

  it("is read from two times on the run: of the first crossing, of the reply", () => {
    const now = new Date(0);
    assert.equal(boundaryOf({ committedAt: null, replyAt: null }), "buffering");
    assert.equal(boundaryOf({ committedAt: now, replyAt: null }), "committed_by_tool");
    assert.equal(boundaryOf({ committedAt: now, replyAt: now }), "committed_by_reply");
  });

  it("is crossed as a reply by the reply alone", () => {
    assert.deepEqual(
      JOURNALED.map((kind) => [kind, crossingOf(kind)]),
      [
        ["tool.effect", "tool"],
        ["tool.workspace", "tool"],
        ["tool.browser", "tool"],
        ["egress.mutation", "tool"],
        ["compensation", "tool"],
        ["reply", "reply"],
      ],
    );
  });

  it("decides what a stop does: the end, the reply alone, or nothing", () => {
    assert.deepEqual(STOP, {
      buffering: "cancelled",
      committed_by_tool: "stopping",
      committed_by_reply: "nothing_left",
    });
  });
});

describe("a crossing", () => {
  it("goes through when nothing stands in its way, before the boundary and after a tool crossed it", () => {
    for (const boundary of ["buffering", "committed_by_tool"] as const) {
      for (const crossing of ["tool", "reply"] as const) {
        assert.equal(crossingVerdict({ ...CALM, boundary }, crossing), "crossed");
      }
    }
  });

  it("is refused for the first of its reasons, in the order ended, fenced, reply_sent, stopping, stale_input, hold", () => {
    const worst: CrossingFacts = {
      live: false,
      leaseHeld: false,
      boundary: "committed_by_reply",
      stopRequested: true,
      newerInput: true,
      held: true,
    };
    const relieved: [Partial<CrossingFacts>, string, string][] = [
      [{}, "ended", "ended"],
      [{ live: true }, "fenced", "fenced"],
      [{ leaseHeld: true }, "reply_sent", "reply_sent"],
      [{ boundary: "committed_by_tool" }, "stopping", "crossed"],
      [{ stopRequested: false }, "stale_input", "stale_input"],
      [{ newerInput: false }, "hold", "hold"],
      [{ held: false }, "crossed", "crossed"],
    ];
    let facts = worst;
    for (const [change, tool, reply] of relieved) {
      facts = { ...facts, ...change };
      assert.equal(crossingVerdict(facts, "tool"), tool);
      assert.equal(crossingVerdict(facts, "reply"), reply);
    }
  });

  it("lets the reply of a stopped turn out even past newer input and undecided messages", () => {
    const stopped = {
      ...CALM,
      boundary: "committed_by_tool",
      stopRequested: true,
      newerInput: true,
      held: true,
    } as const;
    assert.equal(crossingVerdict(stopped, "reply"), "crossed");
    assert.equal(crossingVerdict(stopped, "tool"), "stopping");
  });

  it("is never allowed without a lease on a live turn whose reply is still owed", () => {
    let tried = 0;
    for (const boundary of BOUNDARIES) {
      for (let bits = 0; bits < 32; bits += 1) {
        const facts: CrossingFacts = {
          boundary,
          leaseHeld: (bits & 1) > 0,
          live: (bits & 2) > 0,
          stopRequested: (bits & 4) > 0,
          newerInput: (bits & 8) > 0,
          held: (bits & 16) > 0,
        };
        for (const crossing of ["tool", "reply"] as const satisfies Crossing[]) {
          tried += 1;
          if (crossingVerdict(facts, crossing) !== "crossed") continue;
          assert.ok(facts.live && facts.leaseHeld && boundary !== "committed_by_reply");
          assert.ok(crossing === "reply" || !facts.stopRequested);
          assert.ok(facts.stopRequested || (!facts.newerInput && !facts.held));
        }
      }
    }
    assert.equal(tried, 192);
  });
});
