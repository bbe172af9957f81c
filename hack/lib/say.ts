// What a person reads while a command works, and the error that is meant for them.

/** Takes one line of progress. */
export type Log = (line: string) => void;

/** Progress goes to stderr: stdout is for what a script reads. */
export const logToStderr: Log = (line) => {
  process.stderr.write(`${line}\n`);
};

/** A failure with a sentence that says what to do. The CLI prints the sentence alone, without a stack. */
export class UserError extends Error {
  override name = "UserError";
}

/** "2m05s" or "8s". */
export function duration(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds}s`;
  return `${Math.floor(seconds / 60)}m${String(seconds % 60).padStart(2, "0")}s`;
}

/** Runs `work`, and says every 15 s that it is still at it: a build of minutes must not look like a hang. */
export async function withProgress<T>(log: Log, what: string, work: () => Promise<T>): Promise<T> {
  const start = Date.now();
  log(`${what} …`);
  const timer = setInterval(() => log(`${what}: ${duration(Date.now() - start)} so far`), 15_000);
  try {
    const result = await work();
    log(`${what}: done in ${duration(Date.now() - start)}`);
    return result;
  } finally {
    clearInterval(timer);
  }
}
