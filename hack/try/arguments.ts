// The command line of `npm run try`.
import { parseArgs } from "node:util";
import { UserError } from "../lib/say.ts";

export const USAGE = `npm run try [-- --play | --yes] [--kills N [--seed S]] [--record FILE]

  Pawl on this machine with nothing but Node: an embedded PostgreSQL, two real workers, a scripted
  model, and a witness that logs each request it accepts. A worker is killed with a write in flight;
  beside it, a plain retry-from-checkpoint loop. Nothing is left behind. About half a minute.

  --play         step by step: Enter goes on, a runs the rest, q quits (the default on a terminal)
  --yes          without waiting for anybody (the default elsewhere)
  --kills N      then N more orders on each side, each killed at a random place; N up to 1000
  --seed S       the same places again
  --record FILE  what happened and when, as JSON
  --help         this text
`;

const MAX_KILLS = 1_000;

export type Arguments = {
  readonly help: boolean;
  readonly play: boolean;
  readonly kills: number;
  readonly seed: number;
  readonly record: string | undefined;
};

function whole(name: string, text: string, max: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= 1 && value <= max) return value;
  throw new UserError(`--${name} takes a whole number from 1 to ${max}, not "${text}"`);
}

/** `terminal`: somebody can press keys. `chance` is the seed where none is given. */
export function parseArguments(words: readonly string[], terminal: boolean, chance: number): Arguments {
  const options = {
    play: { type: "boolean", default: false },
    yes: { type: "boolean", short: "y", default: false },
    kills: { type: "string" },
    seed: { type: "string" },
    record: { type: "string" },
    help: { type: "boolean", short: "h", default: false },
  } as const;
  let values: ReturnType<typeof parseArgs<{ options: typeof options; args: string[] }>>["values"];
  try {
    values = parseArgs({ args: [...words], options }).values;
  } catch (error) {
    throw new UserError(`${(error as Error).message}\n\n${USAGE}`);
  }
  if (values.play && values.yes) throw new UserError("--play waits for keys and --yes for nobody: give one of them");
  if (values.play && !terminal) throw new UserError("--play needs a terminal to press keys on; leave it out here");
  if (values.seed !== undefined && values.kills === undefined)
    throw new UserError("--seed chooses places for --kills N");
  if (values.record === "") throw new UserError("--record needs the name of a file");
  return {
    help: values.help,
    play: values.play || (terminal && !values.yes),
    kills: values.kills === undefined ? 0 : whole("kills", values.kills, MAX_KILLS),
    seed: values.seed === undefined ? chance : whole("seed", values.seed, 2 ** 32 - 1),
    record: values.record,
  };
}
