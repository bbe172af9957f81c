// Starts a one-node Kubernetes on this machine, from nothing to a ready node.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { basename, dirname, join } from "node:path";
import { clusterImages } from "../../images/cluster-images.ts";
import { type Image, reference } from "../../images/oci.ts";
import { probe } from "../../lib/network.ts";
import { isRunning, type RecordedProcess, startDetached, waitUntil } from "../../lib/processes.ts";
import { lastLines, run, which } from "../../lib/run.ts";
import { type Log, UserError, withProgress } from "../../lib/say.ts";
import { type Binary, binaryPath, ensureBinaries } from "../binaries.ts";
import { apiServerArguments, controllerManagerArguments, etcdArguments } from "../flags.ts";
import { createAuthority, createSigningKey, issue, kubeconfig } from "../pki.ts";
import { dnsManifests, volumeManifests } from "./addons.ts";
import { ctr, importImages } from "./containerd.ts";
import { API_PORT, CONTEXT, HOST_ADDRESS, type Layout, layout, NODE, POD_CIDR, SERVICE_CIDR } from "./layout.ts";
import { createControlGroups } from "./control-groups.ts";
import { createNetwork } from "./network.ts";
import { type ClusterRecord, writeRecord } from "./record.ts";
import { cniConfig, containerdConfig, kubeletConfig, resolvConf } from "./settings.ts";

export const PROGRAMS = [
  ...([
    "etcd",
    "kube-apiserver",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
  ] as const),
  ...(["containerd", "containerd-shim-runc-v2", "ctr", "coredns", "kube-router", "helm", "pause"] as const),
] satisfies Binary[];

const READY_MS = 120_000;
/** On loopback, and away from the ports a person's own etcd would have. */
const ETCD = { client: "http://127.0.0.1:22379", peer: "http://127.0.0.1:22380" };
const API_URL = `https://${HOST_ADDRESS}:${API_PORT}`;

/** Changes when a program or a file of this folder does: then a running cluster is an old one. */
export function recipe(): string {
  const hash = createHash("sha256");
  for (const name of PROGRAMS) hash.update(basename(dirname(binaryPath(name))));
  for (const file of ["start.ts", "settings.ts", "addons.ts", "network.ts", "layout.ts", "../flags.ts"]) {
    hash.update(readFileSync(join(import.meta.dirname, file)));
  }
  return hash.digest("hex").slice(0, 16);
}

/** A process that ended, or did not get ready, with the end of its log. */
function failure(one: RecordedProcess, how: string): UserError {
  return new UserError(
    `${one.name} ${how}. Its log is ${one.log}; the last lines:\n${lastLines(readFileSync(one.log, "utf8"), 15)}`,
  );
}

class Starter {
  readonly at: Layout = layout();
  readonly record: ClusterRecord = {
    startedAt: Date.now(),
    complete: false,
    recipe: recipe(),
    processes: [],
    sysctls: {},
  };

  start(name: Binary, args: readonly string[], env: Record<string, string> = {}): RecordedProcess {
    const one = startDetached(name, binaryPath(name), args, { log: join(this.at.logs, `${name}.log`), env });
    this.record.processes.push(one);
    writeRecord(this.record);
    return one;
  }

  /** Waits for `ready`, and gives up at once when any process has ended. */
  async wait(one: RecordedProcess, ready: () => Promise<boolean>): Promise<void> {
    const done = await waitUntil(
      async () => {
        const ended = this.record.processes.find((each) => !isRunning(each));
        if (ended) throw failure(ended, "ended while the cluster was starting");
        return ready();
      },
      READY_MS,
      100,
    );
    if (!done) throw failure(one, `was not ready after ${READY_MS / 1000} s`);
  }

  kubectl(args: readonly string[], input?: string) {
    return run(
      binaryPath("kubectl"),
      ["--kubeconfig", this.at.kubeconfig, ...args],
      input === undefined ? {} : { input },
    );
  }

