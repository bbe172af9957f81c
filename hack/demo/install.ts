// Both charts, installed or upgraded with helm. Shared by the demo and the end-to-end tests.
import { join } from "node:path";
import type { ImageReferences } from "../images/images.ts";
import { repository } from "../lib/environment.ts";
import { CommandError } from "../lib/run.ts";
import { UserError } from "../lib/say.ts";
import type { Kubectl } from "./kubectl.ts";

export const CRDS = "pawl-crds";
export const RELEASE = "pawl";
const chart = (name: string) => join(repository, "charts", name);

/** Images, image pulls and pods on a small machine. */
const WAIT = "5m";

export type Release = { name: string; namespace: string; chart: string };

/** Pawl's releases in the whole cluster, finished or not. */
export async function releases(kubectl: Kubectl): Promise<Release[]> {
  const { stdout } = await kubectl.helm(["list", "--all-namespaces", "--output", "json"]);
  const all = JSON.parse(stdout) as Release[];
  return all.filter((one) => /^pawl(-crds)?-\d/.test(one.chart));
}

export async function installCrds(kubectl: Kubectl, namespace: string): Promise<void> {
  await kubectl.helm([
    "upgrade",
    "--install",
    CRDS,
    chart(CRDS),
    "--namespace",
    namespace,
    "--wait",
    "--timeout",
    WAIT,
  ]);
  const kinds = ["crd/agents.pawl.dev", "crd/runs.pawl.dev", "crd/decisions.pawl.dev"];
  await kubectl.run(["wait", "--for=condition=Established", "--timeout=60s", ...kinds]);
}

/** `values` as for `helm -f`. Waits until every pod is ready. */
export async function installPawl(kubectl: Kubectl, namespace: string, values: object): Promise<void> {
  const args = ["upgrade", "--install", RELEASE, chart(RELEASE), "--namespace", namespace, "--values", "-"];
  try {
    await kubectl.helm([...args, "--wait", "--timeout", WAIT], { input: JSON.stringify(values) });
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    const pods = await kubectl.try(["get", "pods", "-n", namespace, "-o", "wide"]);
    const logs = await kubectl.try(["logs", "-n", namespace, "-l", "app.kubernetes.io/part-of=pawl", "--tail=5"]);
    throw new UserError(`Pawl did not come up. ${error.message}\n\n${pods.stdout}\n${logs.stdout}${logs.stderr}`);
  }
}

/** What the demo and the tests share: images of this clone, the bundled database, a scripted model, short limits. */
export function valuesFor(images: ImageReferences, fakes: string, agentNamespaces: readonly string[]) {
  const reach = { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": fakes } } };
  return {
    images: { pawl: images.pawl.ref, postgres: images.postgres.ref },
    agentNamespaces,
    // Thrown away with the namespace.
    postgres: { enabled: true, storage: "" },
    outbound: { allow: [`world.${fakes}`, `mcp.${fakes}`], egress: [{ to: [reach] }] },
    // A write that was under way when its worker died is settled this long, and eleven seconds, after it was recorded.
    worker: { httpTimeoutMs: 5_000, mcpTimeoutMs: 5_000 },
    // A process inside a container cannot kill the container's first one; this way it is not the first.
    shareProcessNamespace: true,
  };
}
