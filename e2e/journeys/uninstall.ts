/** Uninstalled with Runs at work, installed again with a new ledger: nothing is stuck, nothing runs twice. */
import assert from "node:assert/strict";
import { RELEASE } from "../../hack/demo/install.ts";
import { conditionOf, statusOf } from "../../hack/demo/run-status.ts";
import { AGENTS, type Pawl, runNamed, SYSTEM } from "../support/pawl.ts";

export function uninstallJourneys(pawl: () => Pawl): void {
  describe("an uninstall", () => {
    it("with a Run at work leaves nothing that cannot be deleted", async () => {
      await pawl().kubectl.apply(runNamed("at-work", "script:held"), runNamed("gone", "script:held"));
      await pawl().whenAtWork("at-work");
      await pawl().whenAtWork("gone");
      const args = ["uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--timeout", "2m"];
      await pawl().kubectl.helm(args);
      await pawl().run("delete", "runs.pawl.dev/gone", "--wait", "--timeout=10s");
      await pawl().kubectl.apply(runNamed("unserved", "script:order path=unserved"));
    });

    it("and a new install with an empty ledger run no old message again, and say so", async () => {
      await pawl().upgrade();
      const lost = await pawl().until("at-work", "Finished");
      assert.equal(statusOf(lost).reason, "LedgerLost");
      const old = await pawl().until("unserved", "Finished");
      assert.equal(conditionOf(old, "Accepted")?.reason, "OlderThanInstallation");
      const finished = await pawl().until("killed", "Succeeded");
      assert.equal(statusOf(finished).phase, "Succeeded");
      assert.equal((await pawl().worldLog("/keyed/unserved")).length, 0);
      assert.equal((await pawl().worldLog("/keyed/killed")).length, 2);
      await pawl().kubectl.apply(runNamed("new", "Hello"));
      await pawl().until("new", "Succeeded");
    });

    it("of everything ends, with all its namespaces", async () => {
      await pawl().remove();
      const left = await pawl().kubectl.try(["get", "namespace", SYSTEM, AGENTS, "--ignore-not-found", "-o", "name"]);
      assert.equal(left.stdout, "");
      const kinds = await pawl().kubectl.try(["get", "crd", "runs.pawl.dev", "--ignore-not-found", "-o", "name"]);
      assert.equal(kinds.stdout, "");
    });
  });
}
