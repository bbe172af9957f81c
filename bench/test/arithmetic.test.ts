/** The runner's arithmetic: what is a median, when a bar is met, what a script reads. No benchmark runs here. */
import assert from "node:assert/strict";
import { atMost, lastLine, median, quantile, rotated, unevenness } from "../arithmetic.ts";
import { barsOf, CELLS, cellName, diskBarsOf, type Figures, figuresOf, type Results, tableOf } from "../step.ts";

describe("the arithmetic of a benchmark", () => {
  it("takes the middle of the values, whatever their order, and half way between two", () => {
    assert.equal(median([9, 1, 5]), 5);
    assert.equal(median([4, 1, 2, 3]), 2.5);
    assert.equal(quantile([10, 20, 30, 40, 50], 1), 50);
    assert.equal(quantile([10, 20], 0.25), 12.5);
  });

  it("meets a bar at its limit, misses it above, and never meets it with what was not measured", () => {
    assert.equal(atMost("a", 2.5, 2.5).ok, true);
    assert.equal(atMost("a", 2.501, 2.5).ok, false, "the value itself is compared, not what a table shows of it");
    assert.equal(atMost("a", median([]), 2.5).ok, false);
  });

  it("measures flatness from the first value on, up and down", () => {
    assert.equal(unevenness([100, 110, 95]), 0.1);
    assert.equal(unevenness([100, 100, 100]), 0);
    assert.ok(Number.isNaN(unevenness([100, Number.NaN])));
    assert.ok(Number.isNaN(unevenness([])));
  });

  it("begins every round with another system", () => {
    assert.deepEqual(
      [0, 1, 2, 3].map((round) => rotated(["a", "b", "c"], round).join("")),
      ["abc", "bca", "cab", "abc"],
    );
  });

  it("ends with one line that a script can read, also with a figure that is missing", () => {
    const line = lastLine("step", [atMost("x", Number.NaN, 1)]);
    assert.deepEqual(JSON.parse(line), { bench: "step", bars: [{ name: "x", value: null, limit: 1, ok: false }] });
    assert.ok(!line.includes("\n"));
  });
});

describe("the benchmark step", () => {
  const figures = (changes: Partial<Figures>): Figures => ({
    p50: 1,
    p99: 2,
    roundTrips: 1,
    commits: 1,
    wal: 2_400,
    cut: false,
    ...changes,
  });
  const everywhere = (one: Figures) => new Map(CELLS.map((cell) => [cellName(cell), one]));
  const results = (changes: Partial<Results> = {}): Results => ({
    systems: new Map([
      ["pawl", everywhere(figures({}))],
      ["slow", everywhere(figures({ p50: 9 }))],
      ["best", everywhere(figures({ p50: 2 }))],
    ]),
    floor: { name: "floor (pgbench)", p50: new Map(CELLS.map((cell) => [cellName(cell), 0.4])) },
    effects: new Map([
      [1, 2],
      [2, 3],
      [5, 6],
    ]),
    ...changes,
  });
  const missed = (changes: Partial<Results>): string[] =>
    barsOf(results(changes))
      .filter(({ ok }) => !ok)
      .map(({ name }) => name);

  it("takes a round's median first and then the rounds' median, and knows of a run that was cut", () => {
    const round = (gaps: number[], cut = false) => ({ steps: 3, gaps, roundTrips: 1, commits: 1, wal: 1, cut });
    const over = figuresOf([round([1, 2, 90]), round([5, 5, 5]), round([3, 4, 80], true)]);
    assert.equal(over.p50, 4);
    assert.equal(over.cut, true);
  });

  it("meets every bar with figures at the limits, beside the best of the peers", () => {
    assert.deepEqual(missed({}), []);
    const ratio = barsOf(results()).find(({ name }) => name === "p50 ÷ best peer, 50 steps, 1 KiB");
    assert.deepEqual(ratio, { name: "p50 ÷ best peer, 50 steps, 1 KiB", value: 0.5, limit: 0.5, ok: true });
  });

  it("misses the bars that its figures miss, and no other", () => {
    const own = everywhere(figures({}));
    own.set("1000 steps, 1 KiB", figures({ wal: 2_700, p50: 1.06 }));
    const systems = new Map([...results().systems, ["pawl", own] as const]);
    assert.deepEqual(missed({ systems }), [
      "WAL per step at 1 KiB, bytes",
      "WAL uneven over 50/200/1000 steps, share",
      "p50 ÷ best peer, 1000 steps, 1 KiB",
      "p50 ÷ floor, 1000 steps, 1 KiB",
    ]);
    assert.deepEqual(
      missed({
        effects: new Map([
          [1, 2],
          [2, 4],
        ]),
      }),
      ["commits of 2 effectful calls", "commits of 5 effectful calls"],
    );
  });

  it("is held, on a slow disk, against the best of the peers that were measured there", () => {
    const own = everywhere(figures({ p50: 2.5 }));
    own.set("50 steps, 16 KiB", figures({ p50: 2.6 }));
    const gone = new Map<string, Figures>();
    const bars = diskBarsOf(results({ systems: new Map([...results().systems, ["pawl", own], ["gone", gone]]) }));
    assert.deepEqual(
      bars.map(({ name, ok }) => [name, ok]),
      [
        ["p50 ÷ best peer, 50 steps, 1 KiB", true],
        ["p50 ÷ best peer, 200 steps, 1 KiB", true],
        ["p50 ÷ best peer, 50 steps, 16 KiB", false],
        ["p50 ÷ best peer, 200 steps, 16 KiB", true],
      ],
    );
    const alone = results({ systems: new Map([["pawl", own]]) });
    assert.ok(
      diskBarsOf(alone).every(({ ok }) => !ok),
      "without a peer no bar is met",
    );
  });

  it("shows every system in every cell, and says which one was cut or left out", () => {
    const systems = new Map([
      ["pawl", everywhere(figures({ cut: true }))],
      ["gone", new Map<string, Figures>()],
    ]);
    const lines = tableOf(results({ systems })).split("\n");
    assert.equal(lines.length, 2 + 3 * CELLS.length);
    assert.ok(lines.some((line) => line.includes("cut at 30 s")));
    assert.ok(lines.some((line) => line.includes("not measured")));
  });
});
