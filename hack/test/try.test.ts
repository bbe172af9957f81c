import assert from "node:assert/strict";
import { parseArguments } from "../try/arguments.ts";
import { Counter, contradictions } from "../try/counter.ts";
import { POINTS, rounds } from "../try/kills.ts";
import { SHOPS } from "../try/shops.ts";
import { parseLog, recount } from "../try/witness.ts";

const entry = (order: string, outcome: string, path: string = SHOPS.north) => ({
  path,
  outcome,
  bodyPreview: JSON.stringify({ order, tea: "Assam" }),
});

describe("the witness's recount", () => {
  it("tells a copy of an order from another order, and a repeated request from a write", () => {
    const log = [entry("1", "write"), entry("1", "replay"), entry("2", "write"), entry("2", "write")];
    assert.deepEqual(recount(log, "north"), { orders: 2, requests: 4, writes: 3, doubled: 1 });
  });

  it("counts each shop by itself", () => {
    const log = [entry("1", "write", SHOPS.west), entry("1", "write", SHOPS.south)];
    assert.deepEqual(recount(log, "west"), { orders: 1, requests: 1, writes: 1, doubled: 0 });
    assert.deepEqual(recount(log, "north"), { orders: 0, requests: 0, writes: 0, doubled: 0 });
  });

  it("reads the log file and leaves out its first line", () => {
    assert.deepEqual(parseLog('{"seq":0,"at":"","event":"started"}\n{"seq":1,"at":"","path":"/x"}\n'), [
      { seq: 1, at: "", path: "/x" },
    ]);
  });
});

describe("what Pawl says against what the witness saw", () => {
  const against = (
    tally: { asked: number; confirmed: number; unknown: number; failed?: number },
    seen: { writes: number; doubled: number },
    shop: "north" | "south" = "north",
  ) => contradictions([{ shop, tally: { kills: 1, failed: 0, ...tally }, seen: { orders: 1, requests: 2, ...seen } }]);

  for (const [name, tally, seen, expected] of [
    ["agrees", { asked: 1, confirmed: 1, unknown: 0 }, { writes: 1, doubled: 0 }, []],
    ["may not know of a write that happened", { asked: 1, confirmed: 0, unknown: 1 }, { writes: 1, doubled: 0 }, []],
    ["may say that it was not done", { asked: 1, confirmed: 0, unknown: 0, failed: 1 }, { writes: 0, doubled: 0 }, []],
    ["may not know of a write that did not", { asked: 1, confirmed: 0, unknown: 1 }, { writes: 0, doubled: 0 }, []],
    ["differs by a doubled write", { asked: 1, confirmed: 2, unknown: 0 }, { writes: 2, doubled: 1 }, [/too many/]],
    [
      "differs by a write that never was",
      { asked: 1, confirmed: 1, unknown: 0 },
      { writes: 0, doubled: 0 },
      [/said to/],
    ],
    ["differs by a lost order", { asked: 2, confirmed: 1, unknown: 0 }, { writes: 1, doubled: 0 }, [/are lost/]],
    [
      "differs by a write it never mentions",
      { asked: 0, confirmed: 0, unknown: 0 },
      { writes: 1, doubled: 0 },
      [/accounted/],
    ],
  ] as const) {
    it(name, () => {
      const found = against(tally, seen);
      assert.equal(found.length, expected.length, found.join("; "));
      for (const [index, pattern] of expected.entries()) assert.match(found[index] ?? "", pattern);
    });
  }

  it("is not asked of the plain loop, which promises nothing", () => {
    assert.deepEqual(against({ asked: 1, confirmed: 1, unknown: 0 }, { writes: 2, doubled: 1 }, "south"), []);
  });

  it("is counted as it goes, in one line", () => {
    const counter = new Counter();
    Object.assign(counter.of.north, { kills: 2, asked: 2, confirmed: 2 });
    Object.assign(counter.of.west, { kills: 1, asked: 1, unknown: 1 });
    assert.equal(counter.line(), "kills 3 │ Pawl: 3 asked, 2 done, 1 not known │ plain loop: 0 asked, 0 done");
  });
});

describe("the places of random kills", () => {
  it("are the same for the same seed, and others for another", () => {
    assert.deepEqual(rounds(20, 5), rounds(20, 5));
    assert.notDeepEqual(rounds(20, 5), rounds(20, 6));
  });

  it("come from the whole list", () => {
    assert.equal(new Set(rounds(2_000, 1).map(({ point }) => point)).size, POINTS.length);
  });
});

describe("the command line of npm run try", () => {
  const parse = (...words: string[]) => parseArguments(words, false, 42);

  it("waits for keys on a terminal, and for nobody elsewhere or with --yes", () => {
    assert.equal(parseArguments([], true, 1).play, true);
    assert.equal(parseArguments(["--yes"], true, 1).play, false);
    assert.equal(parse().play, false);
  });

  it("takes a number of kills and a seed, or chance's", () => {
    assert.deepEqual([parse("--kills", "5").kills, parse("--kills", "5").seed], [5, 42]);
    assert.equal(parse("--kills", "5", "--seed", "7").seed, 7);
  });

  for (const [words, sentence] of [
    [["--play"], /needs a terminal/],
    [["--kills", "many"], /--kills takes a whole number from 1 to 1000, not "many"/],
    [["--kills", "0"], /from 1 to 1000/],
    [["--seed", "3"], /--seed chooses places for --kills/],
    [["--record", ""], /name of a file/],
    [["--fast"], /--fast/],
    [["more"], /more/],
  ] as const) {
    it(`says what is wrong with ${words.join(" ")}`, () => {
      assert.throws(() => parse(...words), sentence);
    });
  }

  it("refuses --play together with --yes", () => {
    assert.throws(() => parseArguments(["--play", "--yes"], true, 1), /give one of them/);
  });
});
