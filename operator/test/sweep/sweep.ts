/** Runs cases: arm a point, let the worker meet it, recover with another one, judge. */
import { judge, type Verdict } from "./verdict.ts";
import { type Point, pointText, recordPoints } from "./points.ts";
import { type LogLine, WorkerProcess } from "./process.ts";
import { type Case, startCase, type World } from "./scenario.ts";
import type { Postgres } from "../support/postgres.ts";

export const VARIANTS = ["kill", "stop", "swallow", "kill-recovery"] as const;
export type Variant = (typeof VARIANTS)[number];

export type CaseSpec = {
  readonly variant: Variant;
  readonly point: Point;
  /** For `kill-recovery`: where the first worker died; `point` is where the second one does. */
  readonly first?: Point;
};

export type Outcome = Verdict & {
  readonly spec: CaseSpec;
  readonly reached: boolean;
  /** From the kill to the claim by the next worker; null when nothing was left to claim. */
  readonly recoverMs: number | null;
  readonly output: string;
};

/** What a kill leaves open is over by then; a case that takes longer hangs, and says so. */
export const CASE_MS = 60_000;

export const caseName = (spec: CaseSpec): string =>
  `${spec.variant} at ${pointText(spec.point)}${spec.first === undefined ? "" : ` after a kill at ${pointText(spec.first)}`}`;

/** In flight at the first byte: the place from which a recovery has the most to do. */
export const IN_FLIGHT: Point = { name: "http_request:sent", occurrence: 1 };

export async function listCases(postgres: Postgres, fakes: World): Promise<CaseSpec[]> {
  const first = await recordPoints(postgres, fakes);
  const recovery = await recordPoints(postgres, fakes, IN_FLIGHT);
  const known = new Set(first.map((point) => point.name));
  return [
    ...first.map((point): CaseSpec => ({ variant: "kill", point })),
    ...recovery
      .filter((point) => !known.has(point.name) || /effect|finish|results|http_request|commit/.test(point.name))
      .map((point): CaseSpec => ({ variant: "kill-recovery", point, first: IN_FLIGHT })),
    ...first
      .filter(({ name }) => name.startsWith("after:") && !/model|tool/.test(name))
      .map((point): CaseSpec => ({ variant: "swallow", point })),
    ...first.map((point): CaseSpec => ({ variant: "stop", point })),
  ];
}

