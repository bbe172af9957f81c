/** npm run soak: see HELP. */
import { parseArgs } from "node:util";
import fc from "fast-check";
import { Postgres } from "../support/postgres.ts";
import { PLACES, sequence, Soak, type Step, Tally } from "./soak.ts";

const HELP = `soak: the engine, two workers and a real PostgreSQL against random sequences of messages, deaths, lapses, stops, late
answers, a person's findings and decisions; every invariant after every operation, and what the world really did at the end

  npm run soak -- [--runs N] [--minutes N] [--seed N] [--width N] [--json]

--runs N     sequences (2000) · --minutes N: no new one after that · --seed N: the same ones again
--json       ends with one line of JSON. A sequence that breaks something is shortened and printed, with exit code 1.`;

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "2000" },
    minutes: { type: "string", default: "60" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    width: { type: "string", default: "2" },
    json: { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  },
});

const say = (line: string) => (values.json ? console.error(line) : console.log(line));

/** Every 25th sequence is told of. */
const TOLD = 25;

async function soak(postgres: Postgres): Promise<boolean> {
  const [runs, seed, width] = [Number(values.runs), Number(values.seed), Number(values.width)];
  const startedAt = performance.now();
  const tally = new Tally();
  let done = 0;
  say(`${runs} sequences, seed ${seed}`);
  // Side by side on ledgers of their own, each with its part of the seeds.
  const lane = async (index: number) => {
    const one = Soak.open(await postgres.create(), tally);
    try {
      const property = fc.asyncProperty(sequence, async (steps: Step[]) => {
        await one.run(steps);
        done += 1;
        if (done % TOLD > 0) return;
        const each = (performance.now() - startedAt) / done;
        say(`${done}/${runs} sequences · about ${Math.ceil((each * (runs - done)) / 60_000)} min left`);
      });
      return await fc.check(property, {
        seed: seed + index,
        numRuns: Math.ceil(runs / width),
        interruptAfterTimeLimit: Number(values.minutes) * 60_000,
      });
    } finally {
      await one.close();
    }
  };
  const results = await Promise.all(Array.from({ length: width }, (_, index) => lane(index)));
  const broken = results.filter(({ failed, counterexample }) => failed && counterexample !== null);
  for (const { errorInstance, counterexample, seed: of, counterexamplePath } of broken) {
    say(`BROKEN (seed ${of}, path ${counterexamplePath}): ${(errorInstance as Error | null)?.stack}`);
    say(JSON.stringify(counterexample));
  }
  const counts = Object.fromEntries([...tally.counts].sort(([a], [b]) => (a < b ? -1 : 1)));
  const missed = PLACES.filter((place) => !tally.counts.has(place));
  if (missed.length > 0) say(`never came to: ${missed.join(", ")}`);
  console.log(
    values.json
      ? JSON.stringify({ seed, sequences: done, broken: broken.length, counts })
      : `${done} sequences, ${broken.length} broken\n${Object.entries(counts)
          .map(([name, count]) => `  ${name}: ${count}`)
          .join("\n")}`,
  );
  return broken.length === 0;
}

if (values.help) {
  console.log(HELP);
} else {
  const postgres = await Postgres.start();
  try {
    process.exitCode = (await soak(postgres)) ? 0 : 1;
  } finally {
    await postgres.stop();
  }
}
