/** DBOS: a workflow of checkpointed steps. */
import type { System } from "../system.ts";

type Dbos = {
  setConfig(config: Readonly<Record<string, unknown>>): void;
  launch(): Promise<void>;
  shutdown(): Promise<void>;
  registerWorkflow<A extends unknown[], R>(
    body: (...args: A) => Promise<R>,
    config: { name: string },
  ): (...args: A) => Promise<R>;
  runStep<R>(step: () => Promise<R>, config: { name: string }): Promise<R>;
};

/** Not a literal: its types are only there when the peers are installed. */
const PACKAGE: string = "@dbos-inc/dbos-sdk";
let sdk: Dbos;
let workflow: (steps: number) => Promise<void>;
let current: () => Promise<string>;

export const dbos: System = {
  async open(url) {
    ({ DBOS: sdk } = (await import(PACKAGE)) as { DBOS: Dbos });
    sdk.setConfig({ name: "bench", systemDatabaseUrl: url, logLevel: "error" });
    workflow = sdk.registerWorkflow(
      async (steps: number) => {
        for (let index = 0; index < steps; index += 1) await sdk.runStep(() => current(), { name: "tool" });
      },
      { name: "steps" },
    );
    await sdk.launch();
  },
  async run({ steps }, step) {
    current = step;
    await workflow(steps);
  },
  close: () => sdk.shutdown(),
};
