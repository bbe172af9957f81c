/** npm run soak: see HELP. */
import { parseArgs } from "node:util";
import fc from "fast-check";
import { Postgres } from "../support/postgres.ts";
import { mailSequence } from "./mail-sequence.ts";
import { MAIL_PLACES, Mailbox } from "./mailbox.ts";
import { PLACES, sequence, Soak, Tally } from "./soak.ts";

const HELP = `soak: a real PostgreSQL against random sequences, every invariant after every operation

engine   the engine and two workers: messages, deaths, lapses, stops, late answers, a person's findings and decisions;
         what the world really did at the end
mailbox  two ingests and two workers: messages, second deliveries, late classifications, restarts, amendments, stops, lapses
         and time, alone and in races; every message where a model of the mailbox has it

  npm run soak -- [--of engine,mailbox] [--runs N] [--minutes N] [--seed N] [--width N] [--json]

--runs N     sequences of each (2000) · --minutes N: no new one after that · --seed N: the same ones again
--json       ends with one line of JSON for each. A sequence that breaks something is shortened and printed, with exit code 1.`;

const { values } = parseArgs({
  options: {
    of: { type: "string", default: "engine,mailbox" },
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

/** What is soaked, as one sequence after the other on a ledger of its own. */
type Soaked = { readonly places: readonly string[]; open(url: string, tally: Tally): Lane };
type Lane = { property(each: () => void): fc.IAsyncProperty<unknown>; close(): Promise<void> };

const SOAKED: Readonly<Record<string, Soaked>> = {
  engine: {
    places: PLACES,
    open: (url, tally) => {
      const soak = Soak.open(url, tally);
      const run = (each: () => void) => fc.asyncProperty(sequence, (steps) => soak.run(steps).then(each));
      return { property: run, close: () => soak.close() };
    },
  },
  mailbox: {
    places: MAIL_PLACES,
    open: (url, tally) => {
      const mailbox = Mailbox.open(url, tally);
      const run = (each: () => void) => fc.asyncProperty(mailSequence, (one) => mailbox.run(one).then(each));
      return { property: run, close: () => mailbox.close() };
    },
  },
};

async function soak(postgres: Postgres, name: string): Promise<boolean> {
  const soaked = SOAKED[name];
  if (soaked === undefined) throw new Error(`--of takes ${Object.keys(SOAKED).join(",")}, not "${name}"`);
  const [runs, seed, width] = [Number(values.runs), Number(values.seed), Number(values.width)];
  const startedAt = performance.now();
  const tally = new Tally();
  let done = 0;
  say(`${name}: ${runs} sequences, seed ${seed}`);
  const each = () => {
    done += 1;
    if (done % TOLD > 0) return;
    const took = (performance.now() - startedAt) / done;
    say(`${done}/${runs} sequences · about ${Math.ceil((took * (runs - done)) / 60_000)} min left`);
  };
  // Side by side on ledgers of their own, each with its part of the seeds.
  const lane = async (index: number) => {
    const one = soaked.open(await postgres.create(), tally);
    try {
      return await fc.check(one.property(each), {
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
  const missed = soaked.places.filter((place) => !tally.counts.has(place));
  if (missed.length > 0) say(`never came to: ${missed.join(", ")}`);
  console.log(
    values.json
      ? JSON.stringify({ of: name, seed, sequences: done, broken: broken.length, counts })
      : `${name}: ${done} sequences, ${broken.length} broken\n${Object.entries(counts)
          .map(([place, count]) => `  ${place}: ${count}`)
          .join("\n")}`,
  );
  return broken.length === 0;
}

if (values.help) {
  console.log(HELP);
} else {
  const postgres = await Postgres.start();
  try {
    const well: boolean[] = [];
    for (const name of values.of.split(",")) well.push(await soak(postgres, name));
    process.exitCode = well.every(Boolean) ? 0 : 1;
  } finally {
    await postgres.stop();
  }
}
