/**
 * SIGKILL at random: two workers serve one ledger into which conversations of all scenarios keep coming; again and again
 * one of them, and sometimes both, is killed and started anew. Then everything is drained and every case is judged.
 */
import { checkInvariants } from "#ledger/invariants.ts";
import { Database } from "#ledger/database.ts";
import { chance } from "./chance.ts";
import { record } from "./points.ts";
import { WorkerProcess } from "./process.ts";
import { type Case, ended, type Ledgers, openCase, sleep, startPeople, sweepAgent, type World } from "./scenario.ts";
import { type Scenario, SCENARIOS } from "./scenarios.ts";
import { accepted, type EndState, type Write } from "./state.ts";
import { judgeBy } from "./verdict.ts";

/** Conversations that are alive at a time: enough that a kill nearly always meets some, in different places. */
const ALIVE = 3;
/** A kill comes within this of the moment at which its victim served (and the one before was over). Milliseconds. */
const WITHIN_MS = 500;
/** One time in so many both workers fall at once. */
const BOTH = 3;
/** For what is alive when the kills are over; each conversation has to be through by then. */
const DRAIN_MS = 120_000;

export type RandomSummary = {
  seed: number;
  kills: number;
  /** A worker was killed while it held a run's lease. */
  killsInTurns: number;
  conversations: Record<string, number>;
  violations: number;
  lost: number;
  duplicated: number;
  unknown: number;
  /** Of writes whose answer the world hid and nobody could ask for: they have to be. */
  toldUnknown: number;
};

export type Progress = { readonly kills: number; readonly conversations: number; readonly over: number };

/** Two workers, always up: one that falls is replaced at once, under a name of its own. */
class Crew {
  readonly #url: string;
  readonly #workers: WorkerProcess[] = [];
  #started = 0;

  constructor(url: string) {
    this.#url = url;
  }

  async start(index: number): Promise<void> {
    this.#started += 1;
    const worker = new WorkerProcess({ ledgerUrl: this.#url, name: `w${this.#started}` });
    this.#workers[index] = worker;
    const served = worker.said((line) => line.msg === "serving").then(() => true);
    if (await Promise.race([served, worker.exited.then(() => false)])) return;
    throw new Error(`a worker did not start:\n${worker.output}`);
  }

  /** The name that was killed. */
  async kill(index: number): Promise<string> {
    const worker = this.#workers[index];
    if (worker === undefined) throw new Error("no such worker");
    worker.kill("SIGKILL");
    await worker.exited;
    return worker.name;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.stop()));
  }

