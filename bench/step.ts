/**
 * `step`: what one step of an agent's run costs, beside others. One run of 50, 200 and 1,000 steps with results of 1 and
 * 16 KiB from a quick in-process tool; every system on a database of its own of one server, one after the other, the
 * order moved on by one each round.
 */
import type { Postgres } from "../operator/test/support/postgres.ts";
import { atMost, type Bar, median, quantile, rotated, rounded, unevenness } from "./arithmetic.ts";
import { type Floor, openFloor } from "./floor.ts";
import { installPeers } from "./install.ts";
import type { Benchmark, Options } from "./main.ts";
import { SystemProcess, Unavailable } from "./process.ts";
import { startServer, tidy } from "./server.ts";
import { type Measured, type Order, SYSTEMS } from "./system.ts";
import { table } from "./table.ts";

export const STEPS = [50, 200, 1_000] as const;
export const BYTES = [1_024, 16_384] as const;
const EFFECTS = [1, 2, 5] as const;
/** A run that takes longer is cut, and not tried again in later rounds: some systems write all they have at every step. */
const LIMIT_MS = 30_000;
/** Bytes of log per step with a result of 1 KiB. */
const WAL_LIMIT = 2_500;

export type Cell = { readonly steps: number; readonly bytes: number };
/** Medians over the rounds of one system in one cell. */
export type Figures = {
  readonly p50: number;
  readonly p99: number;
  readonly roundTrips: number;
  readonly commits: number;
  readonly wal: number;
  readonly cut: boolean;
};
export type Results = {
  /** By system, then by cell (`cellName`). */
  readonly systems: ReadonlyMap<string, ReadonlyMap<string, Figures>>;
  readonly floor: { readonly name: string; readonly p50: ReadonlyMap<string, number> };
  /** Commits of a response with k effectful calls. */
  readonly effects: ReadonlyMap<number, number>;
};

export const CELLS: readonly Cell[] = BYTES.flatMap((bytes) => STEPS.map((steps) => ({ steps, bytes })));
export const cellName = ({ steps, bytes }: Cell): string => `${steps} steps, ${bytes / 1024} KiB`;

export function figuresOf(rounds: readonly Measured[]): Figures {
  const over = (of: (one: Measured) => number) => median(rounds.map(of));
  return {
    p50: over(({ gaps }) => median(gaps)),
    p99: over(({ gaps }) => quantile(gaps, 0.99)),
    roundTrips: over(({ roundTrips }) => roundTrips),
    commits: over(({ commits }) => commits),
    wal: over(({ wal }) => wal),
    cut: rounds.some(({ cut }) => cut),
  };
}

/** Without a peer there is nothing to be better than, and no bar is met. */
const least = (values: readonly number[]): number => (values.length === 0 ? Number.NaN : Math.min(...values));

/** The bars of the benchmark, from its figures alone. */
export function barsOf({ systems, floor, effects }: Results): Bar[] {
  const own = systems.get("pawl") ?? new Map<string, Figures>();
  const ownIn = (cell: Cell) => own.get(cellName(cell));
  const small = STEPS.map((steps) => ownIn({ steps, bytes: 1_024 }));
  const figure = (of: (figures: Figures) => number) => small.map((one) => (one === undefined ? Number.NaN : of(one)));
  // A renewed lease in a long run is a commit now and then, and belongs to no step.
  const perStep = (of: (figures: Figures) => number) => Math.round((figure(of)[0] ?? Number.NaN) * 100) / 100;
  const worst = Math.max(...figure(({ wal }) => wal));
  const bars = [
    atMost(
      "commits per quick step",
      perStep(({ commits }) => commits),
      1,
    ),
    atMost(
      "round trips per quick step",
      perStep(({ roundTrips }) => roundTrips),
      1,
    ),
    atMost("WAL per step at 1 KiB, bytes", worst, WAL_LIMIT),
    atMost(`WAL uneven over ${STEPS.join("/")} steps, share`, unevenness(figure(({ wal }) => wal)), 0.1),
    atMost(`p50 uneven over ${STEPS.join("/")} steps, share`, unevenness(figure(({ p50 }) => p50)), 0.1),
    ...EFFECTS.map((k) => atMost(`commits of ${k} effectful calls`, effects.get(k) ?? Number.NaN, k + 1)),
  ];
  const peers = [...systems].filter(([name]) => name !== "pawl").map(([, cells]) => cells);
  for (const cell of CELLS) {
    const name = cellName(cell);
    const p50 = ownIn(cell)?.p50 ?? Number.NaN;
    const best = least(peers.flatMap((cells) => cells.get(name)?.p50 ?? []));
    bars.push(atMost(`p50 ÷ best peer, ${name}`, p50 / best, 0.5));
    bars.push(atMost(`p50 ÷ floor, ${name}`, p50 / (floor.p50.get(name) ?? Number.NaN), 2.5));
  }
  return bars;
}