async function ended(item: Case, signal: AbortSignal): Promise<void> {
  for (;;) {
    const { rows } = await item.db.pool.query<{ live: boolean }>("select live from runs where id = $1", [item.runId]);
    if (rows[0]?.live === false) return;
    if (signal.aborted) throw new Error("the run did not end in time");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const isClaim = (line: LogLine): boolean => line.msg === "claimed a run";
const isEnd = (line: LogLine): boolean => line.msg === "a turn ended";

async function pausedOf(worker: WorkerProcess, signal: AbortSignal): Promise<void> {
  while (!worker.paused && !signal.aborted) await new Promise((resolve) => setTimeout(resolve, 10));
}

/** The value of a promise that has settled already; undefined while it has not. */
const settled = <T>(promise: Promise<T>): Promise<T | undefined> =>
  Promise.race([promise, new Promise<undefined>((resolve) => setImmediate(() => resolve(undefined)))]);

/** True when the armed point was met; false when the run ended without it (a timer's point that did not come). */
async function meet(
  item: Case,
  workers: readonly WorkerProcess[],
  worker: WorkerProcess,
  variant: Variant,
  signal: AbortSignal,
): Promise<boolean> {
  if (variant === "swallow") {
    await ended(item, signal);
    return true;
  }
  const over = new AbortController();
  const done = ended(item, AbortSignal.any([signal, over.signal])).then(
    () => false,
    () => false,
  );
  const met = variant === "stop" ? pausedOf(worker, over.signal).then(() => true) : worker.exited.then(() => true);
  const reached = await Promise.race([met, done]);
  // The last commit ended the turn; whoever made it still falls at the point behind it, or says that the turn ended.
  const hung = new Promise<boolean>((resolve) => {
    signal.addEventListener("abort", () => resolve(false), { once: true });
  });
  const late = reached || (await Promise.race([met, hung, ...workers.map((one) => one.said(isEnd).then(() => false))]));
  over.abort();
  return late;
}

export async function runCase(postgres: Postgres, fakes: World, spec: CaseSpec): Promise<Outcome> {
  await using item = await startCase(postgres, fakes);
  const signal = AbortSignal.timeout(CASE_MS);
  const workers: WorkerProcess[] = [];
  const start = (name: string, failpoint?: string) => {
    const worker = new WorkerProcess({ ledgerUrl: item.url, name, ...(failpoint === undefined ? {} : { failpoint }) });
    workers.push(worker);
    return worker;
  };
  const action = spec.variant === "kill-recovery" ? "kill" : spec.variant;
  let recovered: number | undefined;
  let from = 0;
  let reached = false;
  let problem: string | undefined;
  try {
    if (spec.first !== undefined) await start("a0", `${pointText(spec.first)}:kill`).exited;
    const victim = start("a", `${pointText(spec.point)}:${action}`);
    // The heir is up before the victim falls, as in a cluster; a victim that falls before its claim has no run to leave.
    await Promise.race([victim.said(isClaim), victim.exited, pausedOf(victim, signal)]);
    const heir = start("b");
    heir.said(isClaim).then(
      (line) => {
        recovered = line.at;
      },
      () => {},
    );
    reached = await meet(item, workers, victim, spec.variant, signal);
    const fell = spec.variant === "kill" || spec.variant === "kill-recovery" ? await settled(victim.exited) : undefined;
    from = fell?.at ?? performance.now();
    await ended(item, signal);
    // A worker that was paused wakes up into a world that went on without it, and has its say.
    await Promise.all(
      workers
        .filter((worker) => worker.child.exitCode === null && worker.child.signalCode === null)
        .map((worker) => worker.stop()),
    );
  } catch (error) {
    problem = (error as Error).message;
  } finally {
    for (const worker of workers) worker.kill("SIGKILL");
    await Promise.all(workers.map((worker) => worker.exited));
  }
  const verdict = await judge(fakes, item);
  return {
    ...verdict,
    violations: problem === undefined ? verdict.violations : [problem, ...verdict.violations],
    spec,
    reached,
    // A claim before the fall was the first one: nothing was left to recover.
    recoverMs: recovered === undefined || !reached || recovered < from ? null : recovered - from,
    output: workers.map((worker) => worker.output).join("\n--- next worker\n"),
  };
}

/** Runs cases side by side, `width` at a time, and hands each outcome on as it comes. */
export async function runCases(
  postgres: Postgres,
  fakes: World,
  cases: readonly CaseSpec[],
  width: number,
  each: (outcome: Outcome) => void = () => {},
): Promise<Outcome[]> {
  const queue = [...cases];
  const outcomes: Outcome[] = [];
  await Promise.all(
    Array.from({ length: width }, async () => {
      for (let spec = queue.shift(); spec !== undefined; spec = queue.shift()) {
        const outcome = await runCase(postgres, fakes, spec);
        outcomes.push(outcome);
        each(outcome);
      }
    }),
  );
  return outcomes;
}

export type Summary = {
  points: number;
  occurrences: number;
  violations: number;
  lost: number;
  duplicated: number;
  unknown: number;
  recoverMs: { p50: number; p99: number };
};

export function summarise(outcomes: readonly Outcome[]): Summary {
  const met = outcomes.filter((outcome) => outcome.reached);
  const times = outcomes
    .flatMap((outcome) => (outcome.recoverMs === null || outcome.spec.variant === "swallow" ? [] : [outcome.recoverMs]))
    .sort((a, b) => a - b);
  const quantile = (q: number) => Math.round(times[Math.min(times.length - 1, Math.floor(times.length * q))] ?? 0);
  const sum = (of: (outcome: Outcome) => number) => outcomes.reduce((total, outcome) => total + of(outcome), 0);
  return {
    points: new Set(met.map((outcome) => outcome.spec.point.name)).size,
    occurrences: met.length,
    violations: sum((outcome) => outcome.violations.length),
    lost: sum((outcome) => outcome.lost),
    duplicated: sum((outcome) => outcome.duplicated),
    unknown: sum((outcome) => outcome.unknown),
    recoverMs: { p50: quantile(0.5), p99: quantile(0.99) },
  };
}
