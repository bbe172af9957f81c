// Kills the worker as a crash would: SIGKILL to its process, no warning, no last words.
import { UserError } from "../lib/say.ts";
import type { Kubectl, KubeObject } from "./kubectl.ts";

/** Runs in the pod, where the chart's shareProcessNamespace makes the process one that may be killed. */
const PROGRAM = `
  const { readdirSync, readFileSync } = require("node:fs");
  const words = (pid) => { try { return readFileSync("/proc/" + pid + "/cmdline", "utf8").split("\\0"); } catch { return []; } };
  const found = readdirSync("/proc").filter((pid) => /^\\d+$/.test(pid) && words(pid).includes("--roles=" + process.argv[1]));
  for (const pid of found) process.kill(Number(pid), "SIGKILL");
  console.log(found.join(" "));`;

/** The pod, and the process id in it. */
export async function killRole(
  kubectl: Kubectl,
  namespace: string,
  role: "worker" | "controller",
): Promise<{ pod: string; pid: string }> {
  const selector = ["-l", `app.kubernetes.io/component=${role}`, "--field-selector=status.phase=Running"];
  const { items } = JSON.parse(await kubectl.run(["get", "pods", "-n", namespace, ...selector, "-o", "json"])) as {
    items: KubeObject[];
  };
  // One that is on its way out would die unnoticed.
  const pod = items.find(({ metadata }) => metadata["deletionTimestamp"] === undefined)?.metadata.name ?? "";
  if (pod === "") throw new UserError(`No ${role} runs in ${namespace}: kubectl get pods -n ${namespace}`);
  const node = ["node", "--eval", PROGRAM, "--", role];
  const pid = (await kubectl.run(["exec", "-n", namespace, pod, "-c", "pawl", "--", ...node])).trim();
  if (pid === "") throw new UserError(`The process of ${pod} was not found in it.`);
  return { pod, pid };
}
