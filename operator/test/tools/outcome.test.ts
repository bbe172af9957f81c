import assert from "node:assert/strict";
import { type Exchange, type Verdict, verdictOf } from "#tools/outcome.ts";

const answered = (status: number): Exchange => ({ kind: "answered", status });

describe("what an exchange proves about a write", () => {
  const table: [Verdict, number[]][] = [
    ["confirmed", [200, 201, 202, 204, 299, 301, 302, 303, 304]],
    ["failed", [307, 308, 400, 401, 403, 404, 405, 410, 412, 413, 415, 422, 429, 451, 501, 505]],
    ["unknown", [408, 409, 425, 500, 502, 503, 504, 507, 520, 524, 599, 600, 199, 0]],
  ];
  for (const [verdict, statuses] of table) {
    for (const status of statuses) {
      it(`${status} is ${verdict}`, () => assert.equal(verdictOf(answered(status), false), verdict));
    }
  }
  it("nothing sent is failed, no answer is unknown", () => {
    assert.equal(verdictOf({ kind: "not-sent", why: "" }, false), "failed");
    assert.equal(verdictOf({ kind: "no-answer", why: "" }, false), "unknown");
  });
});

describe("what an exchange means for a read", () => {
  it("is never unknown: a read can simply be done again", () => {
    for (let status = 0; status < 700; status += 1) assert.notEqual(verdictOf(answered(status), true), "unknown");
    assert.equal(verdictOf({ kind: "no-answer", why: "" }, true), "failed");
    assert.equal(verdictOf(answered(200), true), "confirmed");
    assert.equal(verdictOf(answered(308), true), "confirmed");
    assert.equal(verdictOf(answered(404), true), "failed");
    assert.equal(verdictOf(answered(500), true), "failed");
  });
});
