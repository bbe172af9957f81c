// Kills the worker as a crash would: SIGKILL to its process, no warning, no last words.
import { UserError } from "../lib/say.ts";
import type { Kubectl } from "./kubectl.ts";

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
  const selector = `app.kubernetes.io/component=${role}`;
  const pods = ["get", "pods", "-n", namespace, "-l", selector, "--field-selector=status.phase=Running", "-o", "name"];
  const pod = (await kubectl.run(pods)).trim().split("\n")[0] ?? "";
  if (pod === "") throw new UserError(`No ${role} runs in ${namespace}: kubectl get pods -n ${namespace}`);
  const node = ["node", "--eval", PROGRAM, "--", role];
  const pid = (await kubectl.run(["exec", "-n", namespace, pod, "-c", "pawl", "--", ...node])).trim();
  if (pid === "") throw new UserError(`The process of ${pod} was not found in it.`);
  return { pod: pod.replace(/^pod\//, ""), pid };
}
