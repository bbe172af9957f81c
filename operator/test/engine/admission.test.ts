/** Two workers on one ledger, and an agent that may have two runs at work: never three, and all are answered. */
import assert from "node:assert/strict";
import { ingest } from "#ledger/mailbox.ts";
import { Worker } from "#engine/worker.ts";
import { bench, engineAgent, says, type Script } from "../support/engine.ts";
import { count } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

describe("an agent's ceiling, with two workers", () => {
  const ledger = useLedger();

  it("of two is never passed, and does not keep another agent waiting", async () => {
    const agent = await engineAgent(ledger.db, [], { concurrency: { maxRuns: 2 } });
    const bystander = await engineAgent(ledger.db, []);
    for (let n = 0; n < 10; n += 1) await ingest(ledger.db, aMessage(agent.id));
    await ingest(ledger.db, aMessage(bystander.id));
    const seen: number[] = [];
    let answered = 0;
    let done = () => {};
    const all = new Promise<void>((resolve) => {
      done = resolve;
    });
    const answer: Script[number] = async () => {
      seen.push(await count(ledger, "runs where live and lease_owner is not null and agent_id = $1", [agent.id]));
      return says("done");
    };
    const meter = {
      claimed() {},
      modelCall() {},
      effect() {},
      ended() {
        answered += 1;
        if (answered === 11) done();
      },
    };
    const workers = ["worker-1", "worker-2"].map((owner) => {
      const script = Array.from({ length: 11 }, () => answer);
      return new Worker(
        bench(ledger.db, script, [], { settings: { owner, concurrency: 8, pollMs: 20 }, deps: { meter } }).deps,
      );
    });
    for (const worker of workers) worker.start();
    await all;
    await Promise.all(workers.map((worker) => worker.stop()));
    assert.equal(seen.length, 11);
    assert.ok(Math.max(...seen) <= 2, seen.join(" "));
    assert.equal(await count(ledger, "runs where not live and status = 'succeeded'"), 11);
  });
});
