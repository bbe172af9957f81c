/** Who may be shown what: every audience at every place. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { AUDIENCES, barred, type Limit, mayShow, type Place, sourcesOf, visibility } from "#rules/provenance.ts";

const limit = (audience: Limit["audience"], agentId = "a1", conversationId: string | null = "c1"): Limit => ({
  audience,
  agentId,
  conversationId,
});
const HERE: Place = { agentId: "a1", conversationId: "c1" };
const PLACES = {
  "the conversation that asked": HERE,
  "another conversation of the agent": { agentId: "a1", conversationId: "c2" },
  "another agent's conversation": { agentId: "a2", conversationId: "c3" },
} as const satisfies Record<string, Place>;

/** Audience × place. */
const TABLE: Record<Limit["audience"], Record<keyof typeof PLACES, boolean>> = {
  conversation: {
    "the conversation that asked": true,
    "another conversation of the agent": false,
    "another agent's conversation": false,
  },
  agent: {
    "the conversation that asked": true,
    "another conversation of the agent": true,
    "another agent's conversation": false,
  },
  public: {
    "the conversation that asked": true,
    "another conversation of the agent": true,
    "another agent's conversation": true,
  },
};

describe("what came from outside", () => {
  for (const audience of AUDIENCES) {
    for (const [name, place] of Object.entries(PLACES)) {
      const may = TABLE[audience][name as keyof typeof PLACES];
      it(`for the audience ${audience} ${may ? "may" : "may not"} be shown in ${name}`, () => {
        assert.equal(mayShow([limit(audience)], place), may);
      });
    }
  }

  it("may be shown only where all of it may be, and what bars is told", () => {
    const mine = limit("conversation");
    const theirs = limit("conversation", "a1", "c2");
    assert.equal(mayShow([limit("public"), mine], HERE), true);
    assert.deepEqual(barred([limit("public"), mine, theirs], HERE), [theirs]);
    assert.equal(mayShow([], HERE), true, "nothing from outside, nothing in the way");
  });

  it("whose record is gone may be shown nowhere", () => {
    assert.equal(mayShow([limit("conversation", "a1", null)], HERE), false);
  });

  it("names each source once", () => {
    assert.deepEqual(sourcesOf([{ source: "a" }, { source: "b" }, { source: "a" }]), ["a", "b"]);
  });
});

describe("the visibility of a memory", () => {
  it("is the narrowest of its limits", () => {
    assert.equal(visibility([]), "everywhere");
    assert.equal(visibility([limit("public"), limit("agent")]), "agent:a1");
    assert.equal(visibility([limit("agent"), limit("conversation")]), "conversation:c1");
    assert.equal(visibility([limit("conversation"), limit("conversation", "a1", "c2")]), "nowhere");
    assert.equal(visibility([limit("conversation", "a1", null)]), "nowhere");
  });

  it("says the same as mayShow of every place", () => {
    // A conversation belongs to one agent.
    const placeOf = (conversation: string): Place => ({
      agentId: conversation === "c3" ? "a2" : "a1",
      conversationId: conversation,
    });
    const limits = fc.array(
      fc
        .tuple(fc.constantFrom(...AUDIENCES), fc.constantFrom("c1", "c2", "c3"))
        .map(([audience, conversation]): Limit => ({ audience, ...placeOf(conversation) })),
      { maxLength: 4 },
    );
    fc.assert(
      fc.property(limits, fc.constantFrom("c1", "c2", "c3"), (all, conversation) => {
        const place = placeOf(conversation);
        const word = visibility(all);
        const shown =
          word === "everywhere" || word === `agent:${place.agentId}` || word === `conversation:${place.conversationId}`;
        // Two agents' limits together are nowhere, as is one agent's conversation with another agent.
        if (shown) assert.equal(mayShow(all, place), true, word);
        if (mayShow(all, place)) assert.equal(shown, true, word);
      }),
    );
  });
});
