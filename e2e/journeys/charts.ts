/** The chart by itself: what helm says before anything is installed. */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { repository } from "../../hack/lib/environment.ts";
import type { Pawl } from "../support/pawl.ts";

const CHART = join(repository, "charts/pawl");
const BUNDLED = join(CHART, "ci/bundled-values.yaml");

export function chartJourneys(pawl: () => Pawl): void {
  const template = (...args: string[]) =>
    pawl().kubectl.helm(["template", "pawl", CHART, ...args], { allowFailure: true });

  describe("the chart", () => {
    for (const file of readdirSync(join(CHART, "ci"))) {
      it(`lints strictly with ${file}`, async () => {
        await pawl().kubectl.helm(["lint", "--strict", CHART, "--values", join(CHART, "ci", file)]);
      });
    }

    it("says what must be given", async () => {
      const given: string[] = [];
      for (const [missing, value] of [
        [/set images\.pawl/, "images.pawl=pawl.example/pawl:1"],
        [/no ledger: set database\.existingSecret\.name/, "postgres.enabled=true"],
        [/no namespace to serve: set agentNamespaces/, "agentNamespaces={default}"],
      ] as const) {
        const { code, stderr } = await template(...given);
        assert.notEqual(code, 0);
        assert.match(stderr, missing);
        given.push("--set", value);
      }
      assert.equal((await template(...given)).code, 0);
    });

    it("refuses two ledgers, a key without an endpoint, and values that it does not know", async () => {
      const refused = async (set: string, why: RegExp) => {
        const { code, stderr } = await template("--values", BUNDLED, "--set", set);
        assert.notEqual(code, 0);
        assert.match(stderr, why);
      };
      await refused("database.url=postgres://a/b", /database\.url, postgres\.enabled are all set/);
      await refused("defaults.models=null", /set defaults\.models\.primary too/);
      await refused("limits.maxRuns=-1", /maxRuns/);
      await refused("defaults.models.primary.pricesUSDPerMTok.input=1", /output/);
      await refused("worker.replica=3", /additional properties 'replica' not allowed/);
    });

    it("tells both roles the install's ceiling, and Agents its prices", async () => {
      // Not --set: that makes a text of every number with a point.
      const prices = 'defaults.models.primary.pricesUSDPerMTok={"input":0.15,"output":0.6}';
      const { code, stdout } = await template("--values", BUNDLED, "--set", "limits.maxRuns=7", "--set-json", prices);
      assert.equal(code, 0);
      assert.equal([...stdout.matchAll(/name: PAWL_MAX_RUNS\n\s+value: "7"/g)].length, 2);
      assert.match(stdout, /pricesUSDPerMTok/);
    });

    it("makes up nothing: two renderings are the same", async () => {
      const [first, second] = [await template("--values", BUNDLED), await template("--values", BUNDLED)];
      assert.equal(first.code, 0);
      assert.equal(first.stdout, second.stdout);
    });
  });
}