  async keys(): Promise<void> {
    const { pki } = this.at;
    const authority = (await createAuthority(pki)).cert;
    const names = [
      "DNS:kubernetes",
      "DNS:kubernetes.default",
      "DNS:kubernetes.default.svc",
      "DNS:kubernetes.default.svc.cluster.local",
    ];
    const server = [...names, "DNS:localhost", `IP:${HOST_ADDRESS}`, "IP:127.0.0.1", "IP:10.96.0.1"];
    const clients = {
      admin: { name: "pawl-local-admin", groups: ["system:masters"] },
      "kubelet-client": { name: "kube-apiserver-kubelet-client", groups: ["system:masters"] },
      "kube-controller-manager": { name: "system:kube-controller-manager" },
      "kube-scheduler": { name: "system:kube-scheduler" },
      "kube-proxy": { name: "system:kube-proxy" },
      // It reads pods, namespaces, nodes, services and policies; the role for that is among the manifests.
      "kube-router": { name: "kube-router" },
      kubelet: { name: `system:node:${NODE}`, groups: ["system:nodes"] },
    };
    await Promise.all([
      createSigningKey(pki),
      issue(pki, "server", { name: "kube-apiserver", names: server }),
      issue(pki, "kubelet-server", { name: NODE, names: [`DNS:${NODE}`, `DNS:${hostname()}`, `IP:${HOST_ADDRESS}`] }),
      ...Object.entries(clients).map(async ([file, subject]) => {
        const client = await issue(pki, file, subject);
        const path = file === "admin" ? this.at.kubeconfig : join(pki, `${file}.kubeconfig`);
        writeFileSync(path, kubeconfig(CONTEXT, API_URL, authority, client), { mode: 0o600 });
      }),
    ]);
  }

  async controlPlane(): Promise<void> {
    const { pki } = this.at;
    mkdirSync(this.at.etcd, { mode: 0o700 });
    this.start("etcd", etcdArguments({ data: this.at.etcd, ...ETCD }));
    const file = (name: string) => ({ cert: join(pki, `${name}.crt`), key: join(pki, `${name}.key`) });
    const api = apiServerArguments({
      etcd: ETCD.client,
      address: HOST_ADDRESS,
      port: API_PORT,
      pki,
      server: file("server"),
      authorization: "Node,RBAC",
      more: [
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        `--kubelet-client-certificate=${file("kubelet-client").cert}`,
        `--kubelet-client-key=${file("kubelet-client").key}`,
        `--kubelet-certificate-authority=${file("ca").cert}`,
      ],
    });
    const server = this.start("kube-apiserver", api);
    await this.wait(server, async () => (await probe(`${API_URL}/readyz`, file("ca").cert, file("admin"))) === 200);
    const manager = controllerManagerArguments(join(pki, "kube-controller-manager.kubeconfig"), pki, [
      "--use-service-account-credentials=true",
      "--allocate-node-cidrs=true",
      `--cluster-cidr=${POD_CIDR}`,
      "--node-cidr-mask-size=16",
    ]);
    this.start("kube-controller-manager", manager);
    const scheduler = join(pki, "kube-scheduler.kubeconfig");
    this.start("kube-scheduler", [`--kubeconfig=${scheduler}`, "--leader-elect=false", "--secure-port=0"]);
  }

  async containerd(images: { pause: Image; coredns: Image }, log: Log): Promise<void> {
    mkdirSync(join(this.at.cni, "conf"), { recursive: true });
    writeFileSync(join(this.at.cni, "conf", "10-pawl.conflist"), cniConfig(this.at));
    const config = join(this.at.state, "containerd.toml");
    const runc = which("runc") ?? "runc";
    const shim = binaryPath("containerd-shim-runc-v2");
    writeFileSync(config, containerdConfig(this.at, { shim, runc, pause: reference(images.pause) }));
    const one = this.start("containerd", ["--config", config, "--address", this.at.socket]);
    await this.wait(one, async () => (await ctr(["version"], true)).code === 0);
    await importImages([images.pause, images.coredns], log);
  }

