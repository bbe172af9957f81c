/** A Run's ways to end, and that none of them makes a message run twice. */
import assert from "node:assert/strict";
import { conditionOf, statusOf } from "../../hack/demo/run-status.ts";
import { agentNamed, AGENTS, type Pawl, runNamed } from "../support/pawl.ts";

export function runJourneys(pawl: () => Pawl): void {
  describe("a Run", () => {
    it("cannot speak for another user", async () => {
      const me = await pawl().kubectl.run(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
      const forged = {
        ...runNamed("forged", ""),
        spec: { agentRef: { name: "hello" }, input: { text: "Hi", actor: "boss" } },
      };
      const { code, stderr } = await pawl().kubectl.try(["apply", "-f", "-"], { input: JSON.stringify(forged) });
      assert.notEqual(code, 0);
      assert.ok(stderr.includes(`spec.input.actor must be ${me}, the user who creates the Run, not boss`), stderr);
    });

    it("does not change, and says how to ask something else", async () => {
      const patch = JSON.stringify({ spec: { input: { text: "Something else" } } });
      const args = ["-n", AGENTS, "patch", "runs.pawl.dev/first-question", "--type=merge", "-p", patch];
      const { stderr } = await pawl().kubectl.try(args);
      assert.match(stderr, /apply a new Run under another name/);
    });

    it("waits for an Agent that is not there, and says so", async () => {
      await pawl().kubectl.apply(runNamed("early", "Hello?", { agentRef: { name: "late" } }));
      const waiting = await pawl().when("early", (run) => statusOf(run).reason === "AgentNotFound");
      assert.match(statusOf(waiting).message ?? "", /there is no Agent late in this namespace/);
      await pawl().kubectl.apply(agentNamed("late"));
      await pawl().until("early", "Succeeded");
    });

    it("is cancelled by a patch while the model is being asked", async () => {
      await pawl().kubectl.apply(runNamed("cancelled", "script:held"));
      await pawl().whenAtWork("cancelled");
      const patch = JSON.stringify({ spec: { cancel: { reason: "not needed any more" } } });
      await pawl().run("patch", "runs.pawl.dev/cancelled", "--type=merge", "-p", patch);
      const run = await pawl().until("cancelled", "Finished");
      assert.equal(statusOf(run).phase, "Cancelled");
      assert.equal(conditionOf(run, "Succeeded")?.status, "False");
      assert.equal(conditionOf(run, "Succeeded")?.reason, "Withdrawn");
      // Nothing had been changed outside: the message is taken back as if it had not been sent.
      assert.equal(statusOf(run).boundary?.state, "Buffering");
    });

    it("that is deleted makes way for the next of its conversation", async () => {
      const spec = { conversation: "deleted" };
      await pawl().kubectl.apply(runNamed("deleted-1", "script:held", spec));
      await pawl().whenAtWork("deleted-1");
      await pawl().kubectl.apply(runNamed("deleted-2", "Are you there?", spec));
      await pawl().when("deleted-2", (run) => conditionOf(run, "Accepted")?.status === "True");
      await pawl().run("delete", "runs.pawl.dev/deleted-1", "--wait", "--timeout=30s");
      await pawl().until("deleted-2", "Succeeded");
    });

    it("that is deleted and applied again is not run again, but shown again", async () => {
      const manifest = runNamed("again", "script:order path=again");
      await pawl().kubectl.apply(manifest);
      const before = await pawl().until("again", "Succeeded");
      await pawl().run("delete", "runs.pawl.dev/again", "--wait", "--timeout=30s");
      await pawl().kubectl.apply(manifest);
      const after = await pawl().until("again", "Succeeded");
      assert.notEqual(after.metadata.uid, before.metadata.uid);
      assert.equal(conditionOf(after, "Accepted")?.reason, "Replayed");
      assert.equal(statusOf(after).runID, statusOf(before).runID);
      assert.equal((await pawl().worldLog("/keyed/again")).length, 1);
    });

    it("that asks something else under a used key is refused with the way out", async () => {
      await pawl().run("delete", "runs.pawl.dev/again", "--wait", "--timeout=30s");
      await pawl().kubectl.apply(runNamed("again", "script:order path=other"));
      const run = await pawl().until("again", "Finished");
      assert.equal(conditionOf(run, "Accepted")?.reason, "KeyReused");
      assert.match(statusOf(run).message ?? "", /generateName/);
      assert.equal((await pawl().worldLog("/keyed/other")).length, 0);
    });

    it("goes when its time to live is over", async () => {
      await pawl().kubectl.apply(runNamed("short", "Hello", { ttlSecondsAfterFinished: 1 }));
      await pawl().run("wait", "--for=delete", "--timeout=60s", "runs.pawl.dev/short");
      assert.match(await pawl().transcript("short"), /succeeded/);
    });
  });
}
