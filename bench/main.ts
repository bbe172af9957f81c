/** npm run bench -- NAME [--json] [--rounds N]: benchmarks are run by hand, never by a test. */
import { parseArgs } from "node:util";
import { UserError } from "../hack/lib/say.ts";
import { runMain } from "../hack/lib/main.ts";
import { type Bar, lastLine } from "./arithmetic.ts";
import { mailbox } from "./mailbox.ts";
import { steer } from "./steer.ts";
import { step, stepDisk } from "./step.ts";
import { table } from "./table.ts";

export type Options = { readonly rounds: number; readonly say: (line: string) => void };
export type Benchmark = {
  /** One line for the list of benchmarks. */
  readonly about: string;
  /** How often everything is measured; absent: ROUNDS. */
  readonly rounds?: number;
  run(options: Options): Promise<{ readonly bars: readonly Bar[]; readonly table: string }>;
};

const BENCHMARKS: Readonly<Record<string, Benchmark>> = { step, "step-disk": stepDisk, mailbox, steer };
/** Odd, so that a median is a value that was measured. */
const ROUNDS = 5;

const HELP = `benchmarks, side by side with their peers on one PostgreSQL, medians of interleaved rounds

  npm run bench -- NAME [--json] [--rounds N]

${Object.entries(BENCHMARKS)
  .map(([name, { about, rounds = ROUNDS }]) => `  ${name.padEnd(10)} ${about} (rounds: ${rounds})`)
  .join("\n")}

--rounds N   how often everything is measured
--json       progress goes to stderr, and stdout has one line: {"bench","bars":[{"name","value","limit","ok"}]}
Exit code 1 when a bar is not met. Run it on a machine that does nothing else.`;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      json: { type: "boolean", default: false },
      rounds: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const [name, ...rest] = positionals;
  const benchmark = name === undefined ? undefined : BENCHMARKS[name];
  if (name === undefined || benchmark === undefined || rest.length > 0) {
    throw new UserError(
      `${name === undefined ? "Which benchmark?" : `There is no benchmark "${positionals.join(" ")}".`}\n\n${HELP}`,
    );
  }
  const rounds = Number(values.rounds ?? benchmark.rounds ?? ROUNDS);
  if (!Number.isInteger(rounds) || rounds < 1)
    throw new UserError(`--rounds takes a number from 1, not "${values.rounds}".`);
  const say = (line: string): void => {
    process.stderr.write(`${line}\n`);
  };
  const { bars, table: figures } = await benchmark.run({ rounds, say });
  if (values.json) console.log(lastLine(name, bars));
  else {
    const rows = bars.map(({ name: bar, value, limit, ok }) => [
      bar,
      String(value),
      `≤ ${limit}`,
      ok ? "met" : "MISSED",
    ]);
    console.log(`\n${figures}\n\n${table(["bar", "value", "limit", ""], rows)}`);
  }
  return bars.every(({ ok }) => ok) ? 0 : 1;
}

await runMain(main);
