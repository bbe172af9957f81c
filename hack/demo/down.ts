// Removes what the demo made: a cluster of ours as a whole, in a named one only our releases, namespaces and kinds.
import { chooseCluster, ensureCluster, removeCluster } from "../cluster/cluster.ts";
import { CRDS, RELEASE, releases } from "./install.ts";
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
  await leave(kubectl, screen);
  screen.say(`The cluster of context "${choice.context}" stays.`);
}

/** Takes the demo out of a cluster. */
export async function leave(kubectl: Kubectl, screen: Screen): Promise<void> {
  const made = [];
  for (const name of [SYSTEM, DEMO]) {
    const namespace = await kubectl.get("namespace", name);
    if (namespace && isOurs(namespace.metadata["labels"])) made.push(name);
  }
  const ours = (await releases(kubectl)).filter((one) => one.namespace === SYSTEM);
  screen.say(
    `removing ${[...ours.map(({ name }) => `release ${name}`), ...made.map((name) => `namespace ${name}`)].join(", ") || "nothing: the demo is not here"}`,
  );
  for (const name of [RELEASE, CRDS]) {
    if (ours.some((one) => one.name === name))
      await kubectl.helm(["uninstall", name, "--namespace", SYSTEM, "--wait", "--timeout", "2m"]);
  }
  if (made.length > 0) await kubectl.run(["delete", "namespace", ...made, "--wait", "--timeout=120s"]);
  if (ours.some((one) => one.name === CRDS)) await removeKinds(kubectl, screen);
}

/** The chart keeps the kinds, because with them go all Agents and Runs of the cluster. */
async function removeKinds(kubectl: Kubectl, screen: Screen): Promise<void> {
  const asked = await kubectl.try(["get", "agents.pawl.dev,runs.pawl.dev", "-A", "-o", "name"]);
  if (asked.code === 0 && asked.stdout.trim() !== "") {
    screen.say("The kinds Agent and Run stay: there are objects of theirs in other namespaces.");
    return;
  }
  screen.say("removing the kinds Agent and Run, and their admission policies");
  await kubectl.run(["delete", "crd", "agents.pawl.dev", "runs.pawl.dev", "--ignore-not-found"]);
  const label = ["-l", "app.kubernetes.io/part-of=pawl", "--ignore-not-found"];
  await kubectl.run(["delete", POLICIES.join(","), ...label]);
  // Not served by every version.
  await kubectl.try(["delete", MUTATING.join(","), ...label]);
}
