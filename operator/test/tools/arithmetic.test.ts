import assert from "node:assert/strict";
import { evaluate, MAX_DEPTH } from "#tools/arithmetic.ts";
import { calculate, MAX_EXPRESSION } from "#tools/quick.ts";
import { CALL_RUN } from "../support/call-run.ts";

describe("calculate", () => {
  const right: [string, string][] = [
    ["6*7", "42"],
    ["1 + 2 * 3", "7"],
    ["(1 + 2) * 3", "9"],
    ["2^3^2", "512"],
    ["-2^2", "-4"],
    ["2^-1", "0.5"],
    ["10 - 4 - 3", "3"],
    ["7 % 4", "3"],
    ["0.1 + 0.2", "0.3"],
    ["1/3", "0.333333333333333"],
    ["--4", "4"],
    [".5 + 1.", "1.5"],
    ["1e3 + 1", "1001"],
    ["2^60", "about 1.15292150460685e+18"],
    [" ( ( 8 ) ) ", "8"],
    ["0 * -1", "0"],
  ];
  for (const [expression, text] of right) {
    it(`${expression} is ${text}`, () => assert.deepEqual(evaluate(expression), { ok: true, text }));
  }
  const wrong: [string, RegExp][] = [
    ["", /ends too early/],
    ["1 +", /ends too early/],
    ["(1", /ends too early/],
    ["1 2", /position 3/],
    ["process.exit(1)", /position 1: “p”/],
    ["1 / 0", /not a finite number/],
    ["0 / 0", /not a finite/],
    ["9^9^9", /not a finite/],
    ["1)", /position 2/],
    ["２+2", /position 1/],
  ];
  for (const [expression, words] of wrong) {
    it(`"${expression}" is refused in words`, () => {
      const answer = evaluate(expression);
      assert.equal(answer.ok, false);
      assert.match(answer.message, words);
    });
  }

  it("bounds nesting, of parentheses and of powers", () => {
    assert.equal(evaluate(`${"(".repeat(MAX_DEPTH)}1${")".repeat(MAX_DEPTH)}`).ok, true);
    assert.equal(evaluate(`${"(".repeat(MAX_DEPTH + 1)}1${")".repeat(MAX_DEPTH + 1)}`).ok, false);
    assert.equal(evaluate(Array.from({ length: 400 }, () => "1").join("^")).ok, false);
    assert.equal(evaluate(`${"-".repeat(900)}1`).ok, true);
  });

  it("is quick, harmless, and answers with the bare result", async () => {
    assert.equal(calculate.quick, true);
    assert.equal(calculate.effect({}), "tool.query");
    const parsed = calculate.parse({ expression: "17 * 23" });
    assert.ok(parsed.ok);
    const outcome = await calculate.execute(parsed.value, {
      run: CALL_RUN,
      signal: new AbortController().signal,
      timeLimitMs: 1,
    });
    assert.deepEqual(outcome, { kind: "confirmed", observation: "391", receipt: {} });
  });

  it("refuses malformed arguments in words a model can use", () => {
    for (const args of [
      null,
      7,
      {},
      { expression: 7 },
      { expression: "1".repeat(MAX_EXPRESSION + 1) },
      { expression: "1", x: 1 },
    ]) {
      const parsed = calculate.parse(args);
      assert.equal(parsed.ok, false);
      assert.match(parsed.message, /The arguments were not accepted/);
    }
  });
});
