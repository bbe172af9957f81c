/** Every failpoint once, and a seeded sample of the other variants; `npm run crash-sweep` runs them all. */
import assert from "node:assert/strict";
import { sharedPostgres } from "../support/postgres.ts";
import { startWorld, type World } from "./scenario.ts";
import { caseName, type CaseSpec, listCases, type Outcome, runCases, summarise } from "./sweep.ts";

/** Cases of the other variants that are tried here. */
const SAMPLE = 15;
const WIDTH = 3;

/** mulberry32: the same sample for the same seed. */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 4_294_967_296;
  };
}

describe("the crash sweep", function () {
  this.timeout(900_000);
  let fakes: World;
  let outcomes: Outcome[] = [];
  let cases: CaseSpec[] = [];

  before(async () => {
    const postgres = await sharedPostgres();
    fakes = await startWorld();
    const all = await listCases(postgres, fakes);
    const first = all.filter((spec) => spec.variant === "kill" && spec.point.occurrence === 1);
    const seed = Number.parseInt(new Date().toISOString().slice(0, 10).replaceAll("-", ""), 10);
    const random = chance(seed);
    const rest = all.filter((spec) => !first.includes(spec)).map((spec) => ({ spec, at: random() }));
    const sample = rest.sort((a, b) => a.at - b.at).slice(0, SAMPLE);
    console.log(`      sample seed ${seed} of ${rest.length} further cases`);
    cases = [...first, ...sample.map(({ spec }) => spec)];
    outcomes = await runCases(postgres, fakes, cases, WIDTH);
  });

  after(async () => {
    await fakes.stop();
  });

  it("kills at no fewer than 25 points, before and after every statement and outside call of the run", () => {
    assert.ok(summarise(outcomes).points >= 25, JSON.stringify(summarise(outcomes)));
  });

  it("loses nothing, repeats nothing, breaks no invariant", () => {
    const bad = outcomes.filter((outcome) => outcome.violations.length > 0);
    for (const outcome of bad) console.log(`${caseName(outcome.spec)}\n${outcome.output}`);
    assert.deepEqual(
      bad.map((outcome) => [caseName(outcome.spec), outcome.violations]),
      [],
    );
    const { lost, duplicated, unknown } = summarise(outcomes);
    assert.deepEqual({ lost, duplicated, unknown }, { lost: 0, duplicated: 0, unknown: 0 });
  });

  it("shows the model no request that a strict provider would refuse", async () => {
    assert.deepEqual(await fakes.model.control("GET", "/rejected"), []);
  });
});
