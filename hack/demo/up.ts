// The demo from the first line to the last.
import { delimiter, dirname } from "node:path";
import { type Cluster, ensureCluster } from "../cluster/cluster.ts";
import { ensureImages } from "../images/images.ts";
import { realModel } from "../lib/environment.ts";
import { UserError } from "../lib/say.ts";
import { fakesManifests } from "./fakes.ts";
import { awaitAgent, firstRun } from "./first.ts";
import { installCrds, installPawl, releases, valuesFor } from "./install.ts";
import { killedRun } from "./killed.ts";
import { Kubectl } from "./kubectl.ts";
import { book, modelValues } from "./model.ts";
import { DEMO, makeNamespaces, SYSTEM } from "./places.ts";
import type { Screen } from "./screen.ts";

/** The cluster takes one install: two would both write the status of every Agent. */
async function requireRoom(kubectl: Kubectl): Promise<void> {
  const other = (await releases(kubectl)).find((one) => one.namespace !== SYSTEM);
  if (other === undefined) return;
  throw new UserError(
    `Pawl is installed in this cluster already, in namespace ${other.namespace}, and a cluster takes one install: helm uninstall ${other.name} -n ${other.namespace}, or name another cluster with --context.`,
  );
}

async function install(cluster: Cluster, kubectl: Kubectl, screen: Screen, use: string): Promise<void> {
  const images = await ensureImages({ cluster, log: screen.say });
  await requireRoom(kubectl);
  await makeNamespaces(kubectl, [SYSTEM, DEMO]);
  screen.say(`namespaces ${SYSTEM} and ${DEMO}, with Pod Security restricted enforced`);
  const { values, secrets } = modelValues(realModel());
  if (secrets.length > 0) await kubectl.apply(...secrets);
  await kubectl.apply(...fakesManifests({ namespace: DEMO, image: images.fakes.ref, book, use }));
  screen.say("a scripted model and a world that takes orders, as pods");
  screen.say("helm upgrade --install pawl-crds");
  await installCrds(kubectl, SYSTEM);
  screen.say("helm upgrade --install pawl, with a bundled PostgreSQL");
  await installPawl(kubectl, SYSTEM, { ...valuesFor(images, DEMO, [DEMO]), ...values });
  for (const name of ["model", "world"])
    await kubectl.run(["rollout", "status", "-n", DEMO, `deploy/${name}`, "--timeout=120s"]);
  screen.show(await kubectl.run(["get", "pods", "-n", SYSTEM]), "           ");
}

function next(cluster: Cluster, screen: Screen, name: string): void {
  const folder = dirname(cluster.kubectl);
  screen.title("Next, you could try");
  screen.show(
    [
      `export KUBECONFIG=${cluster.kubeconfig} PATH=${folder}${delimiter}$PATH`,
      `kubectl exec -n ${SYSTEM} deploy/pawl-worker -- pawl transcript ${name} -n ${DEMO}`,
      `kubectl describe runs.pawl.dev/${name} -n ${DEMO}`,
      `kubectl apply -n ${DEMO} -f samples/conversation.yaml && kubectl get runs.pawl.dev -n ${DEMO} -w`,
    ].join("\n"),
    "  ",
  );
  const named = cluster.kind === "named" ? ` --context ${cluster.context}` : "";
  screen.show(`\nnpm run demo -- down${named}   removes everything`, "  ");
}

export async function up(context: string | undefined, screen: Screen): Promise<void> {
  const use = Date.now().toString(36).slice(-5);
  screen.title("A cluster");
  const cluster = await ensureCluster({ context, log: screen.say });
  screen.say(`${cluster.kind} cluster, context ${cluster.context}`);
  const kubectl = new Kubectl(cluster);
  screen.title("Pawl");
  await install(cluster, kubectl, screen, use);
  const model = realModel();
  screen.title("A Run is answered");
  screen.say(
    model === undefined
      ? "The model is a script: it shows the way of a Run, and never thinks. PAWL_MODEL names a real one."
      : `The model is ${model.model} at ${model.baseURL}.`,
  );
  await firstRun(kubectl, screen, use);
  await awaitAgent(kubectl, "hello");
  screen.title("A worker is killed in the middle of a write");
  const name = await killedRun(kubectl, screen, use);
  next(cluster, screen, name);
}
