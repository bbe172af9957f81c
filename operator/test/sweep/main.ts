/** npm run crash-sweep [-- --json] [-- --variant kill,stop,swallow,kill-recovery] [-- --grep TEXT] [-- --width N] */
import { parseArgs } from "node:util";
import { Postgres } from "../support/postgres.ts";
import { startWorld } from "./scenario.ts";
import { caseName, listCases, runCases, summarise, VARIANTS } from "./sweep.ts";

const HELP = `crash sweep: every failpoint × occurrence of a run, met by a kill, a pause or a lost reply, then recovered and judged

  npm run crash-sweep -- [--variant ${VARIANTS.join(",")}] [--grep TEXT] [--width N] [--json]

--json ends with one line of JSON; without it the same figures are told in words. Exit code 1 on any violation.`;

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    variant: { type: "string", default: VARIANTS.join(",") },
    grep: { type: "string", default: "" },
    width: { type: "string", default: "3" },
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
    const wanted = new Set(values.variant.split(","));
    const cases = (await listCases(postgres, fakes)).filter(
      (spec) => wanted.has(spec.variant) && caseName(spec).includes(values.grep),
    );
    say(`${cases.length} cases`);
    let count = 0;
    const outcomes = await runCases(postgres, fakes, cases, Number(values.width), (outcome) => {
      count += 1;
      const word =
        outcome.violations.length > 0
          ? `VIOLATED: ${outcome.violations.join("; ")}`
          : outcome.reached
            ? "ok"
            : "not reached";
      say(
        `${count}/${cases.length} ${caseName(outcome.spec)}: ${word}${outcome.recoverMs === null ? "" : ` (claimed again after ${Math.round(outcome.recoverMs)} ms)`}`,
      );
      if (outcome.violations.length > 0) say(outcome.output);
    });
    const summary = summarise(outcomes);
    console.log(
      values.json
        ? JSON.stringify(summary)
        : `${summary.points} points, ${summary.occurrences} occurrences: ${summary.violations} violations, ${summary.lost} lost, ${summary.duplicated} duplicated, ${summary.unknown} unknown; claimed again after p50 ${summary.recoverMs.p50} ms, p99 ${summary.recoverMs.p99} ms`,
    );
    process.exitCode = summary.violations === 0 ? 0 : 1;
  } finally {
    await fakes.stop();
    await postgres.stop();
  }
}
