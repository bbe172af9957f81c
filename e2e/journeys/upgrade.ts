/** `helm upgrade` under a Run that is at work. */
import assert from "node:assert/strict";
import { statusOf } from "../../hack/demo/run-status.ts";
import { type Pawl, runNamed, SYSTEM } from "../support/pawl.ts";

export function upgradeJourneys(pawl: () => Pawl): void {
  describe("an upgrade", () => {
    it("keeps the database and its password, and takes a Run at work along", async () => {
      const password = () =>
        pawl().kubectl.run(["get", "secret", "-n", SYSTEM, "pawl-postgres", "-o", "jsonpath={.data.password}"]);
      const database = async () => (await pawl().kubectl.get("pod", "pawl-postgres-0", SYSTEM))?.metadata.uid;
      const before = [await password(), await database()];
      await pawl().kubectl.apply(runNamed("survivor", "script:survive"));
      await pawl().whenAtWork("survivor");
      await pawl().upgrade({ worker: { concurrency: 8 }, logLevel: "debug" });
      const run = await pawl().until("survivor", "Succeeded");
      assert.equal(statusOf(run).answer?.preview, "Survived.");
      assert.deepEqual([await password(), await database()], before);
    });

    it("can be done again, and answers afterwards", async () => {
      await pawl().upgrade();
      await pawl().kubectl.apply(runNamed("upgraded", "Hello"));
      await pawl().until("upgraded", "Succeeded");
    });
  });
}
