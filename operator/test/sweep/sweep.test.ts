/** Every point of the first scenario once, and a seeded sample of the rest; `npm run crash-sweep` runs them all. */
import assert from "node:assert/strict";
import { sharedPostgres } from "../support/postgres.ts";
import { RestartablePostgres } from "../support/restartable.ts";
import { chance, sample } from "./chance.ts";
import { PORTS, SWEPT } from "./points.ts";
import { startWorld, type World } from "./scenario.ts";
import { SCENARIOS } from "./scenarios.ts";
import { caseName, type CaseSpec, listCases, type Outcome, runCases, summarise } from "./sweep.ts";

/** Cases tried here beside the first scenario's kills: of each other scenario, and of the first one's other variants. */
const OF_EACH = 4;
const OF_THE_FIRST = 12;
/** A write may be given up when its worker or the ledger was away for too long: an exception, not the way out. */
const MAX_UNSENT_SHARE = 0.1;
/** Each costs a crash and a start of PostgreSQL. */
const RESTARTS = 2;
const WIDTH = 3;

/** The same cases all day, others tomorrow. */
const SEED = Number.parseInt(new Date().toISOString().slice(0, 10).replaceAll("-", ""), 10);

function drawn(all: readonly CaseSpec[]): CaseSpec[] {
  const random = chance(SEED);
  const always = (spec: CaseSpec) =>
    spec.scenario === SCENARIOS[0] && spec.variant === "kill" && spec.point.occurrence === 1;
  const rest = all.filter((spec) => !always(spec) && spec.variant !== "restart");
  return [
    ...all.filter(always),
    ...SCENARIOS.flatMap((scenario, index) =>
      sample(
        rest.filter((spec) => spec.scenario === scenario),
        index === 0 ? OF_THE_FIRST : OF_EACH,
        random,
      ),
    ),
    ...sample(
      all.filter(({ variant }) => variant === "restart"),
      RESTARTS,
      random,
    ),
  ];
}

describe("the crash sweep", function () {
  this.timeout(900_000);
  let fakes: World;
  let restartable: RestartablePostgres;
  let outcomes: Outcome[] = [];
  let all: CaseSpec[] = [];

  before(async () => {
    const ledgers = await sharedPostgres();
    [fakes, restartable] = await Promise.all([startWorld(), RestartablePostgres.start()]);
    all = await listCases(ledgers, fakes, { seed: SEED });
    const cases = drawn(all);
    console.log(`      ${cases.length} of ${all.length} cases, seed ${SEED}`);
    outcomes = await runCases({ ledgers, fakes, restartable }, cases, WIDTH);
  });

  after(async () => {
    await Promise.all([fakes.stop(), restartable.stop()]);
  });

  it("kills at no fewer than 25 points, before and after every statement and outside call of the run", () => {
    const kills = outcomes.filter(({ spec }) => spec.scenario === SCENARIOS[0] && spec.variant === "kill");
    assert.ok(summarise(kills).places >= 25, JSON.stringify(summarise(kills)));
  });

  it("passes every statement and outside call that is said to be swept, in one scenario or another", () => {
    const passed = new Set(all.map(({ point }) => point.name));
    const said = [...SWEPT.flatMap((name) => [`before:${name}`, `after:${name}`]), ...PORTS];
    assert.deepEqual(
      said.filter((name) => !passed.has(name)),
      [],
    );
  });

  it("meets every scenario", () => {
    const met = outcomes.filter(({ reached }) => reached).map(({ spec }) => spec.scenario.name);
    assert.deepEqual([...new Set(met)].sort(), SCENARIOS.map(({ name }) => name).sort());
  });

  it("loses nothing, repeats nothing, breaks no invariant, ends as a run without a fault does", () => {
    const bad = outcomes.filter((outcome) => outcome.violations.length > 0);
    for (const outcome of bad) console.log(`${caseName(outcome.spec)}\n${outcome.output}`);
    assert.deepEqual(
      bad.map((outcome) => [caseName(outcome.spec), outcome.violations]),
      [],
    );
    const { lost, duplicated, unknown } = summarise(outcomes);
    assert.deepEqual({ lost, duplicated, unknown }, { lost: 0, duplicated: 0, unknown: 0 });
  });

  it("gives up hardly any write before its first byte", () => {
    const { unsent } = summarise(outcomes);
    assert.ok(unsent <= outcomes.length * MAX_UNSENT_SHARE, `${unsent} of ${outcomes.length} cases`);
  });

  it("shows the model no request that a strict provider would refuse", async () => {
    assert.deepEqual(await fakes.model.control("GET", "/rejected"), []);
  });
});