  async end(): Promise<void> {
    for (const worker of this.#workers) worker.kill("SIGKILL");
    await Promise.all(this.#workers.map((worker) => worker.exited));
  }
}

type Opened = { readonly item: Case; readonly over: Promise<void> };

/** Keeps `ALIVE` conversations going until it is told to stop; which scenario comes next is the seed's choice. */
async function feed(
  place: { db: Database; fakes: World; random: () => number; until: AbortSignal; signal: AbortSignal },
  opened: Opened[],
): Promise<void> {
  const { db, fakes, random, until, signal } = place;
  const agents = new Map<Scenario, Case["agent"]>();
  for (const scenario of SCENARIOS) agents.set(scenario, await sweepAgent(db, fakes, scenario));
  const lane = async (): Promise<void> => {
    while (!until.aborted) {
      const scenario = SCENARIOS[Math.floor(random() * SCENARIOS.length)] as Scenario;
      const item = await openCase({ db, agent: agents.get(scenario) as Case["agent"] }, fakes, scenario);
      const over = ended(item, startPeople(item, fakes, signal), signal);
      opened.push({ item, over });
      await over.catch(() => {});
    }
  };
  await Promise.all(Array.from({ length: ALIVE }, lane));
}

async function judgeAll(fakes: World, opened: readonly Opened[], ends: ReadonlyMap<Scenario, EndState>) {
  const log: readonly Write[] = await accepted(fakes);
  const bad: { item: Case; violations: string[] }[] = [];
  const sums = { violations: 0, lost: 0, duplicated: 0, unknown: 0, toldUnknown: 0 };
  for (const { item, over } of opened) {
    const late = await over.then(
      () => [],
      (error: Error) => [error.message],
    );
    const verdict = await judgeBy(log, item, ends.get(item.scenario) as EndState, false);
    const violations = [...late, ...verdict.violations];
    if (violations.length > 0) bad.push({ item, violations });
    sums.violations += violations.length;
    sums.lost += verdict.lost;
    sums.duplicated += verdict.duplicated;
    sums.unknown += verdict.unknown;
    if (item.scenario.hides === true) sums.toldUnknown += 1;
  }
  return { bad, sums };
}

type Stage = { readonly ledgers: Ledgers; readonly fakes: World };
type Part = {
  readonly opened: readonly Opened[];
  readonly broken: string[];
  readonly killsInTurns: number;
  readonly db: Database;
};

/** Two workers on a ledger of their own, until so many kills are done and everything is drained. */
async function oneLedger(
  { fakes, ledgers }: Stage,
  { kills, seed }: { readonly kills: number; readonly seed: number },
  each: (progress: Progress) => void,
): Promise<Part> {
  const url = await ledgers.create();
  const db = new Database({ url, max: ALIVE + 4 });
  const crew = new Crew(url);
  const [when, which] = [chance(seed), chance(seed + 1)];
  const [until, giveUp] = [new AbortController(), new AbortController()];
  const opened: Opened[] = [];
  let killsInTurns = 0;
  try {
    await Promise.all([crew.start(0), crew.start(1)]);
    const feeding = feed({ db, fakes, random: which, until: until.signal, signal: giveUp.signal }, opened);
    for (let done = 0; done < kills; ) {
      await sleep(when() * WITHIN_MS);
      const first = when() < 0.5 ? 0 : 1;
      const victims = when() < 1 / BOTH && done + 1 < kills ? [first, 1 - first] : [first];
      const names = await Promise.all(victims.map((index) => crew.kill(index)));
      const { rows } = await db.pool.query<{ n: number }>(
        "select count(distinct lease_owner)::int as n from runs where live and lease_owner = any($1)",
        [names],
      );
      killsInTurns += rows[0]?.n ?? 0;
      await Promise.all(victims.map((index) => crew.start(index)));
      done += victims.length;
      const alive = await db.pool.query<{ n: number }>("select count(*)::int as n from runs where live");
      each({ kills: done, conversations: opened.length, over: opened.length - (alive.rows[0]?.n ?? 0) });
    }
    until.abort();
    const late = setTimeout(() => giveUp.abort(), DRAIN_MS);
    await feeding;
    clearTimeout(late);
    await crew.stop();
  } finally {
    giveUp.abort();
    await crew.end();
  }
  const broken = (await checkInvariants(db)).map(({ invariant, offender }) => `${invariant} ${offender}`);
  return { opened, broken, killsInTurns, db };
}

const sumOf = (all: readonly Progress[]): Progress => ({
  kills: all.reduce((sum, { kills }) => sum + kills, 0),
  conversations: all.reduce((sum, { conversations }) => sum + conversations, 0),
  over: all.reduce((sum, { over }) => sum + over, 0),
});

/** `width`: ledgers side by side, each with two workers, so that starting a worker keeps nobody waiting. */
export async function killAtRandom(
  stage: Stage,
  options: { readonly kills: number; readonly seed: number; readonly width: number },
  each: (progress: Progress) => void = () => {},
): Promise<{ summary: RandomSummary; problems: string[] }> {
  const { fakes, ledgers } = stage;
  const { kills, seed, width } = options;
  const ends = new Map<Scenario, EndState>();
  for (const scenario of SCENARIOS) ends.set(scenario, (await record(ledgers, fakes, scenario)).end);
  const progress: Progress[] = Array.from({ length: width }, () => ({ kills: 0, conversations: 0, over: 0 }));
  const parts = await Promise.all(
    progress.map((_none, index) => {
      const share = Math.floor(kills / width) + (index < kills % width ? 1 : 0);
      return oneLedger(stage, { kills: share, seed: seed + 2 * index }, (own) => {
        progress[index] = own;
        each(sumOf(progress));
      });
    }),
  );
  try {
    const opened = parts.flatMap((part) => part.opened);
    const broken = parts.flatMap((part) => part.broken);
    const { bad, sums } = await judgeAll(fakes, opened, ends);
    const conversations: Record<string, number> = {};
    for (const { item } of opened) conversations[item.scenario.name] = (conversations[item.scenario.name] ?? 0) + 1;
    const told = bad.map(({ item, violations }) => `${item.scenario.name} ${item.id}: ${violations.join("; ")}`);
    const killsInTurns = parts.reduce((sum, part) => sum + part.killsInTurns, 0);
    return {
      summary: { seed, kills, killsInTurns, conversations, ...sums, violations: sums.violations + broken.length },
      problems: [...broken, ...told],
    };
  } finally {
    await Promise.all(parts.map(({ db }) => db.close()));
  }
}
