/** Real workers on a real ledger, as `serve.ts` puts them together: woken and told by notifications. The model is the bench's. */
import { setTimeout as sleep } from "node:timers/promises";
import { Decider } from "../../operator/src/engine/decider.ts";
import type { ModelPort, Tool } from "../../operator/src/engine/ports.ts";
import { Signals } from "../../operator/src/engine/signals.ts";
import { Worker } from "../../operator/src/engine/worker.ts";
import { Database } from "../../operator/src/ledger/database.ts";
import { listenToLedger } from "../../operator/src/ledger/notify.ts";
import { LEASE_MS, RENEW_MS } from "../../operator/src/rules/limits.ts";
import { bench, engineAgent } from "../../operator/test/support/engine.ts";

/** What asking a small model costs: as fast as a local one is. */
export const RELATION_MS = 20;

export type Crew = { stop(): Promise<void> };
export type Parts = {
  readonly workers: number;
  readonly concurrency: number;
  readonly tools: readonly Tool[];
  readonly complete: ModelPort["complete"];
};

export function startCrew(url: string, { workers, concurrency, tools, complete }: Parts): Crew {
  const ending = new AbortController();
  const members = Array.from({ length: workers }, (_, index) => {
    // Each with connections of its own, as processes have them.
    const db = new Database({ url });
    const signals = new Signals();
    const { deps } = bench(db, [], tools, {
      settings: { owner: `worker-${index + 1}`, leaseMs: LEASE_MS, renewMs: RENEW_MS, concurrency },
      deps: {
        model: { complete },
        signals,
        judge: {
          consent: () => Promise.resolve("unsure"),
          sensitivity: () => Promise.resolve("unsure"),
          relation: () => sleep(RELATION_MS, "refines" as const),
        },
      },
    });
    const worker = new Worker(deps);
    const decider = new Decider(deps);
    const due = () => {
      worker.wake();
      decider.wake();
    };
    listenToLedger(url, { due, signal: (run) => signals.tell(run) }, ending.signal);
    worker.start();
    return { db, worker, decided: decider.run(ending.signal) };
  });
  return {
    async stop() {
      ending.abort();
      await Promise.all(members.map(({ worker, decided }) => Promise.all([worker.stop(), decided])));
      await Promise.all(members.map(({ db }) => db.close()));
    },
  };
}

const MODEL = { baseURL: "http://model.test/v1", model: "scripted" };

/** An Agent that asks a small model what a message means, and of which any number of turns run at once. */
export const talkAgent = (db: Database, tools: readonly string[], midTurn: string, concurrent: number) =>
  engineAgent(db, tools, {
    models: { primary: MODEL, fast: MODEL },
    concurrency: { maxRuns: concurrent },
    interrupt: { whoInterrupts: "ThreadScoped", midTurn },
  });
