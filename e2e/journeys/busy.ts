/** Runs that are applied while their conversation is at work: what becomes of each, and where a person reads it. */
import assert from "node:assert/strict";
import { conditionOf, statusOf } from "../../hack/demo/run-status.ts";
import { agentNamed, AGENTS, MODEL, type Pawl } from "../support/pawl.ts";

const COLLEAGUE = "colleague";
/** Each is a kubectl of its own, so that this is some seconds. */
const EVENT_LOOKS = 50;

export function busyJourneys(pawl: () => Pawl): void {
  describe("a Run that is applied while its conversation is at work", () => {
    const interrupt = { whoInterrupts: "SameActorOnly", coalesceWindow: "1s", maxWait: "5s" };
    const models = { primary: MODEL, fast: MODEL };

    before(async () => {
      await pawl().kubectl.apply(
        agentNamed("restarting", { models, interrupt: { ...interrupt, midTurn: "Preempt" } }),
        agentNamed("steered", { models, interrupt: { ...interrupt, midTurn: "Amend" } }),
      );
      const user = ["create", "rolebinding", COLLEAGUE, "--clusterrole=pawl-user", `--user=${COLLEAGUE}`];
      await pawl().run(...user);
    });

    const apply = async (name: string, agent: string, text: string, ...as: string[]) => {
      const run = {
        apiVersion: "pawl.dev/v1alpha1",
        kind: "Run",
        metadata: { name, namespace: AGENTS },
        spec: { agentRef: { name: agent }, conversation: `busy-${agent}`, input: { text } },
      };
      const { code, stderr } = await pawl().kubectl.try(["create", ...as, "-f", "-"], { input: JSON.stringify(run) });
      assert.equal(code, 0, stderr);
    };
    /** Events come beside the status, in no promised order. */
    const told = async (name: string, words: RegExp) => {
      let last = "";
      for (let look = 0; look < EVENT_LOOKS; look += 1) {
        last = (await pawl().run("describe", `runs.pawl.dev/${name}`)).split("Events:")[1] ?? "";
        if (words.test(last)) return;
      }
      assert.match(last, words);
    };

    it("restarts a turn that has changed nothing; both Runs show the one answer, and say who restarted whom", async () => {
      await apply("busy-tea", "restarting", "Tea for the busy desk, please.");
      await pawl().whenAtWork("busy-tea");
      await apply("busy-coffee", "restarting", "Coffee for the busy desk instead.");
      const coffee = await pawl().until("busy-coffee", "Succeeded");
      const tea = await pawl().until("busy-tea", "Succeeded");
      assert.equal(statusOf(coffee).answeredBy?.name, "busy-tea");
      assert.equal(statusOf(tea).supersededBy, "busy-coffee");
      assert.equal(statusOf(tea).answer?.preview, "Coffee it is.");
      assert.equal(statusOf(tea).runID, statusOf(coffee).runID);
      assert.equal(statusOf(coffee).interrupts?.last?.done, "preempted");
      await told("busy-tea", /TurnStarted/);
      await told("busy-tea", /Superseded.*restarted for busy-coffee/);
      await told("busy-coffee", /Finished/);
      const why = await pawl().pawl("why", "busy-tea");
      assert.match(
        why,
        /→ the turn is restarted for this message: nothing had been changed \(about this work, says a model/,
      );
    });

    it("joins a turn where the Agent amends, is Folded meanwhile, and takes its verdict", async () => {
      await apply("busy-list", "steered", "Make a list for the busy desk.");
      await pawl().whenAtWork("busy-list");
      await apply("busy-short", "steered", "Keep the busy list short.");
      const folded = await pawl().when("busy-short", (run) => statusOf(run).phase === "Folded");
      assert.deepEqual(
        [statusOf(folded).reason, statusOf(folded).answeredBy?.name, conditionOf(folded, "Finished")?.status],
        ["Amended", "busy-list", "False"],
      );
      await pawl().releaseModel();
      const short = await pawl().until("busy-short", "Finished");
      assert.equal(conditionOf(short, "Succeeded")?.status, "True");
      assert.equal(statusOf(short).answer?.preview, "A short list.");
      await told("busy-short", /MessageAmended.*joined the turn of busy-list/);
    });

    it("waits where its author may not interrupt, says so, and is answered in the next turn", async () => {
      await apply("busy-own", "restarting", "Water for the busy desk, please.");
      await pawl().whenAtWork("busy-own");
      await apply("busy-other", "restarting", "Juice for the busy desk.", `--as=${COLLEAGUE}`);
      const waits = await pawl().when("busy-other", (run) => statusOf(run).reason === "NotEntitled");
      assert.equal(statusOf(waits).phase, "Queued");
      assert.match(await pawl().run("get", "runs.pawl.dev", "busy-other", "-o", "wide"), /Queued.*NotEntitled/);
      await pawl().releaseModel();
      await pawl().until("busy-own", "Succeeded");
      const other = await pawl().until("busy-other", "Succeeded");
      assert.equal(statusOf(other).answeredBy, undefined, "in a turn of its own");
      await told("busy-other", /InterruptDowngraded/);
    });

    it("stops the turn when it says nothing but stop", async () => {
      await apply("busy-long", "restarting", "Soup for the busy desk, please.");
      await pawl().whenAtWork("busy-long");
      await apply("busy-stop", "restarting", "Stop!");
      const stop = await pawl().until("busy-stop", "Succeeded");
      assert.equal(statusOf(stop).reason, "Stopped");
      assert.equal(statusOf(await pawl().until("busy-long", "Finished")).phase, "Cancelled");
    });
  });
}
