/** What a run keeps of its tool results, whatever they are and however many. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { compacted, NEWEST_KEPT, type Result, roomFor, SMALL_RESULT } from "#rules/compaction.ts";

const bytes = (text: string | null): number => Buffer.byteLength(text ?? "");

/** Lines and blobs, in scripts of one to four bytes a character. */
const text = fc
  .tuple(
    fc.constantFrom("a", "line\n", "é", "漢", "👍🏽", "\n", " \n", "x👍"),
    fc.integer({ min: 0, max: 2_500 }),
    fc.string({ unit: "grapheme" }),
  )
  .map(([unit, times, end]) => `${unit.repeat(times)}${end}`);
const outcome = fc.constantFrom("real", "rejected", "skipped", "cancelled", "unknown");
const results = fc
  .array(fc.record({ outcome, result: text }), { maxLength: 30 })
  .map((rows) => rows.map((row, n): Result => ({ ...row, ordinal: 1 + (n >> 1), idx: n & 1 })));
const level = fc.constantFrom(0 as const, 1 as const);
const contextTokens = fc.integer({ min: 1, max: 60_000 });
const room = fc.tuple(contextTokens, level).map(([tokens, at]) => roomFor(tokens, at));

const elided = (rows: readonly Result[], kept: readonly Result[]): boolean[] =>
  kept.map((row, index) => row.result !== rows[index]?.result);

describe("the compaction of tool results", () => {
  it("is idempotent, and the same for the same rows", () => {
    fc.assert(
      fc.property(results, room, (rows, given) => {
        const once = compacted(rows, given);
        assert.deepEqual(compacted(rows, given), once);
        assert.deepEqual(compacted(once, given), once);
      }),
    );
  });

  it("keeps short what was shortened once, in the same words, as the run grows", () => {
    fc.assert(
      fc.property(results, room, (rows, given) => {
        let before: Result[] = [];
        for (let count = 1; count <= rows.length; count += 1) {
          const shown = rows.slice(0, count);
          const now = compacted(shown, given);
          for (const [index, was] of elided(shown.slice(0, -1), before).entries()) {
            if (was) assert.deepEqual(now[index], before[index]);
          }
          before = now;
        }
      }),
    );
  });

  it("gives nothing back after an overflow", () => {
    fc.assert(
      fc.property(results, contextTokens, (rows, tokens) => {
        const before = compacted(rows, roomFor(tokens, 0));
        const after = compacted(rows, roomFor(tokens, 1));
        for (const [index, was] of elided(rows, before).entries())
          if (was) assert.deepEqual(after[index], before[index]);
      }),
    );
  });

  it("is bounded: the newest, the budget, and a small rest for each of the others", () => {
    fc.assert(
      fc.property(results, contextTokens, level, (rows, tokens, at) => {
        const given = roomFor(tokens, at);
        const sizes = compacted(rows, given).map(({ result }) => bytes(result));
        const newest = sizes.slice(-given.newest);
        if (at === 1) for (const size of newest) assert.ok(size <= Math.max(given.bytes, SMALL_RESULT));
        const older = sizes.slice(0, -given.newest).filter((size) => size > SMALL_RESULT);
        assert.ok(older.reduce((sum, size) => sum + size, 0) <= given.bytes);
      }),
    );
  });

  it("leaves small results and the newest alone, and makes no result longer or unstorable", () => {
    fc.assert(
      fc.property(results, contextTokens, level, (rows, tokens, at) => {
        const kept = compacted(rows, roomFor(tokens, at));
        for (const [index, row] of rows.entries()) {
          const now = kept[index];
          assert.ok(now);
          const { result, ...others } = now;
          assert.deepEqual({ ...others, result: row.result }, row);
          if (bytes(row.result) <= SMALL_RESULT) assert.equal(result, row.result);
          if (at === 0 && index >= rows.length - NEWEST_KEPT) assert.equal(result, row.result);
          if (result === row.result) continue;
          assert.ok(bytes(result) <= SMALL_RESULT, `${bytes(result)}`);
          assert.ok(result?.isWellFormed());
        }
      }),
    );
  });

  const same = (count: number, size: number): Result[] =>
    Array.from({ length: count }, (_, n) => ({ ordinal: n + 1, idx: 0, outcome: "real", result: "x".repeat(size) }));

  it("moves its cut in steps of half the budget, so that requests in between begin alike", () => {
    const given = { bytes: 20_000, newest: NEWEST_KEPT, evenNewest: false };
    const cuts = Array.from({ length: 25 }, (_, n) => {
      const rows = same(n, 2_000);
      return elided(rows, compacted(rows, given)).filter(Boolean).length;
    });
    assert.deepEqual(cuts, [...Array(15).fill(0), ...Array(5).fill(5), ...Array(5).fill(10)]);
  });

  it("keeps no result for being new that is more than the budget on its own, once a request was too long", () => {
    const [row] = same(1, 60_000);
    assert.ok(row);
    assert.deepEqual(compacted([row], roomFor(128_000, 0)), [row]);
    assert.match(compacted([row], roomFor(128_000, 1))[0]?.result ?? "", /^\[Shortened by Pawl/);
    assert.deepEqual(compacted([row], roomFor(1_280_000, 1)), [row]);
  });

  it("says that it was Pawl, how long the result is, where all of it is, and that an outcome is unknown", () => {
    const result = `HTTP 200\n${"body\n".repeat(1_000)}the end\n`;
    const given = { bytes: 0, newest: 0, evenNewest: false };
    const call = { ordinal: 3, idx: 2, outcome: "real", result };
    const said = compacted([call], given)[0]?.result ?? "";
    const lines = said.split("\n");
    assert.equal(
      lines[0],
      "[Shortened by Pawl to save room, not by the tool: the first and last lines of 5017 bytes. The tool read_result reads all of it: step 3, call 2.]",
    );
    assert.deepEqual([lines[1], lines.at(-1)], ["HTTP 200", "the end"]);
    assert.match(said, /\n\[… 47\d\d bytes left out by Pawl …\]\n/);
    const unknown = compacted([{ ...call, outcome: "unknown" }], given)[0]?.result ?? "";
    assert.match(unknown, /step 3, call 2\. The outcome of this call is unknown\.\]\n/);
  });
});
