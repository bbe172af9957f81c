/**
 * `steer`: how soon a turn that is at work takes a correction in. An amendment is seen at the next decision point, so it
 * is counted from there; a restart and a stop are counted from the moment at which the message is the ledger's.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Database } from "../operator/src/ledger/database.ts";
import { ingest } from "../operator/src/ledger/mailbox.ts";
import { migrate } from "../operator/src/ledger/migrate.ts";
import type { ModelOutcome, ModelRequest, Tool } from "../operator/src/engine/ports.ts";
import { type MidTurn, policyOf } from "../operator/src/rules/interrupt.ts";
import { asks, done, finder, says, writer } from "../operator/test/support/engine.ts";
import { Postgres } from "../operator/test/support/postgres.ts";
import { aMessage } from "../operator/test/support/world.ts";
import { atMost, type Bar, quantile } from "./arithmetic.ts";
import type { Benchmark, Options } from "./main.ts";
import { table } from "./table.ts";
import { startCrew, talkAgent } from "./talk/crew.ts";

export const CASES = [
  "amend while the model answers",
  "amend in a read",
  "amend in a write",
  "restart while the model answers",
  "stop while the model answers",
] as const;
export type CaseName = (typeof CASES)[number];
/** Milliseconds after the next decision point until an amendment is in front of the model. */
const SEEN_MS = 200;
/** Milliseconds after the message until a model call that nobody wants any more is cut off. */
const ABORTED_MS = 250;
const LIMITS: Readonly<Record<CaseName, number>> = {
  "amend while the model answers": SEEN_MS,
  "amend in a read": SEEN_MS,
  "amend in a write": SEEN_MS,
  "restart while the model answers": ABORTED_MS,
  "stop while the model answers": ABORTED_MS,
};
const MODES: Readonly<Record<CaseName, MidTurn>> = {
  "amend while the model answers": "amend",
  "amend in a read": "amend",
  "amend in a write": "amend",
  "restart while the model answers": "preempt",
  "stop while the model answers": "preempt",
};
/** Corrections of a case in one round. */
const SAMPLES = 10;
/** What the correction falls into takes so long, and it comes in the middle. */
const BUSY_MS = 400;
/** What is not seen by then never is. */
const LIMIT_MS = 10_000;

/** Milliseconds of each case, over all rounds. */
export type Results = ReadonlyMap<CaseName, readonly number[]>;

export const barsOf = (results: Results): Bar[] =>
  CASES.map((name) => atMost(`${name}, p99 ms`, quantile(results.get(name) ?? [], 0.99), LIMITS[name]));

export const tableOf = (results: Results): string =>
  table(
    ["correction", "measured", "p50 ms", "p99 ms", "longest ms"],
    CASES.map((name) => {
      const times = results.get(name) ?? [];
      return [name, String(times.length), ...[0.5, 0.99, 1].map((q) => quantile(times, q).toFixed(0))];
    }),
  );

const CORRECTION = "No, the other one.";

/** What one turn does and when it saw what; the model and the tools of all turns find theirs by its mark. */
class Scene {
  readonly name: CaseName;
  readonly busy = Promise.withResolvers<void>();
  readonly measured = Promise.withResolvers<number>();
  /** When the work that the correction fell into was over, or the correction was in the ledger. */
  from = Number.NaN;
  #asked = 0;

  constructor(name: CaseName) {
    this.name = name;
  }

  async think(request: ModelRequest, signal: AbortSignal): Promise<ModelOutcome> {
    this.#asked += 1;
    if (request.messages.some(({ content }) => content?.includes(CORRECTION))) {
      this.measured.resolve(performance.now() - this.from);
      return says("As you wish.");
    }
    if (this.#asked > 1) return says("Nobody told me anything.");
    if (this.name === "amend in a read") return asks(["find", { to: "it" }]);
    if (this.name === "amend in a write") return asks(["write", { to: "it" }]);
    this.busy.resolve();
    if (this.name === "amend while the model answers") {
      await sleep(BUSY_MS);
      this.from = performance.now();
      return asks(["find", { to: "nothing" }]);
    }
    const cut = await sleep(LIMIT_MS, false, { signal }).catch(() => true);
    // A message may be seen by others before its own sender hears that it is in the ledger.
    if (cut) this.measured.resolve(Math.max(0, performance.now() - (this.from || performance.now())));
    return { kind: "failed", class: "cancelled", reason: "Cancelled", message: "it was cancelled" };
  }

  async work(): Promise<void> {
    if (this.name === "amend while the model answers") return;
    this.busy.resolve();
    await sleep(BUSY_MS);
    this.from = performance.now();
  }
}

class Stage {
  readonly #db: Database;
  readonly #url: string;
  readonly #scenes = new Map<string, Scene>();

