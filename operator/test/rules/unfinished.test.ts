import assert from "node:assert/strict";
import { isUnfinished, quietMs, UNFINISHED_FACTOR } from "#rules/unfinished.ts";

describe("a message that looks unfinished", () => {
  const unfinished = [
    "look at this:\n```\nconst a = 1;",
    "~~~\nselect 1",
    "first the orders and",
    "I would rather have it in blue, but",
    "ich möchte Tee und",
    "Weil",
    "the following:",
    "milk, eggs,",
    "wait...",
    "wait…  \n",
    "so;",
  ];
  const finished = [
    "",
    "please cancel order 7",
    "Done.",
    "is that all?",
    "```\nconst a = 1;\n```",
    "the brand",
    "sand",
    "`a:` is a label",
    "and then there was one",
    "1.",
    "und:ja",
  ];
  for (const text of unfinished) it(`is ${JSON.stringify(text)}`, () => assert.equal(isUnfinished(text), true));
  for (const text of finished) it(`is not ${JSON.stringify(text)}`, () => assert.equal(isUnfinished(text), false));

  const policy = { quietMs: 2_000, maxWaitMs: 30_000, adaptive: true };

  it("lengthens the quiet time, where the agent asks for that", () => {
    assert.equal(quietMs(policy, "and"), 2_000 * UNFINISHED_FACTOR);
    assert.equal(quietMs(policy, "that is all"), 2_000);
    assert.equal(quietMs({ ...policy, adaptive: false }, "and"), 2_000);
  });

  it("never makes a turn wait longer than the longest wait", () => {
    assert.equal(quietMs({ ...policy, maxWaitMs: 5_000 }, "and"), 5_000);
    assert.equal(quietMs({ ...policy, maxWaitMs: 1_000 }, "that is all"), 1_000);
  });
});
