// A real API server and its etcd, without nodes, for tests that need nothing else. Several may run side by side.
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ensurePackages } from "../lib/debian.ts";
import { childEnvironment } from "../lib/environment.ts";
import { freePorts, probe } from "../lib/network.ts";
import { identify, waitUntil } from "../lib/processes.ts";
import { lastLines, which } from "../lib/run.ts";
import type { Log } from "../lib/say.ts";
import { ensureBinaries } from "./binaries.ts";
import { apiServerArguments, controllerManagerArguments, etcdArguments } from "./flags.ts";
import { type Certificate, createAuthority, createSigningKey, issue, kubeconfig } from "./pki.ts";

export type ControlPlaneOptions = {
  log?: Log;
  /** Controllers of kube-controller-manager to run, by its names: "garbagecollector", "namespace", … Default: none. */
  controllers?: readonly string[];
  /** More flags for kube-apiserver. */
  apiServerFlags?: readonly string[];
};

export type ControlPlane = AsyncDisposable & {
  /** Path of a kubeconfig of a cluster admin (system:masters). */
  kubeconfig: string;
  url: string;
  port: number;
  /** Paths of PEM files. */
  authority: string;
  admin: Certificate;
  kubectl: string;
  /** Where etcd.log, kube-apiserver.log and kube-controller-manager.log are. */
  folder: string;
  /** Path of a kubeconfig of another user, for tests about who may do what. */
  kubeconfigOf(user: string, groups?: readonly string[]): Promise<string>;
  /** Ends the API server with SIGKILL; etcd and the data stay. */
  kill9(): Promise<void>;
  /** Starts the API server again (after ending it if it runs): same port, same data, same keys. */
  restart(): Promise<void>;
  /** Ends everything and removes the data. */
  stop(): Promise<void>;
};

const READY_MS = 60_000;
const PREFIX = "pawl-control-plane-";

/** Builds what is missing, starts etcd and the API server on free loopback ports, and returns when it is ready. */
export async function startControlPlane(options: ControlPlaneOptions = {}): Promise<ControlPlane> {
  const log = options.log ?? (() => {});
  const controllers = options.controllers ?? [];
  const manager = controllers.length > 0 ? (["kube-controller-manager"] as const) : [];
  const programs = await ensureBinaries(["etcd", "kube-apiserver", "kubectl", ...manager], log);
  if (!which("openssl")) await ensurePackages(["openssl"], log);
  removeFoldersOfTheDead();
  // The ports were free a moment ago, but another process may take one before we do; then try others.
  for (let attempt = 1; ; attempt++) {
    const folder = mkdtempSync(join(tmpdir(), `${PREFIX}${process.pid}-`));
    const plane = new Plane(folder, programs.kubectl, options);
    try {
      await plane.start(programs, controllers);
      return plane;
    } catch (error) {
      await plane.stop();
      if (attempt === 3 || !/address already in use/.test(String(error))) throw error;
    }
  }
}