  constructor(url: string) {
    this.#url = url;
    this.#db = new Database({ url });
  }

  #sceneOf(text: string): Scene {
    const [, mark = ""] = /scene-(\d+)/.exec(text) ?? [];
    const scene = this.#scenes.get(mark);
    if (scene === undefined) throw new Error("a turn without a scene");
    return scene;
  }

  #tools(): Tool[] {
    // One turn at a time: whoever calls a tool is the newest one.
    const work = async () => {
      await [...this.#scenes.values()].at(-1)?.work();
      return done("there it is");
    };
    return [finder([work]), writer([work])];
  }

  async open() {
    await migrate({ url: this.#url });
    const crew = startCrew(this.#url, {
      workers: 2,
      concurrency: 4,
      tools: this.#tools(),
      complete: (request, signal) =>
        this.#sceneOf(request.messages.map(({ content }) => content ?? "").join("\n")).think(request, signal),
    });
    return {
      close: async () => {
        await crew.stop();
        await this.#db.close();
      },
    };
  }

  async measure(name: CaseName): Promise<number> {
    const midTurn = MODES[name];
    const mark = String(this.#scenes.size + 1);
    const scene = new Scene(name);
    this.#scenes.set(mark, scene);
    const agent = await talkAgent(this.#db, ["find", "write"], midTurn === "amend" ? "Amend" : "Preempt", 4);
    const say = (text: string, stops = false) =>
      ingest(
        this.#db,
        aMessage(agent.id, {
          generation: agent.generation,
          conversationKey: mark,
          text,
          stops,
          askable: true,
          policy: { ...policyOf(null), midTurn, quietMs: 0 },
        }),
      );
    await say(`Fetch it, please (scene-${mark}).`);
    await scene.busy.promise;
    await sleep(BUSY_MS / 4);
    const stops = name === "stop while the model answers";
    await say(stops ? "stop" : CORRECTION, stops);
    if (midTurn === "preempt" && Number.isNaN(scene.from)) scene.from = performance.now();
    const ended = new AbortController();
    const late = sleep(LIMIT_MS, Number.POSITIVE_INFINITY, { signal: ended.signal }).catch(() => 0);
    const took = await Promise.race([scene.measured.promise, late]);
    ended.abort();
    await this.#over();
    return took;
  }

  /** Nothing of one scene runs on into the next. */
  async #over(): Promise<void> {
    while ((await this.#db.pool.query("select from runs where live limit 1")).rows.length > 0) await sleep(20);
  }
}

async function measureAll(url: string, { rounds, say }: Options): Promise<Results> {
  const stage = new Stage(url);
  const open = await stage.open();
  const results = new Map<CaseName, number[]>();
  try {
    for (const name of CASES) await stage.measure(name);
    for (let round = 0; round < rounds; round += 1) {
      for (const name of CASES) {
        const times: number[] = [];
        for (let sample = 0; sample < SAMPLES; sample += 1) times.push(await stage.measure(name));
        results.set(name, [...(results.get(name) ?? []), ...times]);
        say(
          `round ${round + 1}/${rounds} · ${name}: p50 ${quantile(times, 0.5).toFixed(0)} ms, longest ${Math.max(...times).toFixed(0)} ms`,
        );
      }
    }
    return results;
  } finally {
    await open.close();
  }
}

export const steer: Benchmark = {
  about: "a correction while the model answers, in a read, in a write: how soon it is taken in",
  rounds: 3,
  async run(options) {
    const postgres = await Postgres.start();
    try {
      const results = await measureAll(await postgres.create({ empty: true }), options);
      return { bars: barsOf(results), table: tableOf(results) };
    } finally {
      await postgres.stop();
    }
  },
};
