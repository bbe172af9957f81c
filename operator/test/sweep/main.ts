/** npm run crash-sweep: see HELP. */
import { parseArgs } from "node:util";
import { Postgres } from "../support/postgres.ts";
import { RestartablePostgres } from "../support/restartable.ts";
import { killAtRandom } from "./random.ts";
import { startWorld, type World } from "./scenario.ts";
import { SCENARIOS, scenarioOf } from "./scenarios.ts";
import { caseName, type CaseSpec, listCases, type Outcome, runCases, summarise, VARIANTS } from "./sweep.ts";

const HELP = `crash sweep: every failpoint of every scenario, met by a fault, then recovered and judged from what the fakes accepted

  npm run crash-sweep -- [--scenario NAME,…] [--variant NAME,…] [--grep TEXT] [--thorough] [--width N] [--seed N] [--json]
  npm run crash-sweep -- --random N [--seed N] [--width N] [--json]

scenarios: ${SCENARIOS.map(({ name }) => name).join(", ")}
variants:  ${VARIANTS.join(", ")}

Every scenario is killed at every point; the first one meets every variant everywhere, of the others' slower variants a
sample is drawn (--seed N draws the same one again; --thorough leaves nothing to chance).
--random N   N times SIGKILL at random moments, over --width ledgers with two workers each and conversations of all
             scenarios; then all are judged
--json       ends with one line of JSON; without it the same figures are told in words. Exit code 1 on any violation.`;

type Values = {
  json: boolean;
  variant: string;
  scenario: string;
  grep: string;
  width: string;
  seed: string;
  thorough: boolean;
};

/** "about 4 min left", by what the part that is done took. */
function left(done: number, all: number, startedAt: number): string {
  const ms = ((performance.now() - startedAt) / done) * (all - done);
  return done === all
    ? ""
    : ` · about ${ms < 90_000 ? `${Math.ceil(ms / 1_000)} s` : `${Math.round(ms / 60_000)} min`} left`;
}

function told(outcome: Outcome): string {
  if (outcome.violations.length > 0) return `VIOLATED: ${outcome.violations.join("; ")}`;
  if (!outcome.reached) return "not reached";
  return outcome.recoverMs === null ? "ok" : `ok, claimed again after ${Math.round(outcome.recoverMs)} ms`;
}

async function sweep(postgres: Postgres, fakes: World, values: Values, say: (line: string) => void): Promise<boolean> {
  const variants = new Set(values.variant.split(","));
  const scenarios = values.scenario === "" ? SCENARIOS : values.scenario.split(",").map(scenarioOf);
  say(`seed ${values.seed}; looking for the points of ${scenarios.map(({ name }) => name).join(", ")} …`);
  const listed = await listCases(postgres, fakes, { scenarios, seed: Number(values.seed), thorough: values.thorough });
  const cases = listed.filter((spec: CaseSpec) => variants.has(spec.variant) && caseName(spec).includes(values.grep));
  say(`${cases.length} cases`);
  const restartable = cases.some(({ variant }) => variant === "restart")
    ? await RestartablePostgres.start()
    : undefined;
  try {
    let count = 0;
    const startedAt = performance.now();
    const stage = { ledgers: postgres, fakes, ...(restartable === undefined ? {} : { restartable }) };
    const outcomes = await runCases(stage, cases, Number(values.width), (outcome) => {
      count += 1;
      say(
        `${count}/${cases.length} ${caseName(outcome.spec)}: ${told(outcome)}${left(count, cases.length, startedAt)}`,
      );
      if (outcome.violations.length > 0) say(outcome.output);
    });
    const summary = summarise(outcomes);
    console.log(
      values.json
        ? JSON.stringify({ seed: Number(values.seed), ...summary })
        : `${summary.points} points (${summary.places} places in ${scenarios.length} scenarios), ${summary.occurrences} occurrences: ${summary.violations} violations, ${summary.lost} lost, ${summary.duplicated} duplicated, ${summary.unknown} unknown, ${summary.unsent} given up before their first byte; claimed again after p50 ${summary.recoverMs.p50} ms, p99 ${summary.recoverMs.p99} ms`,
    );
    return summary.violations === 0;
  } finally {
    await restartable?.stop();
  }
}

async function random(
  postgres: Postgres,
  fakes: World,
  values: Values & { random: string },
  say: (line: string) => void,
): Promise<boolean> {
  const [kills, seed, width] = [Number(values.random), Number(values.seed), Number(values.width)];
  say(`${kills} kills, seed ${seed}`);
  const startedAt = performance.now();
  const { summary, problems } = await killAtRandom({ ledgers: postgres, fakes }, { kills, seed, width }, (progress) => {
    say(
      `${progress.kills}/${kills} kills, ${progress.over} of ${progress.conversations} conversations over${left(progress.kills, kills, startedAt)}`,
    );
  });
  for (const problem of problems) say(`VIOLATED: ${problem}`);
  const mixed = Object.entries(summary.conversations).map(([name, count]) => `${count} ${name}`);
  console.log(
    values.json
      ? JSON.stringify(summary)
      : `${summary.kills} kills (${summary.killsInTurns} in the middle of turns) over ${mixed.join(", ")}: ${summary.violations} violations, ${summary.lost} lost, ${summary.duplicated} duplicated, ${summary.unknown} unknown beside the ${summary.toldUnknown} whose answer was hidden`,
  );
  return problems.length === 0;
}

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    variant: { type: "string", default: VARIANTS.join(",") },
    scenario: { type: "string", default: "" },
    grep: { type: "string", default: "" },
    width: { type: "string", default: "3" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    thorough: { type: "boolean", default: false },
    random: { type: "string" },
    help: { type: "boolean", short: "h", default: false },
  },
});
if (values.help) {
  console.log(HELP);
} else {
  const say = (line: string) => (values.json ? console.error(line) : console.log(line));
  const postgres = await Postgres.start();
  const fakes = await startWorld();
  try {
    const well =
      values.random === undefined
        ? await sweep(postgres, fakes, values, say)
        : await random(postgres, fakes, { ...values, random: values.random }, say);
    const rejected = (await fakes.model.control("GET", "/rejected")) as unknown[];
    for (const one of rejected) say(`VIOLATED: a strict provider would refuse a request: ${JSON.stringify(one)}`);
    process.exitCode = well && rejected.length === 0 ? 0 : 1;
  } finally {
    await fakes.stop();
    await postgres.stop();
  }
}