/** A test run that was killed leaves its folder; its processes died with it. */
function removeFoldersOfTheDead(): void {
  for (const name of readdirSync(tmpdir())) {
    const pid = name.startsWith(PREFIX) ? Number(name.slice(PREFIX.length).split("-")[0]) : 0;
    if (pid > 0 && !identify(pid)) rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
}

type Running = { name: string; child: ChildProcess; ended: Promise<void>; log: string };

/** Starts a child that dies when this process does, however that ends, where the system can do that (Linux). */
function startBound(name: string, program: string, args: readonly string[], folder: string): Running {
  const log = join(folder, `${name}.log`);
  const out = openSync(log, "a");
  const setpriv = process.platform === "linux" ? which("setpriv") : undefined;
  const [command, all] = setpriv ? [setpriv, ["--pdeathsig", "KILL", program, ...args]] : [program, args];
  const child = spawn(command, all, { cwd: folder, stdio: ["ignore", out, out], env: childEnvironment() });
  closeSync(out);
  const ended = new Promise<void>((resolve) => {
    child.once("exit", () => resolve());
    child.once("error", () => resolve());
  });
  return { name, child, ended, log };
}

const hasEnded = ({ child }: Running) => child.exitCode !== null || child.signalCode !== null;

async function kill(running: Running | undefined): Promise<void> {
  if (!running || running.child.pid === undefined) return;
  if (!hasEnded(running)) running.child.kill("SIGKILL");
  await running.ended;
}

class Plane implements ControlPlane {
  readonly folder: string;
  readonly kubectl: string;
  readonly kubeconfig: string;
  readonly #pki: string;
  readonly #flags: readonly string[];
  port = 0;
  authority = "";
  admin: Certificate = { cert: "", key: "" };
  #server: Certificate = { cert: "", key: "" };
  #apiServerProgram = "";
  #etcdUrl = "";
  #etcd: Running | undefined;
  #api: Running | undefined;
  #manager: Running | undefined;

  constructor(folder: string, kubectl: string, options: ControlPlaneOptions) {
    this.folder = folder;
    this.kubectl = kubectl;
    this.kubeconfig = join(folder, "kubeconfig");
    this.#pki = join(folder, "pki");
    // Without its controller no namespace has a service account, and every pod would be refused for that.
    const accounts = options.controllers?.some((name) => name.startsWith("serviceaccount"));
    this.#flags = [
      ...(accounts ? [] : ["--disable-admission-plugins=ServiceAccount"]),
      ...(options.apiServerFlags ?? []),
    ];
  }

  get url(): string {
    return `https://127.0.0.1:${this.port}`;
  }

  async start(programs: Record<string, string>, controllers: readonly string[]): Promise<void> {
    const [api, client, peer] = (await freePorts(3)) as [number, number, number];
    this.port = api;
    this.#etcdUrl = `http://127.0.0.1:${client}`;
    this.#apiServerProgram = programs["kube-apiserver"] ?? "";
    const data = join(this.folder, "etcd");
    mkdirSync(data, { mode: 0o700 });
    const etcd = etcdArguments({ data, client: this.#etcdUrl, peer: `http://127.0.0.1:${peer}` });
    this.#etcd = startBound("etcd", programs.etcd ?? "", etcd, this.folder);
    this.authority = (await createAuthority(this.#pki)).cert;
    const names = ["DNS:localhost", "DNS:kubernetes.default.svc", "IP:127.0.0.1", "IP:10.96.0.1"];
    [, this.#server, this.admin] = await Promise.all([
      createSigningKey(this.#pki),
      issue(this.#pki, "server", { name: "kube-apiserver", names }),
      issue(this.#pki, "admin", { name: "admin", groups: ["system:masters"] }),
    ]);
    writeFileSync(this.kubeconfig, kubeconfig("pawl-test", this.url, this.authority, this.admin), { mode: 0o600 });
    await this.restart();
    if (controllers.length === 0) return;
    const only = [`--controllers=${controllers.join(",")}`];
    const manager = controllerManagerArguments(this.kubeconfig, this.#pki, only);
    const program = programs["kube-controller-manager"] ?? "";
    this.#manager = startBound("kube-controller-manager", program, manager, this.folder);
  }

  async kubeconfigOf(user: string, groups: readonly string[] = []): Promise<string> {
    const file = `user-${Buffer.from(user).toString("hex").slice(0, 80)}`;
    const client = await issue(this.#pki, file, { name: user, groups });
    const path = join(this.folder, `${file}.kubeconfig`);
    writeFileSync(path, kubeconfig("pawl-test", this.url, this.authority, client), { mode: 0o600 });
    return path;
  }

  async kill9(): Promise<void> {
    await kill(this.#api);
    this.#api = undefined;
  }

  async restart(): Promise<void> {
    await this.kill9();
    const args = apiServerArguments({
      etcd: this.#etcdUrl,
      address: "127.0.0.1",
      port: this.port,
      pki: this.#pki,
      server: this.#server,
      authorization: "RBAC",
      more: this.#flags,
    });
    this.#api = startBound("kube-apiserver", this.#apiServerProgram, args, this.folder);
    const running = this.#api;
    const ready = await waitUntil(async () => {
      for (const one of [this.#etcd, running]) if (one && hasEnded(one)) throw failed(one, "ended while starting");
      return (await probe(`${this.url}/readyz`, this.authority, this.admin)) === 200;
    }, READY_MS);
    if (!ready) throw failed(running, `was not ready after ${READY_MS / 1000} s`);
  }

  async stop(): Promise<void> {
    // All at once and without asking: the data is thrown away.
    await Promise.all([kill(this.#manager), kill(this.#api), kill(this.#etcd)]);
    rmSync(this.folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

function failed(running: Running, how: string): Error {
  return new Error(
    `${running.name} ${how}; the end of ${running.log}:\n${lastLines(readFileSync(running.log, "utf8"), 15)}`,
  );
}
