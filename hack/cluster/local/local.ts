// The local cluster as one thing: up, down, status.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ensurePackages } from "../../lib/debian.ts";
import { withLock } from "../../lib/lock.ts";
import { probe } from "../../lib/network.ts";
import { isRunning } from "../../lib/processes.ts";
import { run } from "../../lib/run.ts";
import { type Log, UserError } from "../../lib/say.ts";
import { binaryPath } from "../binaries.ts";
import { emptyVolume, volumeManifests } from "./addons.ts";
import { cleanUp } from "./cleanup.ts";
import { API_PORT, HOST_ADDRESS, layout } from "./layout.ts";
import { bridgeOwner } from "./network.ts";
import { deadProcesses, readRecord } from "./record.ts";
import { recipe, startCluster } from "./start.ts";

const PACKAGES = ["runc", "containernetworking-plugins", "iptables", "ipset", "iproute2", "openssl"] as const;

/** Why what runs is not the cluster that is wanted; undefined when it is. */
async function fault(): Promise<string | undefined> {
  const record = readRecord();
  if (!record) return "nothing was started";
  if (!record.complete) return "its start was cut short";
  const dead = deadProcesses(record);
  if (dead.length > 0) return `no longer running: ${dead.join(", ")}`;
  if (record.recipe !== recipe()) return "it was made by another version of hack/";
  const pki = layout().pki;
  const client = { cert: join(pki, "admin.crt"), key: join(pki, "admin.key") };
  const answer = await probe(`https://${HOST_ADDRESS}:${API_PORT}/readyz`, join(pki, "ca.crt"), client);
  return answer === 200 ? undefined : "its API server does not answer";
}

function requireRoot(): void {
  if (process.getuid?.() === 0) return;
  throw new UserError("The local cluster needs root: run this as root, or name a cluster with --context NAME.");
}

/** Reuses the cluster that runs, or replaces what is left of it by a new one. */
export async function localUp(log: Log): Promise<void> {
  requireRoot();
  await withLock(layout().lock, "the local cluster in hand", log, async () => {
    const why = await fault();
    if (why === undefined) {
      await renewVolumes();
      return;
    }
    if (readRecord()) log(`replacing the local cluster (${why}); what was in it is gone`);
    await ensurePackages(PACKAGES, log);
    await cleanUp();
    await startCluster(log);
  });
}

export async function localDown(log: Log): Promise<void> {
  if (!existsSync(layout().state) && (await bridgeOwner()) !== layout().state) {
    log("no local cluster");
    return;
  }
  requireRoot();
  await withLock(layout().lock, "the local cluster in hand", log, async () => {
    await cleanUp();
    log("the local cluster is gone");
  });
}

/** A volume whose claim was deleted stays `Released` for ever: empty it and offer it again. */
async function renewVolumes(): Promise<void> {
  const kubectl = (args: string[], input?: string) =>
    run(binaryPath("kubectl"), ["--kubeconfig", layout().kubeconfig, ...args], input === undefined ? {} : { input });
  const asked = await kubectl([
    "get",
    "pv",
    "-o",
    'jsonpath={range .items[?(@.status.phase=="Released")]}{.metadata.name}{"\\n"}{end}',
  ]);
  const released = asked.stdout.split("\n").filter(Boolean);
  if (released.length === 0) return;
  await kubectl(["delete", "pv", ...released]);
  for (const name of released) emptyVolume(name);
  const items = volumeManifests().filter((item) => released.includes((item.metadata as { name: string }).name));
  await kubectl(["create", "-f", "-"], JSON.stringify({ apiVersion: "v1", kind: "List", items }));
}

export type LocalStatus = {
  running: boolean;
  reason?: string;
  processes: { name: string; pid: number; running: boolean; log: string }[];
};

export async function localStatus(): Promise<LocalStatus> {
  const record = readRecord();
  const reason = await fault();
  const processes = record?.processes ?? [];
  return {
    running: reason === undefined,
    ...(reason === undefined ? {} : { reason }),
    processes: processes.map((one) => ({ name: one.name, pid: one.pid, running: isRunning(one), log: one.log })),
  };
}
