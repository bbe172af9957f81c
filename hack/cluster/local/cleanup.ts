// Ends what the local cluster started and removes what it made, also after a crash in which nothing was put in order.
import { lstatSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { cacheDir } from "../../lib/environment.ts";
import { identify, isRunning, type ProcessId, signal, stopProcess, waitUntil } from "../../lib/processes.ts";
import { run } from "../../lib/run.ts";
import { removeControlGroups } from "./control-groups.ts";
import { layout } from "./layout.ts";
import { bridgeOwner, removeClusterRules, removeNetwork } from "./network.ts";
import { type ClusterRecord, readRecord } from "./record.ts";

/** The API server before etcd: it must be able to finish what it has begun. What starts pods goes first. */
const STOP_ORDER = [
  "kubelet",
  "kube-router",
  "kube-proxy",
  "containers",
  "containerd",
  "kube-scheduler",
  "kube-controller-manager",
  "kube-apiserver",
  "etcd",
];
const GRACE_MS: Record<string, number> = { "kube-apiserver": 15_000, etcd: 10_000 };

/** Paths in mountinfo have blanks and the like as octal numbers. */
const unescape = (path: string) =>
  path.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));

/** Mount points below one of the folders, the inner ones first. */
export function mountsBelow(mountinfo: string, folders: readonly string[]): string[] {
  const points = mountinfo.split("\n").map((line) => unescape(line.split(" ")[4] ?? ""));
  return points.filter((point) => folders.some((folder) => point.startsWith(`${folder}/`))).reverse();
}

/** True when the process's root is an overlay whose upper folder is ours: it is in one of our containers. */
export function rootIsBelow(mountinfo: string, folder: string): boolean {
  return mountinfo.split("\n").some((line) => line.split(" ")[4] === "/" && line.includes(`upperdir=${folder}/`));
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** The processes of our containers, and the shims that watch them: known by our folder and our socket. */
function isContainer(pid: string, words: readonly string[]): boolean {
  const at = layout();
  const shim = words[0]?.endsWith("containerd-shim-runc-v2") && words.includes(at.socket);
  return shim || rootIsBelow(read(`/proc/${pid}/mountinfo`), at.containerd);
}

const SERVERS = STOP_ORDER.filter((name) => name !== "containers");

/** A server that was started but not recorded, or whose record was deleted: our program, told to use our folder. */
export function isStrayServer(words: readonly string[], bin: string, state: string): boolean {
  const [program = "", ...rest] = words;
  if (!program.startsWith(`${bin}/`) || !SERVERS.includes(basename(program))) return false;
  return rest.some((word) => word.includes(`${state}/`));
}

function processesThat(match: (pid: string, words: readonly string[]) => boolean): ProcessId[] {
  const found: ProcessId[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const id = identify(Number(name));
    if (!id || id.pid === process.pid) continue;
    const words = read(`/proc/${name}/cmdline`).split("\0");
    if (match(name, words)) found.push(id);
  }
  return found;
}

async function killAll(match: (pid: string, words: readonly string[]) => boolean): Promise<void> {
  // Until none is found: one may have been born while we looked.
  await waitUntil(async () => {
    const all = processesThat(match);
    for (const one of all) signal(one, "SIGKILL");
    await waitUntil(() => !all.some(isRunning), 5_000);
    return all.length === 0;
  }, 15_000);
}

async function stopAll(record: ClusterRecord | undefined): Promise<void> {
  const processes = record?.processes ?? [];
  for (const name of STOP_ORDER) {
    if (name === "containers") await killAll(isContainer);
    for (const one of processes.filter((each) => each.name === name)) await stopProcess(one, GRACE_MS[name] ?? 5_000);
  }
  const at = layout();
  await killAll((_, words) => isStrayServer(words, join(cacheDir(), "bin"), at.state));
}

async function unmountAll(): Promise<void> {
  const at = layout();
  for (const point of mountsBelow(read("/proc/self/mountinfo"), [at.state, at.run])) {
    const done = await run("umount", [point], { allowFailure: true });
    if (done.code !== 0) await run("umount", ["--lazy", point], { allowFailure: true });
  }
}

function entries(folder: string): string[] {
  try {
    return readdirSync(folder).map((name) => join(folder, name));
  } catch {
    return [];
  }
}

/** What the programs put into folders that cannot be chosen; told by where it leads. */
function removeStrays(): void {
  const at = layout();
  const leadsToUs = (path: string) => lstatSync(path).isSymbolicLink() && readlinkSync(path).startsWith(`${at.logs}/`);
  const logs = entries("/var/log/containers").filter(leadsToUs);
  const results = entries("/var/lib/cni/results").filter((path) => read(path).includes(`"${at.run}/`));
  const bundles = entries(join(at.run, "containerd", "io.containerd.runtime.v2.task", "k8s.io"));
  const sockets = bundles.flatMap((bundle) => {
    const address = /unix:\/\/(\/run\/containerd\/s\/[0-9a-f]+)/.exec(read(join(bundle, "bootstrap.json")))?.[1];
    return address ? [address] : [];
  });
  for (const path of [...logs, ...results, ...sockets]) rmSync(path, { force: true });
}

/** Takes everything down. Does nothing, quickly, where there is nothing. */
export async function cleanUp(): Promise<void> {
  const at = layout();
  const record = readRecord();
  await stopAll(record);
  await unmountAll();
  // A bridge of another owner says that rules of that kind are that cluster's.
  const owner = await bridgeOwner();
  if (owner === at.state || (record && owner === undefined)) {
    await removeNetwork(record?.sysctls ?? {});
    await removeClusterRules();
  }
  removeControlGroups();
  removeStrays();
  rmSync(at.run, { recursive: true, force: true });
  rmSync(at.state, { recursive: true, force: true });
}
