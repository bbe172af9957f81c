/** How the figures of `steer` become bars. No benchmark runs here. */
import assert from "node:assert/strict";
import { barsOf, CASES, tableOf } from "../steer.ts";

describe("the benchmark steer", () => {
  const all = (ms: number) => new Map(CASES.map((name) => [name, [ms, ms]]));
  const missed = (ms: number): string[] =>
    barsOf(all(ms))
      .filter(({ ok }) => !ok)
      .map(({ name }) => name);

  it("has 200 ms for what is seen and 250 ms for what is cut off", () => {
    assert.deepEqual(missed(200), []);
    assert.equal(missed(201).length, 3);
    assert.ok(missed(201).every((name) => name.startsWith("amend")));
    assert.equal(missed(251).length, CASES.length);
  });

  it("misses its bar with a correction that nobody saw, and with a case that was not measured", () => {
    const [first] = CASES;
    const seldom = new Map([...all(1), [first, [...Array.from({ length: 30 }, () => 1), Number.POSITIVE_INFINITY]]]);
    assert.deepEqual(barsOf(seldom).filter(({ ok }) => !ok).length, 1);
    assert.equal(barsOf(new Map()).filter(({ ok }) => ok).length, 0);
  });

  it("shows every case", () => {
    assert.equal(tableOf(all(1)).split("\n").length, 2 + CASES.length);
  });
});
