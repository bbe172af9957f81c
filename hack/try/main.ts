// npm run try
import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { runMain } from "../lib/main.ts";
import { UserError } from "../lib/say.ts";
import { type Arguments, parseArguments, USAGE } from "./arguments.ts";
import { Keys } from "./keys.ts";
import { playTry } from "./play.ts";
import type { Event, Kind } from "./stage.ts";

const BOLD = "\x1b[1m";
const DIM = "\x1b[2m";
const OFF = "\x1b[0m";

function print(text: string, kind: Kind): void {
  const styled = (style: string, words: string) => (process.stdout.isTTY ? `${style}${words}${OFF}` : words);
  switch (kind) {
    case "title":
      return console.log(`\n${styled(BOLD, text)}`);
    case "line":
      return console.log(text);
    case "block":
      return console.log(text.replaceAll(/^(?=.)/gm, "          "));
    case "count":
      return console.log(styled(DIM, `        ── ${text}`));
  }
}

function record({ record: file, kills, seed }: Arguments, startedAt: Date, what: object): void {
  if (file === undefined) return;
  try {
    writeFileSync(resolve(file), `${JSON.stringify({ startedAt, kills, seed, ...what }, null, 2)}\n`);
  } catch (error) {
    throw new UserError(`The record could not be written: ${(error as Error).message}`, { cause: error });
  }
}

await runMain(async () => {
  const terminal = process.stdin.isTTY && process.stdout.isTTY;
  const given = parseArguments(process.argv.slice(2), terminal, 1 + Math.floor(Math.random() * 1_000_000));
  if (given.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  // The handlers of `exit` remove what there is.
  for (const [name, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const) {
    process.once(name, () => {
      console.log("\nstopped; what was started is removed");
      process.exit(code);
    });
  }
  const startedAt = new Date();
  const { kills, seed } = given;
  record(given, startedAt, { events: [] }); // a file that cannot be written is told now, not after half a minute
  try {
    const result = await playTry({ unattended: !given.play, next: new Keys().next, say: print, kills, seed });
    record(given, startedAt, { ms: result.ms, events: result.events, count: result.rows, witness: result.witness });
    console.log(
      `\nDone in ${(result.ms / 1_000).toFixed(1)} s, and everything is removed. Next: npm run demo, the same on a real Kubernetes.`,
    );
    return 0;
  } catch (error) {
    const { message, events } = error as Error & { events?: readonly Event[] };
    record(given, startedAt, { failed: message, events: events ?? [] });
    throw error;
  }
});
