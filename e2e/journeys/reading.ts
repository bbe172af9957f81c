/** What a person reads: columns, conditions, descriptions, transcripts. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { statusOf } from "../../hack/demo/run-status.ts";
import { LONG_ANSWER } from "../support/book.ts";
import { AGENTS, type Pawl, runNamed, sha256, SYSTEM } from "../support/pawl.ts";

/** Lines of `kubectl get runs -w` until one says that the Run has succeeded. */
async function watchLines(pawl: Pawl, name: string): Promise<string[]> {
  const { kubectl, kubeconfig, context } = pawl.cluster;
  const where = ["--kubeconfig", kubeconfig, "--context", context, "-n", AGENTS];
  const child = spawn(kubectl, ["get", "runs.pawl.dev", "-w", ...where], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.on("close", resolve));
  try {
    let text = "";
    let applied = false;
    for await (const chunk of child.stdout.setEncoding("utf8") as AsyncIterable<string>) {
      text += chunk;
      // The first lines are what was there: from here on the watch sees every change.
      if (!applied) await pawl.kubectl.apply(runNamed(name, "What is 6 * 7?", { agentRef: { name: "hello" } }));
      applied = true;
      // A chunk may end in the middle of a line.
      const lines = text.split("\n").slice(0, -1);
      if (lines.some((line) => line.startsWith(`${name} `) && line.includes("Succeeded"))) return lines;
    }
    return text.split("\n");
  } finally {
    child.kill("SIGKILL");
    await ended;
  }
}

export function readingJourneys(pawl: () => Pawl): void {
  describe("a person", () => {
    it("sees a Run pass by in `kubectl get runs -w`", async () => {
      const lines = await watchLines(pawl(), "watched");
      const columns = (lines[0] ?? "").split(/\s+/).filter((word) => word !== "");
      const expected = ["NAME", "PHASE", "AGENT", "SHAPE", "RESTARTABLE", "STEPS", "STARTED", "TOOK", "AGE"];
      assert.deepEqual(columns, expected);
      const own = lines.filter((line) => line.startsWith("watched "));
      assert.match(own.at(-1) ?? "", /^watched +Succeeded +hello +Loop +No +2 /);
      assert.ok(own.length > 1, `more than its end was seen: ${own.join("\n")}`);
    });

    it("waits with `kubectl wait` for Finished and for Succeeded", async () => {
      await pawl().run("wait", "--for=condition=Finished", "--timeout=30s", "runs.pawl.dev/watched");
      await pawl().run("wait", "--for=condition=Succeeded", "--timeout=30s", "runs.pawl.dev/watched");
      await pawl().run("wait", "--for=condition=Ready", "--timeout=30s", "agents.pawl.dev/hello");
    });

    it("reads with `kubectl describe` what happened and how to go on", async () => {
      const text = await pawl().run("describe", "runs.pawl.dev/watched");
      for (const type of ["Accepted", "Committed", "Finished", "Succeeded"])
        assert.match(text, new RegExp(`Type: +${type}\\b`));
      assert.match(text, /TurnStarted/);
      assert.match(
        text,
        /read it whole: kubectl exec .*deploy\/pawl-worker -- pawl transcript watched -n pawl-e2e-agents/,
      );
    });

    for (const path of ["run", "run.spec", "run.spec.input", "run.status", "agent.spec", "agent.spec.models.primary"]) {
      it(`finds every field of ${path} explained`, async () => {
        const text = await pawl().kubectl.run(["explain", path, "--api-version=pawl.dev/v1alpha1"]);
        assert.doesNotMatch(text, /<no description>|<empty>/);
        assert.match(text, /DESCRIPTION:/);
      });
    }

    it("reads a long answer whole with the command that the Run names", async () => {
      await pawl().kubectl.apply(runNamed("long", "script:long", { agentRef: { name: "hello" } }));
      const { answer, message } = statusOf(await pawl().until("long", "Succeeded"));
      assert.equal(answer?.bytes, Buffer.byteLength(LONG_ANSWER));
      assert.equal(answer.sha256, sha256(LONG_ANSWER));
      assert.ok(Buffer.byteLength(answer.preview ?? "") <= 1_024);
      const command = /kubectl (exec .*)$/.exec(message ?? "")?.[1]?.split(" ") ?? [];
      assert.ok(command.includes(SYSTEM), "named for the namespace that Pawl runs in: a person adds nothing");
      const whole = await pawl().kubectl.run(command);
      assert.match(whole, /This is the end of it\./);
      assert.equal(whole.split("One of many lines of a long answer.").length - 1, 120);
    });
  });
}
