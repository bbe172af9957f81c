/** Calls that wait for a person: with the commands of the README as they stand, and with a write that must not leave. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { conditionOf, statusOf } from "../../hack/demo/run-status.ts";
import { repository } from "../../hack/lib/environment.ts";
import { run } from "../../hack/lib/run.ts";
import { agentNamed, AGENTS, type Pawl, runNamed } from "../support/pawl.ts";

/** The commands below a heading of the README. */
function commandsOf(heading: string): string {
  const text = readFileSync(join(repository, "README.md"), "utf8").split(`## ${heading}\n`)[1] ?? "";
  const block = /```sh\n(.*?)```/s.exec(text)?.[1];
  assert.ok(block !== undefined, `README.md has no commands under "${heading}"`);
  return block;
}

type Waiting = { request: string; hash: string; tool: string; target: string };
const reasonOf = (decision: { status?: Record<string, unknown> } | undefined) =>
  `${String(decision?.status?.["state"])}/${String(decision?.status?.["reason"])}`;

export function approvalJourneys(pawl: () => Pawl): void {
  describe("a call that needs an approval", () => {
    it("runs after the commands of the README, as they stand", async () => {
      const { kubectl, kubeconfig, context } = pawl().cluster;
      const words = [kubectl, "--kubeconfig", kubeconfig, "--context", context, "-n", AGENTS].map(
        (word) => `'${word}'`,
      );
      const script = `kubectl() { ${words.join(" ")} "$@"; }\n${commandsOf("Approve a call")}`;
      const { stdout } = await run("sh", ["-euc", script], { cwd: repository });
      assert.match(stdout, /decision\.pawl\.dev\/careful-question-\w+ created/);
      const done = await pawl().until("careful-question", "Succeeded");
      assert.match(statusOf(done).answer?.preview ?? "", /408/);
    });

    it("does not leave before somebody else than its requester has approved exactly that call", async () => {
      const tools = { builtin: ["http_request"], requireApproval: ["http_*"] };
      await pawl().kubectl.apply(agentNamed("strict", { tools }));
      await pawl().kubectl.apply(runNamed("gated", "script:order path=gated", { agentRef: { name: "strict" } }));
      const waits = await pawl().when("gated", (found) => conditionOf(found, "WaitingForHuman")?.status === "True");
      const waiting = statusOf(waits)["waiting"] as Waiting;
      assert.deepEqual([statusOf(waits).phase, waiting.tool], ["AwaitingTool", "http_request"]);
      assert.match(waiting.target, /\/keyed\/gated$/);

      const decide = async (name: string, hash: string, ...as: string[]) => {
        const decision = {
          apiVersion: "pawl.dev/v1alpha1",
          kind: "Decision",
          metadata: { name, namespace: AGENTS },
          spec: { subject: { kind: "Run", name: "gated" }, request: waiting.request, verdict: "Approve", hash },
        };
        return pawl().kubectl.try(["create", ...as, "-f", "-"], { input: JSON.stringify(decision) });
      };
      const outcome = async (name: string) => {
        for await (const found of pawl().kubectl.watch("decisions.pawl.dev", name, AGENTS, 30_000)) {
          if (found.status?.["state"] !== undefined) return reasonOf(found);
        }
        return "none";
      };
      const stranger = await decide("stranger", waiting.hash, "--as=stranger");
      assert.match(stranger.stderr, /cannot create resource "decisions"/);
      await decide("own", waiting.hash);
      assert.equal(await outcome("own"), "Refused/RequesterMayNotApprove");
      await decide("guessed", "0".repeat(64), "--as=reviewer");
      assert.equal(await outcome("guessed"), "Refused/HashDiffers");
      assert.equal((await pawl().worldLog("/keyed/gated")).length, 0, "nothing has left");
      await decide("yes", waiting.hash, "--as=reviewer");
      assert.equal(await outcome("yes"), "Applied/Approved");

      await pawl().until("gated", "Succeeded");
      assert.equal((await pawl().worldLog("/keyed/gated", 1)).length, 1);
      const list = await pawl().run("get", "decisions.pawl.dev");
      assert.match(list, /yes +gated +Approve +Applied +reviewer/);
      const why = await pawl().pawl("why", "gated");
      assert.match(why, /said approve: refused, RequesterMayNotApprove/);
      assert.match(why, /reviewer approved it/);
      const { stdout: events } = await pawl().kubectl.try(["describe", "-n", AGENTS, "runs.pawl.dev/gated"]);
      assert.match(events, /ApprovalRequested/);
      assert.match(events, /Approved/);
    });

    it("takes its Decisions with it when its Run is deleted", async () => {
      await pawl().run("delete", "runs.pawl.dev/gated", "--wait", "--timeout=30s");
      await pawl().run("wait", "--for=delete", "--timeout=60s", "decisions.pawl.dev/yes");
    });
  });
}
