// `--kills N`: N orders on each side, each killed once at a random place, in ledgers of their own.
import { join } from "node:path";
import type { PORTS, SWEPT } from "../../operator/test/sweep/points.ts";
import { type Cast, openLedger } from "./cast.ts";
import { manifests } from "./ledger.ts";
import { believesDone, PLACES, PlainLoop } from "./plain.ts";
import { ended } from "./scenes.ts";
import { orderText } from "./shops.ts";
import { within } from "./stage.ts";
import { Worker } from "./worker.ts";

/** What every order passes in its first attempt; a place that none comes by would be waited for in vain. */
const STATEMENTS = [
  "read_run",
  "read_triggers",
  "read_steps",
  "read_calls",
  "read_effects",
  "read_history",
  "read_evidence",
  "commit_response",
  "cross_effect",
  "settle_effect",
  "commit_results",
  "finish_turn",
] as const satisfies readonly (typeof SWEPT)[number][];
const CALLS = [
  "before:model",
  "after:model",
  "before:tool.http_request",
  "http_request:connected",
  "http_request:sent",
  "http_request:answered",
  "after:tool.http_request",
] as const satisfies readonly (typeof PORTS)[number][];

export const POINTS: readonly string[] = [
  ...CALLS,
  ...STATEMENTS.flatMap((name) => [`before:${name}`, `after:${name}`]),
];

/** Orders under way at once: a kill costs seconds of waiting and hardly any work. */
const LANES = 3;

/** Small, seeded, good enough to choose places (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

type Round = { readonly number: number; readonly point: string; readonly place: (typeof PLACES)[number] };

/** The same seed gives the same kills, whichever lane does them. */
export function rounds(count: number, seed: number): Round[] {
  const next = random(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(next() * list.length)] as T;
  return Array.from({ length: count }, (_, index) => ({ number: index + 2, point: pick(POINTS), place: pick(PLACES) }));
}

async function pawlRound(cast: Cast, ledger: Cast["ledger"], { number, point }: Round): Promise<void> {
  const { leftovers, counter } = cast;
  const tally = counter.of.north;
  const [template] = manifests("runs.yaml").filter(({ metadata }) => metadata.name === "north-1");
  if (template === undefined) throw new Error("no Run north-1");
  const name = `north-${number}`;
  const spec = { agentRef: { name: "north" }, input: { actor: "alice", text: orderText(name) } };
  const order = { ...template, metadata: { ...template.metadata, name }, spec };
  const worker = (role: string, failpoint?: string) =>
    new Worker(leftovers, {
      ledgerUrl: ledger.url,
      name: `${role}-${number}`,
      ...(failpoint === undefined ? {} : { failpoint }),
    });
  const victim = worker("victim", `${point}:1:kill`);
  await ledger.applyRun(order);
  tally.asked += 1;
  await within(`the worker of ${name} dies at ${point}`, victim.exited);
  tally.kills += 1;
  const heir = worker("heir");
  await ended(ledger, order, tally);
  await heir.stop();
}

async function plainRound(cast: Cast, { number, place }: Round): Promise<void> {
  const { leftovers, counter, model } = cast;
  const tally = counter.of.south;
  const name = `south-${number}`;
  const started = { checkpoint: join(leftovers.folder, `${name}.json`), ask: orderText(name), modelUrl: model.url };
  tally.asked += 1;
  if ((await new PlainLoop(leftovers, started, place).answer()) === null) tally.kills += 1;
  await new PlainLoop(leftovers, started).answer();
  tally.confirmed += believesDone(started.checkpoint);
}

export async function manyKills(cast: Cast, count: number, seed: number): Promise<void> {
  const { stage, counter } = cast;
  await stage.next(`${count} orders on each side, each killed at a random place`);
  stage.title(`${count} orders on each side, each killed once at a random place (--seed ${seed})`);
  stage.line(
    `Pawl dies at one of ${POINTS.length} places (the crash sweep's), the plain loop at one of its ${PLACES.length}`,
  );
  const queue = rounds(count, seed);
  await Promise.all(
    Array.from({ length: Math.min(LANES, count) }, async (_, lane) => {
      const ledger = await openLedger(cast.postgres, cast.leftovers, cast.model.url, `lane_${lane}`);
      for (let round = queue.shift(); round !== undefined; round = queue.shift()) {
        await pawlRound(cast, ledger, round);
        await plainRound(cast, round);
        stage.line(`north-${round.number} killed at ${round.point}; south-${round.number} at ${round.place}`);
        stage.count(counter.line());
      }
    }),
  );
}
