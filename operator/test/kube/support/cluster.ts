/**
 * One API server for all kube tests of a mocha run, started when the first of them asks, with our CRDs and policies in
 * place. Importing this file registers the root hook that ends it.
 */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { admissionPolicies, customResourceDefinition, KINDS } from "@pawl/crds";
import { FaultProxy } from "@pawl/fakes";
import { Agent } from "undici";
import { KubeClient } from "#kube/client.ts";
import { CRDS, type KubeObject, NAMESPACES, type Resource, RUNS } from "#kube/resources.ts";
import { systemClock } from "#src/clock.ts";
import { type ControlPlane, startControlPlane } from "../../../../hack/cluster/control-plane.ts";

/** The account that the policies take for Pawl's controller. */
export const CONTROLLER = "system:serviceaccount:pawl-system:pawl-controller";

export type Said = { readonly code: number; readonly text: string };

export type Cluster = {
  readonly plane: ControlPlane;
  /** As an administrator (user `admin`, group system:masters). */
  readonly admin: KubeClient;
  /** As somebody else, by impersonation. Closed with the cluster. */
  as(user: string): KubeClient;
  /** kubectl with these arguments; `input` goes to its standard input. `text` is what it said on both outputs. */
  kubectl(args: readonly string[], input?: unknown): Promise<Said>;
  /** Starts the API server again, and returns when it serves our kinds as before. */
  restart(): Promise<void>;
  /** A client that speaks through a proxy that misbehaves; both are the caller's to close. */
  throughProxy(options?: { timeoutMs?: number }): Promise<{ proxy: FaultProxy; client: KubeClient }>;
};

let started: Promise<Cluster> | undefined;
const clients: KubeClient[] = [];

/** The first call may take half a minute; give its hook time. */
export function cluster(): Promise<Cluster> {
  started ??= start();
  return started;
}

after("stop the API server of the kube tests", async function () {
  this.timeout(30_000);
  if (started === undefined) return;
  const { plane } = await started;
  await Promise.all(clients.map((client) => client.close()));
  await plane.stop();
});

const policy = (kind: string, plural: string): Resource => ({
  group: "admissionregistration.k8s.io",
  version: "v1",
  plural,
  kind,
  namespaced: false,
});
const POLICIES = [
  policy("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
  policy("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
  policy("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
  policy("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
];

function keep(client: KubeClient): KubeClient {
  clients.push(client);
  return client;
}

async function start(): Promise<Cluster> {
  const plane = await startControlPlane();
  const from = { kubeconfig: plane.kubeconfig };
  const admin = keep(KubeClient.connect({ from }));
  for (const kind of KINDS) await admin.apply(CRDS, customResourceDefinition(kind) as unknown as KubeObject);
  for (const object of admissionPolicies({ controllerUsername: CONTROLLER })) {
    const of = POLICIES.find(({ kind }) => kind === object["kind"]);
    if (of === undefined) throw new Error(`no resource for kind ${JSON.stringify(object["kind"])}`);
    await admin.apply(of, object as unknown as KubeObject);
  }
  await ready(admin);
  return {
    plane,
    admin,
    as: (user) => keep(KubeClient.connect({ from, as: user })),
    kubectl: (args, input) => kubectl(plane, args, input),
    throughProxy: (options) => throughProxy(plane, options),
    restart: async () => {
      await plane.restart();
      await ready(admin);
    },
  };
}

/**
 * For up to 5 s after a start of the API server, and after a change of a CRD, a mutating policy answers 503: it reads the
 * kinds only that often.
 */
async function ready(admin: KubeClient): Promise<void> {
  const probe = {
    metadata: { name: "probe", namespace: "default" },
    spec: { agentRef: { name: "a" }, input: { text: "x" } },
  };
  await eventually("the actor of a Run to be filled in", async () => {
    const made = await admin.create(RUNS, probe, { dryRun: true }).catch(() => undefined);
    return (made?.["spec"] as { input: { actor?: string } } | undefined)?.input.actor;
  });
}

async function throughProxy(plane: ControlPlane, options: { timeoutMs?: number } = {}) {
  const [ca, cert, key] = [plane.authority, plane.admin.cert, plane.admin.key].map((path) => readFileSync(path));
  if (ca === undefined || cert === undefined || key === undefined)
    throw new Error("the control plane has no certificates");
  const proxy = await new FaultProxy({ target: plane.url, tls: { ca, cert, key } }).listen();
  const client = new KubeClient(
    {
      origin: proxy.url,
      namespace: undefined,
      ...plainPools(),
    },
    options,
  );
  return { proxy, client };
}

/** A connection without credentials: the proxy has its own. */
function plainPools() {
  const pools = { requests: new Agent(), watches: new Agent() };
  return {
    access: async () => ({ headers: {}, ...pools }),
    forget: () => {},
    close: async () => {
      await Promise.all([pools.requests.destroy(), pools.watches.destroy()]);
    },
  };
}

/** A new namespace, one per test file. */
export async function makeNamespace(name: string): Promise<string> {
  const { admin } = await cluster();
  await admin.create(NAMESPACES, { metadata: { name } });
  return name;
}

/** Waits for something that has no signal of its own (a server's caches, a policy's coming into force). */
export async function eventually<T>(what: string, look: () => Promise<T | undefined>, timeoutMs = 20_000): Promise<T> {
  const end = performance.now() + timeoutMs;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (performance.now() > end) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    await systemClock.sleep(50);
  }
}

async function kubectl(plane: ControlPlane, args: readonly string[], input?: unknown): Promise<Said> {
  const all = ["--kubeconfig", plane.kubeconfig, "--cache-dir", join(plane.folder, "kubectl-cache"), ...args];
  const child = spawn(plane.kubectl, all, { stdio: ["pipe", "pipe", "pipe"], env: { HOME: plane.folder } });
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (part: string) => (text += part));
  child.stdin.on("error", () => {}).end(input === undefined ? "" : JSON.stringify(input));
  const code = await new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (status) => resolve(status ?? 1));
  });
  return { code, text };
}