export function tableOf({ systems, floor }: Results, shown: readonly Cell[] = CELLS): string {
  const rows = shown.flatMap((cell) => {
    const name = cellName(cell);
    const lines = [...systems].map(([system, cells]) => {
      const figures = cells.get(name);
      if (figures === undefined) return [name, system, "not measured"];
      const { p50, p99, roundTrips, commits, wal, cut } = figures;
      const cells3 = [p50.toFixed(2), p99.toFixed(2), roundTrips.toFixed(1), commits.toFixed(1), wal.toFixed(0)];
      return [name, system, ...cells3, cut ? `cut at ${LIMIT_MS / 1000} s` : ""];
    });
    return [...lines, [name, floor.name, rounded(floor.p50.get(name) ?? Number.NaN).toFixed(2)]];
  });
  return table(["run", "system", "p50 ms", "p99 ms", "round trips", "commits", "WAL bytes", ""], rows);
}

type StepSystem = SystemProcess<Order, Measured>;
type Running = { readonly postgres: Postgres; readonly floor: Floor; readonly systems: readonly StepSystem[] };

async function start(postgres: Postgres, say: (line: string) => void): Promise<Running> {
  const systems: StepSystem[] = [];
  for (const name of SYSTEMS) {
    const url = await postgres.create({ empty: true });
    try {
      const system = await SystemProcess.start<Order, Measured>("worker.ts", name, url);
      systems.push(system);
      await system.measure({ steps: 50, bytes: 1_024, effects: 0, limitMs: LIMIT_MS }); // warms up
      await tidy(postgres, url);
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      say(`left out: ${error.message}`);
    }
  }
  return { postgres, systems, floor: await openFloor(await postgres.create({ empty: true })) };
}

async function measureAll(
  { postgres, systems, floor }: Running,
  cells: readonly Cell[],
  { rounds, say }: Options,
): Promise<Results> {
  const measured = new Map(systems.map(({ name }) => [name, new Map<string, Measured[]>()]));
  const floors = new Map<string, number[]>();
  const effects = new Map<number, number[]>();
  const own = systems.find(({ name }) => name === "pawl");
  for (let round = 0; round < rounds; round += 1) {
    for (const cell of cells) {
      const name = cellName(cell);
      await postgres.admin("checkpoint"); // none in the middle of a run
      for (const system of rotated(systems, round)) {
        const known = measured.get(system.name);
        const earlier = known?.get(name) ?? [];
        if (earlier.some(({ cut }) => cut)) continue;
        const one = await system.measure({ ...cell, effects: 0, limitMs: LIMIT_MS });
        known?.set(name, [...earlier, one]);
        say(`round ${round + 1}/${rounds} · ${name} · ${system.name}: p50 ${median(one.gaps).toFixed(2)} ms`);
      }
      floors.set(name, [...(floors.get(name) ?? []), median(await floor.measure(cell.steps, cell.bytes))]);
    }
    for (const k of EFFECTS) {
      const one = await own?.measure({ steps: 1, bytes: 1, effects: k, limitMs: LIMIT_MS });
      if (one !== undefined) effects.set(k, [...(effects.get(k) ?? []), one.commits]);
    }
  }
  const each = <K, V, R>(map: ReadonlyMap<K, V>, of: (value: V) => R) => new Map([...map].map(([k, v]) => [k, of(v)]));
  return {
    systems: each(measured, (cells) => each(cells, figuresOf)),
    floor: { name: floor.name, p50: each(floors, median) },
    effects: each(effects, median),
  };
}

/** Everything on one server of its own, which ends with it. */
async function measureOn(cells: readonly Cell[], options: Options, fsyncUs?: number): Promise<Results> {
  await installPeers(options.say);
  const postgres = await startServer(fsyncUs);
  let running: Running | undefined;
  try {
    running = await start(postgres, options.say);
    return await measureAll(running, cells, options);
  } finally {
    for (const system of running?.systems ?? []) await system.stop();
    await postgres.stop();
  }
}

export const step: Benchmark = {
  about: "one run of 50/200/1,000 quick steps, results of 1 and 16 KiB, beside DBOS, Absurd and LangGraph.js",
  async run(options) {
    const results = await measureOn(CELLS, options);
    return { bars: barsOf(results), table: tableOf(results) };
  },
};

/** What an fsync takes on a replicated volume of a cloud, roughly; here it takes 0.05 ms. */
export const DISK_FSYNC_US = 1_500;
const DISK_CELLS = CELLS.filter(({ steps }) => steps < 1_000);
/** A step of Pawl writes two rows and the run under its guards, a peer's writes one; on a disk that has to cost little. */
const DISK_LIMIT = 1.25;

/** Beside the best of the peers, where a commit costs what it costs in production. */
export function diskBarsOf({ systems }: Results): Bar[] {
  const p50 = (name: string, cell: Cell) => systems.get(name)?.get(cellName(cell))?.p50 ?? Number.NaN;
  const peers = [...systems.keys()].filter((name) => name !== "pawl");
  return DISK_CELLS.map((cell) => {
    const best = least(peers.map((name) => p50(name, cell)).filter(Number.isFinite));
    return atMost(`p50 ÷ best peer, ${cellName(cell)}`, p50("pawl", cell) / best, DISK_LIMIT);
  });
}

export const stepDisk: Benchmark = {
  about: `the same up to 200 steps, on a disk whose fsync takes ${DISK_FSYNC_US / 1000} ms`,
  async run(options) {
    const results = await measureOn(DISK_CELLS, options, DISK_FSYNC_US);
    return { bars: diskBarsOf(results), table: tableOf(results, DISK_CELLS) };
  },
};
