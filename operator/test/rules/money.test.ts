import assert from "node:assert/strict";
import { costMicros, estimatedTokens, toMicros } from "#rules/money.ts";

describe("the cost of a model call", () => {
  const prices = { input: 0.1, cachedInput: 0.01, output: 0.4 };

  it("is tokens times dollars per million, in millionths of a dollar, rounded up", () => {
    assert.equal(costMicros({ inputTokens: 1_000_000, outputTokens: 500_000 }, prices), 300_000);
    assert.equal(costMicros({ inputTokens: 1, outputTokens: 0 }, prices), 1);
    assert.equal(costMicros({ inputTokens: 30, outputTokens: 0 }, prices), 3, "and not 4, as binary fractions have it");
  });

  it("counts cached input at its own price, or at the full one where it has none", () => {
    const used = { inputTokens: 1_000, outputTokens: 0, cachedInputTokens: 900 };
    assert.equal(costMicros(used, prices), 19);
    assert.equal(costMicros(used, { input: 0.1, output: 0.4 }), 100);
    assert.equal(costMicros({ ...used, cachedInputTokens: 5_000 }, prices), 10, "no more is cached than was sent");
  });

  it("is nothing where the price is nothing, and not known where price or usage is not", () => {
    assert.equal(costMicros({ inputTokens: 5, outputTokens: 5 }, { input: 0, output: 0 }), 0);
    assert.equal(costMicros({ inputTokens: 5, outputTokens: 5 }, undefined), null);
    assert.equal(costMicros(null, prices), null);
  });

  it("is estimated rather too high than too low", () => {
    assert.deepEqual([estimatedTokens(0), estimatedTokens(1), estimatedTokens(7)], [0, 1, 3]);
    assert.equal(toMicros(0.29), 290_000);
  });
});
