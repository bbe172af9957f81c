/** Processes die as in a crash (SIGKILL), and the world's own log says what happened. */
import assert from "node:assert/strict";
import { killRole } from "../../hack/demo/kill.ts";
import { statusOf } from "../../hack/demo/run-status.ts";
import { type Pawl, runNamed, SYSTEM } from "../support/pawl.ts";

export function crashJourneys(pawl: () => Pawl): void {
  describe("a crash", () => {
    it("of the worker after the world has accepted a write leaves one write, and the same Run finishes", async () => {
      await pawl().world("/keyed/killed", "hold");
      await pawl().kubectl.apply(runNamed("killed", "script:order path=killed"));
      await pawl().worldLog("/keyed/killed", 1);
      const { runID } = statusOf(await pawl().when("killed", (run) => statusOf(run).runID !== undefined));
      await killRole(pawl().kubectl, SYSTEM, "worker");
      const done = await pawl().until("killed", "Succeeded", undefined, 90);
      assert.equal(statusOf(done).runID, runID);
      assert.equal(statusOf(done).boundary?.restartable, "No");
      const log = await pawl().worldLog("/keyed/killed");
      assert.deepEqual(
        log.map(({ outcome }) => outcome),
        ["write", "replay"],
      );
      assert.equal(new Set(log.map(({ key }) => key)).size, 1);
      assert.match(await pawl().transcript("killed"), /confirmed, sent 2 times/);
    });

    it("of the controller loses no Run that was at work and none that is applied meanwhile", async () => {
      await pawl().kubectl.apply(runNamed("orphan", "script:held"));
      await pawl().whenAtWork("orphan");
      await killRole(pawl().kubectl, SYSTEM, "controller");
      await pawl().kubectl.apply(runNamed("meanwhile", "script:order path=meanwhile"));
      await pawl().releaseModel();
      await pawl().until("orphan", "Succeeded");
      await pawl().until("meanwhile", "Succeeded");
      assert.equal((await pawl().worldLog("/keyed/meanwhile")).length, 1);
    });
  });
}
