/** How long a dead worker's run waits: bounds of the contract, each by its name, with another worker already up. */
import assert from "node:assert/strict";
import { sharedPostgres } from "../support/postgres.ts";
import { WorkerProcess } from "./process.ts";
import { SETTLE_MS, startCase, startWorld, TIMES, type World } from "./scenario.ts";
import { scenarioOf } from "./scenarios.ts";

/** What the contract allows beyond the lease, and beyond `settle_at`. */
const GRACE_MS = 1_000;

describe("a run whose worker was killed", function () {
  this.timeout(60_000);
  let fakes: World;
  before(async () => {
    fakes = await startWorld();
  });
  after(async () => {
    await fakes.stop();
  });

  it("is claimed again within lease + 1 s, and its effect in flight is settled within its settle_at + 1 s", async () => {
    let workers: WorkerProcess[] = [];
    const ledgers = await sharedPostgres();
    await using item = await startCase(ledgers, fakes, scenarioOf("write"), async (ledgerUrl, path) => {
      await fakes.world.control("PUT", "/control", { path, mode: "hold", times: 1 });
      workers = ["a", "b"].map((name) => new WorkerProcess({ ledgerUrl, name }));
      await Promise.all(workers.map((worker) => worker.said((line) => line.msg === "serving")));
    });
    try {
      const isClaim = (line: { msg: string }): boolean => line.msg === "claimed a run";
      const victim = await Promise.race(workers.map(async (worker) => worker.said(isClaim).then(() => worker)));
      const heir = workers.find((worker) => worker !== victim);
      assert.ok(heir);
      await fakes.world.log(1);
      const { rows } = await item.db.pool.query<{ settle: Date; lease: Date }>(
        "select e.settle_at as settle, r.lease_until as lease from commitment_effects e join runs r on r.id = e.run_id where e.kind <> 'reply'",
      );
      const due = rows[0];
      assert.ok(due);
      victim.kill("SIGKILL");
      const fell = await victim.exited;
      const claimed = await heir.said(isClaim);
      await heir.said((line) => line.msg === "a turn ended");
      assert.ok(claimed.at - fell.at <= TIMES.lease + GRACE_MS, `claimed again after ${claimed.at - fell.at} ms`);
      const { rows: after } = await item.db.pool.query<{ settled: Date; attempt: number }>(
        "select settled_at as settled, attempt from commitment_effects where kind <> 'reply'",
      );
      assert.equal(after[0]?.attempt, 2);
      const late = Number(after[0]?.settled) - Number(due.settle);
      assert.ok(late >= 0, "nobody sends again before settle_at");
      assert.ok(late <= GRACE_MS, `settled ${late} ms after its settle_at (${SETTLE_MS} ms after its dispatch)`);
    } finally {
      for (const worker of workers) worker.kill("SIGKILL");
      await Promise.all(workers.map((worker) => worker.exited));
    }
  });
});
