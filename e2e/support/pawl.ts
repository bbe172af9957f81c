/** The one install that all journeys share, in namespaces of its own, and short words for what they do with it. */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { type Cluster, ensureCluster } from "../../hack/cluster/cluster.ts";
import { remove } from "../../hack/demo/down.ts";
import { fakesManifests, PORT, urlOf } from "../../hack/demo/fakes.ts";
import { installCrds, installPawl, releases, valuesFor } from "../../hack/demo/install.ts";
import { Kubectl, type KubeObject } from "../../hack/demo/kubectl.ts";
import type { WorldEntry } from "../../hack/demo/killed.ts";
import * as demo from "../../hack/demo/places.ts";
import { statusOf } from "../../hack/demo/run-status.ts";
import { ensureImages, type ImageReferences } from "../../hack/images/images.ts";
import { childEnvironment, repository } from "../../hack/lib/environment.ts";
import { logToStderr as say, UserError } from "../../hack/lib/say.ts";
import { book } from "./book.ts";

export const SYSTEM = "pawl-e2e";
export const AGENTS = "pawl-e2e-agents";
/** One namespace per order in which the samples are applied. */
export const ORDERS = Array.from({ length: 6 }, (_, index) => `pawl-e2e-order-${index + 1}`);
export const MODEL = { baseURL: `${urlOf("model", AGENTS)}/v1`, model: "scripted" };
export const MODEL_HOST = `model.${AGENTS}:${PORT}`;
export const samples = join(repository, "samples");

const SERVICE = { namespace: AGENTS, port: PORT };

/** The cluster that the runner made, or, when mocha is run by hand, the one of this machine. */
async function cluster(): Promise<Cluster> {
  const given = childEnvironment()["PAWL_E2E_CLUSTER"];
  return given === undefined || given === "" ? ensureCluster({ log: say }) : (JSON.parse(given) as Cluster);
}

export class Pawl {
  readonly kubectl: Kubectl;
  readonly cluster: Cluster;
  readonly #images: ImageReferences;

  private constructor(where: Cluster, images: ImageReferences) {
    this.cluster = where;
    this.kubectl = new Kubectl(where);
    this.#images = images;
  }

  static async install(): Promise<Pawl> {
    const where = await cluster();
    const kubectl = new Kubectl(where);
    // What an interrupted run left.
    await remove(kubectl, say, SYSTEM, [AGENTS, ...ORDERS]);
    await makeRoom(kubectl, where);
    const pawl = new Pawl(where, await ensureImages({ cluster: where, log: say }));
    await demo.makeNamespaces(kubectl, [SYSTEM, AGENTS, ...ORDERS]);
    const image = pawl.fakesImage;
    await kubectl.apply(...fakesManifests({ namespace: AGENTS, image, book, use: String(process.pid) }));
    await installCrds(kubectl, SYSTEM);
    await pawl.upgrade();
    for (const name of ["model", "world"])
      await kubectl.run(["rollout", "status", "-n", AGENTS, `deploy/${name}`, "--timeout=120s"]);
    return pawl;
  }

  get fakesImage(): string {
    return this.#images.fakes.ref;
  }

