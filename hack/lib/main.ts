// How a command of hack/ ends: a sentence for people, a stack for everything nobody foresaw.
import { UserError } from "./say.ts";

export async function runMain(main: () => Promise<number>): Promise<void> {
  try {
    process.exitCode = await main();
  } catch (error) {
    process.stderr.write(
      error instanceof UserError ? `${error.message}\n` : `${(error as Error).stack ?? String(error)}\n`,
    );
    process.exitCode = 1;
  }
}
