import assert from "node:assert/strict";
import { createMetrics, watchLedger } from "#observability/metrics.ts";

const AGE = /^pawl_ledger_oldest_snapshot_seconds (.*)$/m;

describe("metrics", () => {
  it("are there from the first scrape, at zero", async () => {
    const { registry } = createMetrics();
    const text = await registry.metrics();
    for (const line of [
      'pawl_run_claims_total{takeover="true"} 0',
      'pawl_effects_total{outcome="unknown"} 0',
      'pawl_runs_ended_total{status="budget_exhausted"} 0',
      'pawl_reconciles_total{controller="run",outcome="failed"} 0',
    ]) {
      assert.ok(text.includes(line), line);
    }
  });

  it("tell the age of the oldest snapshot at each scrape, and the last one seen while the ledger does not answer", async () => {
    const { registry } = createMetrics();
    const answers = [
      () => Promise.resolve(90_500),
      () => Promise.reject(new Error("away")),
      () => new Promise<number>(() => {}),
    ];
    watchLedger(registry, () => (answers.shift() ?? (() => Promise.resolve(0)))());
    const scrape = async () => AGE.exec(await registry.metrics())?.[1];
    assert.equal(await scrape(), "90.5");
    assert.equal(await scrape(), "90.5", "refused");
    assert.equal(await scrape(), "90.5", "silent: the scrape goes on without it");
    assert.equal(await scrape(), "0");
  });
});
