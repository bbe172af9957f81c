/** The tools that a run was shown: pinned once, by whoever holds its lease. */
import assert from "node:assert/strict";
import { armFailpoint, disarmFailpoint } from "#src/failpoints.ts";
import { pinToolset, readToolset } from "#ledger/toolsets.ts";
import { end } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aClaimedRun } from "../support/world.ts";

describe("the tools that a run was shown", () => {
  const ledger = useLedger();
  afterEach(() => disarmFailpoint());

  it("are none before they are pinned, and stay what was pinned first", async () => {
    const run = await aClaimedRun(ledger.db);
    assert.equal(await readToolset(ledger.db, run.runId), null);
    assert.equal(await pinToolset(ledger.db, run, [{ name: "first" }]), "pinned");
    assert.equal(await pinToolset(ledger.db, run, [{ name: "second" }]), "pinned");
    assert.deepEqual(await readToolset(ledger.db, run.runId), [{ name: "first" }]);
  });

  it("are pinned when the reply of the commit was lost", async () => {
    const run = await aClaimedRun(ledger.db);
    armFailpoint("after:pin_toolset:1:swallow");
    assert.equal(await pinToolset(ledger.db, run, []), "pinned");
    assert.deepEqual(await readToolset(ledger.db, run.runId), []);
  });

  it("are pinned by the holder of the lease only, of a run that is alive", async () => {
    const run = await aClaimedRun(ledger.db);
    assert.equal(await pinToolset(ledger.db, { ...run, token: run.token + 1 }, []), "fenced");
    await end(ledger.db, run);
    assert.equal(await pinToolset(ledger.db, run, []), "ended");
    assert.equal(await readToolset(ledger.db, run.runId), null);
  });
});
