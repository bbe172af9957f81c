/** Runs cases: arm a point, let the worker meet it, recover with another one, judge. */
import type { RestartablePostgres } from "../support/restartable.ts";
import { chance, sample } from "./chance.ts";
import { type Point, pointText, record } from "./points.ts";
import { type LogLine, WorkerProcess } from "./process.ts";
import { type Case, CASE_MS, ended, type Ledgers, sleep, startCase, startPeople, type World } from "./scenario.ts";
import { type Scenario, SCENARIOS } from "./scenarios.ts";
import type { EndState } from "./state.ts";
import { judge, type Verdict } from "./verdict.ts";

/** `restart`: PostgreSQL is cut off at the point, as by a power failure, and comes back. */
export const VARIANTS = ["kill", "stop", "swallow", "kill-recovery", "restart"] as const;
export type Variant = (typeof VARIANTS)[number];

export type CaseSpec = {
  readonly scenario: Scenario;
  readonly variant: Variant;
  readonly point: Point;
  /** For `kill-recovery`: where the first worker died; `point` is where the second one does. */
  readonly first?: Point;
  /** How the scenario ends without a fault. */
  readonly wanted: EndState;
};

export type Outcome = Verdict & {
  readonly spec: CaseSpec;
  readonly reached: boolean;
  /** From the kill to the claim by the next worker; null when nothing was left to claim. */
  readonly recoverMs: number | null;
  readonly output: string;
};

export const caseName = (spec: CaseSpec): string =>
  `${spec.scenario.name}: ${spec.variant} at ${pointText(spec.point)}${spec.first === undefined ? "" : ` after a kill at ${pointText(spec.first)}`}`;

/** In flight at the first byte: the place from which a recovery has the most to do. */
export const IN_FLIGHT: Point = { name: "http_request:sent", occurrence: 1 };

/** The first scenario is met in every variant everywhere; the others are killed everywhere, and slower variants drawn. */
const DRAWN = { stop: 4, restart: 3, "kill-recovery": 6, swallow: 8 } as const;

const swallowed = ({ name }: Point): boolean => name.startsWith("after:") && !/model|tool/.test(name);

/** Every case of these scenarios; with `thorough` none is left to chance. */
export async function listCases(
  ledgers: Ledgers,
  fakes: World,
  options: { readonly scenarios?: readonly Scenario[]; readonly seed: number; readonly thorough?: boolean },
): Promise<CaseSpec[]> {
  const random = chance(options.seed);
  const cases: CaseSpec[] = [];
  for (const scenario of options.scenarios ?? SCENARIOS) {
    const { points, end: wanted } = await record(ledgers, fakes, scenario);
    const known = new Set(points.map((point) => point.name));
    // A scenario without a write has nothing in flight to fall with.
    const recovery = known.has(IN_FLIGHT.name) ? (await record(ledgers, fakes, scenario, IN_FLIGHT)).points : [];
    const all = options.thorough === true || scenario === SCENARIOS[0];
    const of = (variant: Variant, at: readonly Point[], drawn: number, first?: Point): CaseSpec[] =>
      (all && variant !== "restart" ? at : sample(at, drawn, random)).map((point) => ({
        scenario,
        variant,
        point,
        wanted,
        ...(first === undefined ? {} : { first }),
      }));
    const deep = recovery.filter(
      (point) => !known.has(point.name) || /effect|finish|results|http_request|commit/.test(point.name),
    );
    cases.push(
      ...of("kill", points, points.length),
      ...of("kill-recovery", deep, DRAWN["kill-recovery"], IN_FLIGHT),
      ...of("swallow", points.filter(swallowed), DRAWN.swallow),
      ...of("stop", points, DRAWN.stop),
      ...of("restart", points, DRAWN.restart),
    );
  }
  return cases;
}

const isClaim = (line: LogLine): boolean => line.msg === "claimed a run";
const isEnd = (line: LogLine): boolean => line.msg === "a turn ended";

async function pausedOf(worker: WorkerProcess, signal: AbortSignal): Promise<void> {
  while (!worker.paused && !signal.aborted) await sleep(10);
}

/** The value of a promise that has settled already; undefined while it has not. */
const settled = <T>(promise: Promise<T>): Promise<T | undefined> =>
  Promise.race([promise, new Promise<undefined>((resolve) => setImmediate(() => resolve(undefined)))]);

/** True when the armed point was met; false when the case ended without it (a timer's point that did not come). */
async function meet(
  done: Promise<void>,
  workers: readonly WorkerProcess[],
  worker: WorkerProcess,
  variant: Variant,
  signal: AbortSignal,
): Promise<boolean> {
  if (variant === "swallow") {
    await done;
    return true;
  }
  const over = new AbortController();
  const pauses = variant === "stop" || variant === "restart";
  const met = pauses ? pausedOf(worker, over.signal).then(() => true) : worker.exited.then(() => true);
  const reached = await Promise.race([
    met,
    done.then(
      () => false,
      () => false,
    ),
  ]);
  // The last commit ended the turn; whoever made it still falls at the point behind it, or says that the turn ended.
  const hung = new Promise<boolean>((resolve) => {
    signal.addEventListener("abort", () => resolve(false), { once: true });
  });
  const late = reached || (await Promise.race([met, hung, ...workers.map((one) => one.said(isEnd).then(() => false))]));
  over.abort();
  return late;
}

