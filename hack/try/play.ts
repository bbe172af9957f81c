// The whole try, from an empty folder to none: used by the command and by its test.
import { readFileSync } from "node:fs";
import { table } from "../demo/run-status.ts";
import { UserError } from "../lib/say.ts";
import { type Cast, gather } from "./cast.ts";
import { comparison, contradictions, type Row } from "./counter.ts";
import { manyKills } from "./kills.ts";
import { Leftovers } from "./leftovers.ts";
import { inFlight, looked, plainLoop, question, withoutKeys } from "./scenes.ts";
import type { Shop } from "./shops.ts";
import { type Event, type Say, Stage } from "./stage.ts";
import { corrections, tooLate } from "./talk.ts";
import { parseLog, recount } from "./witness.ts";

export type TryOptions = {
  readonly say: Say | ((text: string) => void);
  /** True: nobody is waited for. */
  readonly unattended: boolean;
  /** Waits for the person who plays. */
  readonly next?: (prompt: string) => Promise<void>;
  /** More orders, each killed once. */
  readonly kills?: number;
  readonly seed?: number;
};

export type TryResult = {
  readonly ms: number;
  readonly rows: readonly Row[];
  readonly kills: number;
  readonly events: readonly Event[];
  /** What the witness wrote down. */
  readonly witness: readonly unknown[];
  /** Gone by now. */
  readonly folder: string;
};

/** The recount from the witness's file alone, held against what each side says. */
function count(cast: Cast): { rows: Row[]; log: readonly unknown[] } {
  const { stage, counter, witness } = cast;
  stage.title("The count");
  const log = parseLog(readFileSync(witness.logFile, "utf8"));
  const shops: Shop[] = ["north", "south", "east", "west"];
  const rows = shops.map((shop) => ({ shop, tally: counter.of[shop], seen: recount(log, shop) }));
  stage.count(counter.line());
  stage.line("and recounted from the witness's log alone:");
  stage.block(table(comparison(rows)));
  const wrong = contradictions(rows);
  if (wrong.length > 0) {
    throw new UserError(
      `That is not what should have happened: ${wrong.join("; ")}. Please report it with the lines above.`,
    );
  }
  stage.line(
    "what Pawl says and what the witness wrote down agree: nothing twice, nothing lost, what is not known is said",
  );
  return { rows, log };
}

/** Throws a UserError with a sentence. Whatever happens, what was started and written is removed. */
export async function playTry(options: TryOptions): Promise<TryResult> {
  const { kills = 0, seed = 1 } = options;
  const stage = new Stage(options.say, options.unattended ? async () => {} : (options.next ?? (async () => {})));
  const leftovers = new Leftovers();
  let cast: Cast | undefined;
  try {
    cast = await gather(stage, leftovers, kills);
    await question(cast);
    await inFlight(cast);
    await looked(cast);
    await plainLoop(cast);
    await withoutKeys(cast);
    await corrections(cast);
    await tooLate(cast);
    if (kills > 0) await manyKills(cast, kills, seed);
    await stage.next("count");
    const { rows, log } = count(cast);
    return {
      ms: stage.ms,
      rows,
      kills: cast.counter.kills,
      events: stage.events,
      witness: log,
      folder: leftovers.folder,
    };
  } catch (error) {
    for (const worker of cast?.workers.values() ?? []) {
      stage.line(`worker ${worker.name} said last:`);
      stage.block(worker.lastWords);
    }
    throw Object.assign(error as Error, { events: stage.events });
  } finally {
    await leftovers.remove();
  }
}
