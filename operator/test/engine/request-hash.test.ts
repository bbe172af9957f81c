/** A request's hash, and that a long run does not build and hash all of its steps again at each one. */
import assert from "node:assert/strict";
import { requestHash } from "#engine/request-hash.ts";
import { NEWEST_KEPT } from "#rules/compaction.ts";
import { transcript, type TranscriptInput } from "#rules/transcript.ts";

const tools = [{ name: "echo", description: "Echoes.", parameters: { type: "object" } }];

/** Rows of a run with so many steps of one call each; results are long enough to be shortened where they do not fit. */
function rows(steps: number): TranscriptInput {
  const ordinals = Array.from({ length: steps }, (_, n) => n + 1);
  return {
    agentName: "a",
    instructions: "Be brief.",
    contextTokens: 16_000,
    compaction: 0,
    toolsOffered: true,
    resuming: false,
    earlier: [],
    triggers: [{ actor: "alice", text: "go on", deliveredOrdinal: 1 }],
    steps: ordinals.map((ordinal) => ({
      ordinal,
      resumed: false,
      response: { text: null, calls: [{ name: "echo", argumentsText: `{"n":${ordinal}}` }], truncated: false },
    })),
    calls: ordinals.map((ordinal) => ({
      ordinal,
      idx: 0,
      tool: "echo",
      class: "pure",
      outcome: "real",
      result: `${ordinal} `.repeat(1_500),
    })),
  };
}

const until = (all: TranscriptInput, steps: number): TranscriptInput => ({
  ...all,
  steps: all.steps.slice(0, steps),
  calls: all.calls.slice(0, steps),
});

describe("a request of a long run", () => {
  it("has the messages of earlier steps as the same objects, shortened ones too", () => {
    const all = rows(40);
    const before = transcript(until(all, 39));
    const after = transcript(all);
    // The system message and the person's are made anew; so is a result when the cut passes it.
    const fresh = after.filter((message) => !before.includes(message));
    assert.ok(after.length === 2 + 80 && fresh.length <= 2 + 2 + 2 * (39 - NEWEST_KEPT));
    const again = transcript(all);
    assert.deepEqual(again, after);
    assert.equal(again.filter((message) => !after.includes(message)).length, 2);
    assert.ok(after.some(({ content }) => content?.startsWith("[Shortened by Pawl")));
  });

  it("has the same hash whether the run went on in memory or was read back", () => {
    const all = rows(40);
    for (let steps = 1; steps < 40; steps += 1) transcript(until(all, steps));
    const messages = transcript(all);
    const readBack = transcript(JSON.parse(JSON.stringify(all)) as TranscriptInput);
    assert.equal(requestHash({ messages, tools }), requestHash({ messages: readBack, tools }));
  });

  it("has the hash of a request that stands alone, whether it goes on from the last one or does not", () => {
    const all = rows(40);
    for (const steps of [1, 2, 3, 20, 40, 39, 2]) {
      const messages = transcript(until(all, steps));
      assert.equal(requestHash({ messages, tools }), requestHash({ messages, tools: [...tools] }), `${steps} steps`);
    }
  });

  it("has another hash when a message, their order, their number or a tool is another one", () => {
    const messages = transcript(rows(3));
    const [first, second, ...rest] = messages;
    assert.ok(first !== undefined && second !== undefined);
    const others = [
      { messages: [second, first, ...rest], tools },
      { messages: messages.slice(1), tools },
      { messages: [...messages, { role: "user" as const, content: "more" }], tools },
      { messages: [{ ...first, content: "x" }, second, ...rest], tools },
      { messages, tools: [{ ...tools[0]!, description: "Echoes!" }] },
      { messages, tools: [] },
    ];
    const hashes = new Set([{ messages, tools }, ...others].map(requestHash));
    assert.equal(hashes.size, 1 + others.length);
  });
});