  /** `helm upgrade --install` with these values on top of the usual ones. */
  async upgrade(changes: { worker?: object; logLevel?: string } = {}): Promise<void> {
    const usual = valuesFor(this.#images, AGENTS, [AGENTS, ...ORDERS]);
    const values = { ...usual, defaults: { models: { primary: MODEL } }, ...changes };
    await installPawl(this.kubectl, SYSTEM, { ...values, worker: { ...usual.worker, ...changes.worker } });
  }

  async remove(): Promise<void> {
    await remove(this.kubectl, say, SYSTEM, [AGENTS, ...ORDERS]);
  }

  /** kubectl in the namespace of the agents. */
  run(...args: string[]): Promise<string> {
    return this.kubectl.run(["-n", AGENTS, ...args]);
  }

  /** The Run once a condition is True. Throws with what it shows instead. */
  async until(name: string, condition: string, namespace = AGENTS, seconds = 60): Promise<KubeObject> {
    const wait = ["wait", `--for=condition=${condition}`, `--timeout=${seconds}s`, `runs.pawl.dev/${name}`];
    const { code, stderr } = await this.kubectl.try(["-n", namespace, ...wait]);
    const run = await this.kubectl.get("runs.pawl.dev", name, namespace);
    if (code === 0 && run !== undefined) return run;
    throw new Error(`${stderr.trim()}\n${JSON.stringify(run?.status, null, 2)}`);
  }

  /** The Run once its status is as wanted. Throws with what it shows instead. */
  async when(name: string, wanted: (run: KubeObject) => boolean, seconds = 60): Promise<KubeObject> {
    let last: KubeObject | undefined;
    try {
      for await (const run of this.kubectl.watch("runs.pawl.dev", name, AGENTS, seconds * 1_000)) {
        last = run;
        if (wanted(run)) return run;
      }
    } catch (cause) {
      throw new Error(`${(cause as Error).message}: ${JSON.stringify(last?.status, null, 2)}`, { cause });
    }
    throw new Error("unreachable: the watch ends by throwing");
  }

  /** A worker is asking the model. */
  async whenAtWork(name: string): Promise<void> {
    await this.when(name, (run) => statusOf(run).activity === "asks the model");
  }

  async world(path: string, mode: "hold" | "normal"): Promise<void> {
    await this.kubectl.service("PUT", { ...SERVICE, name: "world" }, "/control", { path, mode, times: 1 });
  }

  /** What the world accepted below a path, once it is at least so many requests. */
  async worldLog(path: string, atLeast = 0): Promise<WorldEntry[]> {
    for (let known = 0; ; ) {
      const url = `/log?atLeast=${known}`;
      const all = (await this.kubectl.service("GET", { ...SERVICE, name: "world" }, url)) as WorldEntry[];
      const found = all.filter((entry) => entry.path.startsWith(path));
      if (found.length >= atLeast) return found;
      known = all.length + 1;
    }
  }

  /** Lets the model give every answer that it holds. */
  async releaseModel(): Promise<void> {
    await this.kubectl.service("POST", { ...SERVICE, name: "model" }, "/release");
  }

  /** Node in a pod; its standard output. */
  async node(namespace: string, target: string, program: string, ...args: string[]): Promise<string> {
    const node = ["node", "--input-type=module", "--eval", program, "--", ...args];
    return (await this.kubectl.run(["exec", "-n", namespace, target, "--", ...node])).trim();
  }

  /** The pods and the ends of their logs. */
  async logs(): Promise<string> {
    const ask = async (...args: string[]) => (await this.kubectl.try(args)).stdout;
    const pods = await ask("get", "pods", "-A", "-l", "app.kubernetes.io/part-of in (pawl, pawl-fakes)");
    const of = (role: string) => ask("logs", "-n", SYSTEM, "-l", `app.kubernetes.io/component=${role}`, "--tail=20");
    return [pods, await of("controller"), await of("worker")].join("\n");
  }

  transcript(name: string, namespace = AGENTS): Promise<string> {
    return this.pawl("transcript", name, namespace);
  }

  /** A command about a Run, in the worker's pod. */
  async pawl(command: string, name: string, namespace = AGENTS): Promise<string> {
    const words = ["pawl", command, name, "-n", namespace];
    return await this.kubectl.run(["exec", "-n", SYSTEM, "deploy/pawl-worker", "--", ...words]);
  }
}

/** A cluster takes one install. What the demo made in a cluster of our own is made again in a minute. */
async function makeRoom(kubectl: Kubectl, where: Cluster): Promise<void> {
  const other = (await releases(kubectl)).find((one) => one.namespace !== SYSTEM);
  if (other === undefined) return;
  if (where.kind !== "named" && other.namespace === demo.SYSTEM) {
    say("a cluster takes one install: the demo goes");
    return await remove(kubectl, say, demo.SYSTEM, [demo.DEMO]);
  }
  throw new UserError(
    `Pawl is installed in namespace ${other.namespace}, and a cluster takes one install: run the tests on another cluster, or helm uninstall ${other.name} -n ${other.namespace} first.`,
  );
}

export const agentNamed = (name: string, spec: object = {}): object => ({
  apiVersion: "pawl.dev/v1alpha1",
  kind: "Agent",
  metadata: { name, namespace: AGENTS },
  spec: { instructions: "You are part of a test.", ...spec },
});

/** A Run of the agent `clerk` of the samples. */
export const runNamed = (name: string, text: string, spec: object = {}): object => ({
  apiVersion: "pawl.dev/v1alpha1",
  kind: "Run",
  metadata: { name, namespace: AGENTS },
  spec: { agentRef: { name: "clerk" }, input: { text }, ...spec },
});

export const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
