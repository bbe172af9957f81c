// A cluster that the user has named: we look at it, and change nothing but what the charts install.
import { userKubeconfig } from "../lib/environment.ts";
import { run } from "../lib/run.ts";
import { type Log, UserError } from "../lib/say.ts";
import { ensureBinaries } from "./binaries.ts";

/** A kubeconfig of its own, cut down to the context, so that no later command can reach another cluster by mistake. */
export async function namedKubeconfig(context: string, log: Log): Promise<string> {
  const { kubectl } = await ensureBinaries(["kubectl"], log);
  const view = ["config", "view", "--raw", "--minify", "--flatten", "--context", context];
  const asked = await run(kubectl, view, { env: { KUBECONFIG: userKubeconfig() }, allowFailure: true });
  if (asked.code !== 0) {
    throw new UserError(
      `There is no context "${context}" in ${userKubeconfig()}: see \`kubectl config get-contexts\`, or set KUBECONFIG.`,
    );
  }
  return asked.stdout;
}

export async function requireAnswer(kubectl: string, kubeconfig: string, context: string): Promise<void> {
  const asked = await run(kubectl, ["--kubeconfig", kubeconfig, "--request-timeout=10s", "get", "--raw", "/readyz"], {
    allowFailure: true,
  });
  if (asked.code === 0) return;
  throw new UserError(`The cluster of context "${context}" does not answer: ${asked.stderr.trim().split("\n").at(-1)}`);
}
