/**
 * `mailbox`: 50 conversations in which people go on talking while their agent is at work, beside the Chat SDK and its
 * strategies. What counts is what becomes of every message: answered once, by as few turns as there need to be, in a
 * time that has a bound.
 */
import { Postgres } from "../operator/test/support/postgres.ts";
import { atMost, type Bar, median, quantile, rotated } from "./arithmetic.ts";
import { installPeers } from "./install.ts";
import type { Benchmark, Options } from "./main.ts";
import { SystemProcess, Unavailable } from "./process.ts";
import { table } from "./table.ts";
import { boundMs } from "./talk/policy.ts";
import { schedule } from "./talk/schedule.ts";
import { MODES, type Outcome, type Talk, TALKERS } from "./talk/system.ts";

/** After the last message: what is not answered by then never will be. */
const LIMIT_MS = 30_000;

/** Over the rounds: counts that must be 0 are summed, the longest wait is the longest of all, the rest are medians. */
export type Figures = {
  readonly turns: number;
  readonly asked: number;
  readonly lost: number;
  readonly doubled: number;
  readonly stopped: number;
  readonly p50: number;
  readonly p99: number;
  readonly longest: number;
};
export type Results = ReadonlyMap<string, Figures>;

export function figuresOf(rounds: readonly Outcome[]): Figures {
  const over = (of: (one: Outcome) => number) => median(rounds.map(of));
  const all = (of: (one: Outcome) => number) => rounds.reduce((sum, one) => sum + of(one), 0);
  return {
    turns: over(({ turns }) => turns),
    asked: over(({ asked }) => asked),
    lost: all(({ lost }) => lost.length),
    doubled: all(({ doubled }) => doubled.length),
    stopped: over(({ stopped }) => stopped),
    p50: over(({ waits }) => median(waits)),
    p99: over(({ waits }) => quantile(waits, 0.99)),
    longest: Math.max(...rounds.flatMap(({ waits }) => waits)),
  };
}

/** Turns of the peer that needed the fewest without losing or answering twice. */
const fewest = (results: Results): number =>
  Math.min(
    ...[...results]
      .filter(([name, { lost, doubled }]) => !name.startsWith("pawl") && lost + doubled === 0)
      .map(([, { turns }]) => turns),
  );

export function barsOf(results: Results): Bar[] {
  return MODES.flatMap((mode) => {
    const name = `pawl ${mode}`;
    const own = results.get(name);
    const figure = (of: (figures: Figures) => number) => (own === undefined ? Number.NaN : of(own));
    return [
      atMost(
        `${name}: messages lost`,
        figure(({ lost }) => lost),
        0,
      ),
      atMost(
        `${name}: messages answered twice`,
        figure(({ doubled }) => doubled),
        0,
      ),
      atMost(`${name}: turns ÷ fewest of a peer that loses none`, figure(({ turns }) => turns) / fewest(results), 1),
      atMost(
        `${name}: longest wait, ms`,
        figure(({ longest }) => longest),
        boundMs(mode),
      ),
    ];
  });
}

export function tableOf(results: Results): string {
  const rows = TALKERS.map((name) => {
    const figures = results.get(name);
    if (figures === undefined) return [name, "not measured"];
    const { turns, asked, lost, doubled, stopped, p50, p99, longest } = figures;
    return [name, ...[turns, asked, lost, doubled, stopped, p50, p99, longest].map((value) => value.toFixed(0))];
  });
  const head = [
    "system",
    "turns",
    "model calls",
    "lost",
    "answered twice",
    "stopped",
    "p50 ms",
    "p99 ms",
    "longest ms",
  ];
  return table(head, rows);
}

async function measureAll(postgres: Postgres, { rounds, say }: Options): Promise<Results> {
  const said = schedule();
  const measured = new Map<string, Outcome[]>();
  const leftOut = new Set<string>();
  for (let round = 0; round < rounds; round += 1) {
    for (const name of rotated(TALKERS, round).filter((one) => !leftOut.has(one))) {
      // A ledger and a process of its own each time: what was said in one round is unknown in the next.
      const url = await postgres.create({ empty: true });
      let system: SystemProcess<Talk, Outcome> | undefined;
      try {
        system = await SystemProcess.start<Talk, Outcome>("talk/worker.ts", name, url);
        const one = await system.measure({ said, limitMs: LIMIT_MS });
        measured.set(name, [...(measured.get(name) ?? []), one]);
        const { turns, lost, doubled, waits } = one;
        say(
          `round ${round + 1}/${rounds} · ${name}: ${turns} turns, ${lost.length} lost, ${doubled.length} answered twice, p50 ${median(waits).toFixed(0)} ms`,
        );
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        leftOut.add(name);
        say(`left out: ${error.message}`);
      } finally {
        await system?.stop();
      }
    }
  }
  return new Map([...measured].map(([name, outcomes]) => [name, figuresOf(outcomes)]));
}

export const mailbox: Benchmark = {
  about: "50 conversations × 20 messages while the agent is at work, beside the Chat SDK's strategies",
  // Two minutes: nobody can make people talk faster.
  rounds: 1,
  async run(options) {
    await installPeers(options.say);
    const postgres = await Postgres.start();
    try {
      const results = await measureAll(postgres, options);
      return { bars: barsOf(results), table: tableOf(results) };
    } finally {
      await postgres.stop();
    }
  },
};