  /** The node's own programs; afterwards pods run. */
  async node(): Promise<void> {
    const { pki, state, kubelet: root } = this.at;
    writeFileSync(join(state, "resolv.conf"), resolvConf());
    const certificate = { cert: join(pki, "kubelet-server.crt"), key: join(pki, "kubelet-server.key") };
    writeFileSync(join(state, "kubelet.json"), kubeletConfig(this.at, certificate));
    const kubelet = this.start("kubelet", [
      `--config=${join(state, "kubelet.json")}`,
      `--kubeconfig=${join(pki, "kubelet.kubeconfig")}`,
      `--root-dir=${root}`,
      `--hostname-override=${NODE}`,
      `--node-ip=${HOST_ADDRESS}`,
    ]);
    this.start("kube-proxy", [
      `--kubeconfig=${join(pki, "kube-proxy.kubeconfig")}`,
      "--proxy-mode=iptables",
      `--cluster-cidr=${POD_CIDR}`,
      `--hostname-override=${NODE}`,
      "--conntrack-max-per-core=0",
      "--conntrack-tcp-timeout-established=0",
      "--conntrack-tcp-timeout-close-wait=0",
      `--healthz-bind-address=${HOST_ADDRESS}:10256`,
      `--metrics-bind-address=${HOST_ADDRESS}:10249`,
    ]);
    // It looks its node up once, at its start.
    await this.wait(kubelet, async () => {
      const asked = await run(
        binaryPath("kubectl"),
        ["--kubeconfig", this.at.kubeconfig, "get", "node", NODE, "-o", "jsonpath={.spec.podCIDR}"],
        { allowFailure: true },
      );
      return asked.code === 0 && asked.stdout !== "";
    });
    this.start(
      "kube-router",
      [
        `--kubeconfig=${join(pki, "kube-router.kubeconfig")}`,
        "--run-router=false",
        "--run-firewall=true",
        "--run-service-proxy=false",
        "--run-loadbalancer=false",
        `--service-cluster-ip-range=${SERVICE_CIDR}`,
        `--hostname-override=${NODE}`,
        "--health-port=0",
        "--metrics-port=0",
      ],
      { NODE_NAME: NODE },
    );
  }

  async addons(coredns: Image): Promise<void> {
    const forward = resolvConf() !== "";
    const items = [...routerRole(), ...dnsManifests(reference(coredns), forward), ...volumeManifests()];
    const list = JSON.stringify({ apiVersion: "v1", kind: "List", items });
    await this.kubectl(["apply", "--server-side", "-f", "-"], list);
  }

  async ready(): Promise<void> {
    const wait = (...what: string[]) => this.kubectl(["wait", `--timeout=${READY_MS / 1000}s`, ...what]);
    await wait("--for=condition=Ready", `node/${NODE}`);
    await wait("--for=condition=Available", "-n", "kube-system", "deployment/coredns");
    this.record.complete = true;
    writeRecord(this.record);
  }
}

function routerRole(): Record<string, unknown>[] {
  const read = ["get", "list", "watch"];
  return [
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "kube-router" },
      rules: [
        { apiGroups: [""], resources: ["namespaces", "pods", "services", "nodes", "endpoints"], verbs: read },
        { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: read },
        { apiGroups: ["networking.k8s.io"], resources: ["networkpolicies"], verbs: read },
      ],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "kube-router" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "kube-router" },
      subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "kube-router" }],
    },
  ];
}

/** Expects that nothing of an earlier cluster is left. */
export async function startCluster(log: Log): Promise<void> {
  await ensureBinaries(PROGRAMS, log);
  const images = await clusterImages(log);
  const starter = new Starter();
  const at = starter.at;
  for (const folder of [at.state, at.logs, at.kubelet, at.volumes, at.run])
    mkdirSync(folder, { recursive: true, mode: 0o755 });
  await withProgress(log, "starting a local Kubernetes", async () => {
    writeRecord(starter.record);
    starter.record.sysctls = await createNetwork(at.state);
    writeRecord(starter.record);
    createControlGroups();
    await starter.keys();
    await Promise.all([starter.controlPlane(), starter.containerd(images, () => {})]);
    await starter.addons(images.coredns);
    await starter.node();
    await starter.ready();
  });
}
