import assert from "node:assert/strict";
import fc from "fast-check";
import { failure } from "#models/classify.ts";
import { afterFailure, MAX_ATTEMPTS, MAX_BACKOFF_MS, MAX_WAIT_MS, SPREAD_MS } from "#rules/retry.ts";
import { retryAfterMs } from "#models/retry-after.ts";

const transient = (wait?: number) => failure("transient", "X", "", wait);

describe("the retry policy", () => {
  it("waits longer each time, between half and all of a doubling step", () => {
    for (const [attempt, step] of [
      [1, 1_000],
      [2, 2_000],
      [3, 4_000],
      [6, 32_000],
    ] as const) {
      assert.deepEqual(afterFailure({ attempt, ...transient(), random: 0 }), { kind: "wait", ms: step / 2 });
      assert.deepEqual(afterFailure({ attempt, ...transient(), random: 0.5 }), { kind: "wait", ms: step * 0.75 });
    }
  });

  it("keeps an imposed wait in full, also above a minute", () => {
    assert.deepEqual(afterFailure({ attempt: 1, ...transient(120_000), random: 0 }), {
      kind: "wait",
      ms: 120_000,
    });
    const spread = afterFailure({ attempt: 1, ...transient(120_000), random: 0.5 });
    assert.deepEqual(spread, { kind: "wait", ms: 120_000 + SPREAD_MS / 2 });
  });

  it("still backs off when told to come back at once", () => {
    assert.deepEqual(afterFailure({ attempt: 3, ...transient(0), random: 0 }), { kind: "wait", ms: 2_000 });
  });

  it("gives up rather than come back early", () => {
    const giveUp = { kind: "give-up", why: "wait-too-long" };
    assert.deepEqual(afterFailure({ attempt: 1, ...transient(MAX_WAIT_MS + SPREAD_MS + 1), random: 0 }), giveUp);
    assert.deepEqual(afterFailure({ attempt: 1, ...transient(120_000), random: 0, remainingMs: 119_999 }), giveUp);
    assert.equal(afterFailure({ attempt: 1, ...transient(MAX_WAIT_MS), random: 0.999 }).kind, "wait");
  });

  it("ends after a bounded number of attempts", () => {
    assert.equal(afterFailure({ attempt: MAX_ATTEMPTS - 1, ...transient(), random: 0 }).kind, "wait");
    const last = afterFailure({ attempt: MAX_ATTEMPTS, ...transient(), random: 0 });
    assert.deepEqual(last, { kind: "give-up", why: "attempts-used-up" });
  });

  for (const failureClass of ["terminal", "overflow", "cancelled"] as const) {
    it(`never repeats what is ${failureClass}`, () => {
      const decision = afterFailure({ attempt: 1, ...failure(failureClass, "X", ""), random: 0 });
      assert.deepEqual(decision, { kind: "give-up", why: "not-retryable" });
    });
  }

  it("never waits less than was imposed, nor longer than any bound", () => {
    const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 20 }), fc.option(fc.nat(4_000_000)), random, (attempt, imposed, roll) => {
        const decision = afterFailure({ attempt, ...transient(imposed ?? undefined), random: roll });
        if (decision.kind === "give-up") return true;
        const atMost = Math.max(MAX_BACKOFF_MS, (imposed ?? 0) + SPREAD_MS);
        return decision.ms >= (imposed ?? 1) && decision.ms <= atMost && decision.ms <= MAX_WAIT_MS + SPREAD_MS;
      }),
    );
  });
});

describe("Retry-After", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  const of = (headers: Record<string, string>): number | undefined => retryAfterMs(new Headers(headers), now);
  const table: [string, Record<string, string>, number | undefined][] = [
    ["seconds", { "retry-after": "120" }, 120_000],
    ["fractions of seconds", { "retry-after": "0.5" }, 500],
    ["milliseconds before seconds", { "retry-after-ms": "1500", "retry-after": "120" }, 1_500],
    ["a date", { "retry-after": "Thu, 01 Jan 2026 00:02:00 GMT" }, 120_000],
    [
      "a date by the server's own clock",
      { "retry-after": "Thu, 01 Jan 2026 00:02:00 GMT", date: "Thu, 01 Jan 2026 00:01:00 GMT" },
      60_000,
    ],
    ["a date that has passed", { "retry-after": "Wed, 31 Dec 2025 00:00:00 GMT" }, 0],
    ["nothing", {}, undefined],
    ["nonsense", { "retry-after": "soon" }, undefined],
    ["a negative number", { "retry-after": "-5x" }, undefined],
    ["nonsense milliseconds beside seconds", { "retry-after-ms": "x", "retry-after": "2" }, 2_000],
  ];
  for (const [title, headers, ms] of table) it(`reads ${title}`, () => assert.equal(of(headers), ms));
});
