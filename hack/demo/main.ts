// npm run demo
import { runMain } from "../lib/main.ts";
import { parseArguments, USAGE } from "./arguments.ts";
import { down } from "./down.ts";
import { Screen } from "./screen.ts";
import { up } from "./up.ts";

await runMain(async () => {
  const { command, context } = parseArguments(process.argv.slice(2));
  if (command === "help") {
    process.stdout.write(USAGE);
    return 0;
  }
  const screen = new Screen();
  try {
    if (command === "down") await down(context, screen);
    else await up(context, screen);
  } finally {
    screen.settle();
  }
  return 0;
});
