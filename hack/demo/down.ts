// Removes what the demo made: a cluster of ours as a whole, in a named one only our releases, namespaces and kinds.
import { chooseCluster, ensureCluster, removeCluster } from "../cluster/cluster.ts";
import { CRDS, RELEASE, releases } from "./install.ts";
import type { Log } from "../lib/say.ts";
import { Kubectl } from "./kubectl.ts";
import { DEMO, isOurs, SYSTEM } from "./places.ts";
import type { Screen } from "./screen.ts";

const POLICIES = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
const MUTATING = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];

export async function down(context: string | undefined, screen: Screen): Promise<void> {
  const choice = await chooseCluster(context);
  if (choice.kind !== "named") {
    screen.say("removing the cluster and everything in it");
    await removeCluster({ context, log: screen.say });
    return;
  }
  const kubectl = new Kubectl(await ensureCluster({ context, log: screen.say }));
  await remove(kubectl, screen.say, SYSTEM, [DEMO]);
  screen.say(`The cluster of context "${choice.context}" stays.`);
}

/** Takes an install out of a cluster: releases, namespaces that were made for it, and the kinds if nobody uses them. */
export async function remove(kubectl: Kubectl, say: Log, system: string, others: readonly string[]): Promise<void> {
  const names = [system, ...others];
  const made = (await kubectl.list("namespaces"))
    .filter(({ metadata }) => names.includes(metadata.name) && isOurs(metadata["labels"]))
    .map(({ metadata }) => metadata.name);
  const ours = (await releases(kubectl)).filter((one) => one.namespace === system);
  const kinds = await kindsOf(kubectl, system);
  const all = [...ours.map(({ name }) => `release ${name}`), ...made.map((name) => `namespace ${name}`)];
  if (all.length > 0) say(`removing ${all.join(", ")}`);
  else if (!kinds) say(`nothing to remove: Pawl is not in ${system}`);
  for (const name of [RELEASE, CRDS]) {
    if (ours.some((one) => one.name === name))
      await kubectl.helm(["uninstall", name, "--namespace", system, "--wait", "--timeout", "2m"]);
  }
  if (made.length > 0) await kubectl.run(["delete", "namespace", ...made, "--wait", "--timeout=120s"]);
  if (kinds) await removeKinds(kubectl, say);
}

/** Were the kinds installed from this namespace? They stay when their release goes, and say where it was. */
async function kindsOf(kubectl: Kubectl, system: string): Promise<boolean> {
  const kind = await kubectl.get("crd", "runs.pawl.dev");
  const annotations = kind?.metadata["annotations"] as Record<string, string> | undefined;
  return annotations?.["meta.helm.sh/release-namespace"] === system;
}

/** The chart keeps the kinds, because with them go all Agents and Runs of the cluster. */
async function removeKinds(kubectl: Kubectl, say: Log): Promise<void> {
  const asked = await kubectl.try(["get", "agents.pawl.dev,runs.pawl.dev", "-A", "-o", "name"]);
  if (asked.code === 0 && asked.stdout.trim() !== "") {
    say("The kinds Agent and Run stay: there are objects of theirs in other namespaces.");
    return;
  }
  say("removing the kinds Agent, Run and Decision, and their admission policies");
  const kinds = ["agents.pawl.dev", "runs.pawl.dev", "decisions.pawl.dev"];
  await kubectl.run(["delete", "crd", ...kinds, "--ignore-not-found"]);
  const label = ["-l", "app.kubernetes.io/part-of=pawl", "--ignore-not-found"];
  await kubectl.run(["delete", POLICIES.join(","), ...label]);
  // Not served by every version.
  await kubectl.try(["delete", MUTATING.join(","), ...label]);
}
