/** Absurd: a task of checkpointed steps. Its schema comes with its command line, which is a Python package. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import pg from "pg";
import type { System } from "../system.ts";

type Context = { step<R>(name: string, step: () => Promise<R>): Promise<R> };
type Absurd = {
  createQueue(name: string): Promise<void>;
  registerTask(
    options: { name: string; defaultMaxAttempts: number },
    handler: (params: { steps: number }, context: Context) => Promise<unknown>,
  ): void;
  spawn(name: string, params: { steps: number }): Promise<{ taskID: string }>;
  workBatch(workerId: string, claimTimeout: number, batchSize: number): Promise<void>;
  fetchTaskResult(task: string): Promise<{ state: string; failure?: unknown } | null>;
  close(): Promise<void>;
};

const PACKAGE: string = "absurd-sdk";
/** Seconds for which a claim holds; extended by every checkpoint. */
const CLAIM_SECONDS = 120;
let app: Absurd;
let current: () => Promise<string>;

/** Where `install.ts` put the package. */
export const PYTHON_FOLDER = join(import.meta.dirname, "../node_modules/.python");

function schema(): string {
  const script = "import absurdctl; print(absurdctl.BUNDLED_SCHEMA_SQL)";
  return execFileSync("python3", ["-c", script], {
    encoding: "utf8",
    env: { ...process.env, PYTHONPATH: PYTHON_FOLDER },
  });
}

export const absurd: System = {
  async open(url) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(schema());
    await client.end();
    const { Absurd } = (await import(PACKAGE)) as {
      Absurd: new (options: { db: string; queueName: string }) => Absurd;
    };
    app = new Absurd({ db: url, queueName: "default" });
    await app.createQueue("default");
    app.registerTask({ name: "steps", defaultMaxAttempts: 1 }, async ({ steps }, context) => {
      for (let index = 0; index < steps; index += 1) await context.step(`tool-${index}`, () => current());
      return null;
    });
  },
  async run({ steps }, step) {
    current = step;
    const { taskID } = await app.spawn("steps", { steps });
    // No polling worker: claimed here, so that nothing of it runs while another system is measured.
    await app.workBatch("bench", CLAIM_SECONDS, 1);
    const result = await app.fetchTaskResult(taskID);
    if (result?.state !== "completed")
      throw new Error(`the task is ${result?.state}: ${JSON.stringify(result?.failure)}`);
  },
  close: () => app.close(),
};