const gone = (worker: WorkerProcess): boolean => worker.child.exitCode !== null || worker.child.signalCode !== null;

/** Power off and on again; the worker that waits at the point goes on into what is left. */
async function cutPower(postgres: RestartablePostgres, worker: WorkerProcess): Promise<void> {
  await postgres.crash();
  await postgres.up();
  worker.kill("SIGCONT");
}

export type Stage = { readonly fakes: World; readonly ledgers: Ledgers; readonly restartable?: RestartablePostgres };

type Course = { reached: boolean; from: number; recovered: number | undefined };

async function play(stage: Stage, spec: CaseSpec, item: Case, workers: WorkerProcess[]): Promise<Course> {
  const signal = AbortSignal.timeout(CASE_MS);
  const start = (name: string, failpoint?: string) => {
    const worker = new WorkerProcess({ ledgerUrl: item.url, name, ...(failpoint === undefined ? {} : { failpoint }) });
    workers.push(worker);
    return worker;
  };
  const done = ended(item, startPeople(item, stage.fakes, signal), signal);
  done.catch(() => {});
  const action = { "kill-recovery": "kill", restart: "stop", kill: "kill", stop: "stop", swallow: "swallow" }[
    spec.variant
  ];
  if (spec.first !== undefined) await start("a0", `${pointText(spec.first)}:kill`).exited;
  const victim = start("a", `${pointText(spec.point)}:${action}`);
  // The heir is up before the victim falls, as in a cluster; a victim that falls before its claim has no run to leave.
  await Promise.race([victim.said(isClaim), victim.exited, pausedOf(victim, signal)]);
  const heir = start("b");
  const course: Course = { reached: false, from: 0, recovered: undefined };
  heir.said(isClaim).then(
    (line) => {
      course.recovered = line.at;
    },
    () => {},
  );
  course.reached = await meet(done, workers, victim, spec.variant, signal);
  const fell = spec.variant === "kill" || spec.variant === "kill-recovery" ? await settled(victim.exited) : undefined;
  course.from = fell?.at ?? performance.now();
  if (spec.variant === "restart" && course.reached && stage.restartable !== undefined) {
    await cutPower(stage.restartable, victim);
  }
  await done;
  // A worker that was paused wakes up into a world that went on without it, and has its say.
  await Promise.all(workers.filter((worker) => !gone(worker)).map((worker) => worker.stop()));
  return course;
}

export async function runCase(stage: Stage, spec: CaseSpec): Promise<Outcome> {
  await using item = await startCase(stage.ledgers, stage.fakes, spec.scenario);
  const workers: WorkerProcess[] = [];
  let course: Course = { reached: false, from: 0, recovered: undefined };
  let problem: string | undefined;
  try {
    course = await play(stage, spec, item, workers);
  } catch (error) {
    problem = (error as Error).message;
  } finally {
    for (const worker of workers) worker.kill("SIGKILL");
    await Promise.all(workers.map((worker) => worker.exited));
  }
  const verdict = await judge(stage.fakes, item, spec.wanted);
  const { recovered, reached, from } = course;
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

/**
 * Runs cases side by side, `width` at a time, and hands each outcome on as it comes. Those that need a server of their
 * own, to cut it off, come one after the other on it.
 */
export async function runCases(
  stage: Stage,
  cases: readonly CaseSpec[],
  width: number,
  each: (outcome: Outcome) => void = () => {},
): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const lane = async (on: Stage, queue: CaseSpec[]): Promise<void> => {
    for (let spec = queue.shift(); spec !== undefined; spec = queue.shift()) {
      const outcome = await runCase(on, spec);
      outcomes.push(outcome);
      each(outcome);
    }
  };
  const { restartable } = stage;
  const shared = cases.filter(({ variant }) => variant !== "restart");
  const restarts = restartable === undefined ? [] : cases.filter(({ variant }) => variant === "restart");
  await Promise.all([
    ...Array.from({ length: width }, () => lane(stage, shared)),
    ...(restartable === undefined ? [] : [lane({ ...stage, ledgers: restartable }, restarts)]),
  ]);
  return outcomes;
}

export type Summary = {
  /** Scenario × point. */
  points: number;
  /** Points that differ in name. */
  places: number;
  occurrences: number;
  violations: number;
  lost: number;
  duplicated: number;
  unknown: number;
  /** Given up before their first byte. */
  unsent: number;
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
    points: new Set(met.map(({ spec }) => `${spec.scenario.name} ${spec.point.name}`)).size,
    places: new Set(met.map(({ spec }) => spec.point.name)).size,
    occurrences: met.length,
    violations: sum((outcome) => outcome.violations.length),
    lost: sum((outcome) => outcome.lost),
    duplicated: sum((outcome) => outcome.duplicated),
    unknown: sum((outcome) => outcome.unknown),
    unsent: sum((outcome) => outcome.unsent),
    recoverMs: { p50: quantile(0.5), p99: quantile(0.99) },
  };
}
