/** The samples, applied in any order. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { statusOf } from "../../hack/demo/run-status.ts";
import { ORDERS, type Pawl, samples } from "../support/pawl.ts";

const FILES = ["agent.yaml", "run.yaml", "conversation.yaml"] as const;
const RUNS = ["first-question", "tea-1", "tea-2"] as const;

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length < 2) return [[...items]];
  return items.flatMap((item) => permutations(items.filter((other) => other !== item)).map((rest) => [item, ...rest]));
}

export function applyJourneys(pawl: () => Pawl): void {
  describe("the samples", () => {
    permutations(FILES).forEach((order, index) => {
      it(`are answered when applied as ${order.join(", ")}`, async () => {
        const namespace = ORDERS[index] ?? "";
        for (const file of order) await pawl().kubectl.run(["apply", "-n", namespace, "-f", join(samples, file)]);
        for (const name of RUNS) {
          const run = await pawl().until(name, "Succeeded", namespace);
          assert.equal(statusOf(run).phase, "Succeeded");
        }
      });
    });

    it("are answered when a whole folder is applied, and nothing runs again when it is applied again", async () => {
      const first = await pawl().run("apply", "-f", samples);
      assert.match(first, /run\.pawl\.dev\/first-question created/);
      const before = await pawl().until("first-question", "Succeeded");
      assert.match(statusOf(before).answer?.preview ?? "", /7006652/);
      const again = await pawl().run("apply", "-f", samples);
      assert.match(again, /run\.pawl\.dev\/first-question unchanged/);
      const after = await pawl().until("first-question", "Finished");
      assert.equal(statusOf(after).runID, statusOf(before).runID);
    });

    it("answer a conversation in its order, the second with the first in mind", async () => {
      const [first, second] = [await pawl().until("tea-1", "Succeeded"), await pawl().until("tea-2", "Succeeded")];
      assert.ok((statusOf(first).finishedAt ?? "") <= (statusOf(second).startedAt ?? ""));
      assert.match(statusOf(first).answer?.preview ?? "", /42/);
      assert.match(statusOf(second).answer?.preview ?? "", /36/);
    });
  });
}
