// The bridge that is the node's address and the pods' network.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { run, which } from "../../lib/run.ts";
import { UserError } from "../../lib/say.ts";
import { BRIDGE, HOST_ADDRESS, POD_CIDR } from "./layout.ts";

/** Forwarding makes pods reach the world; the bridge setting makes NetworkPolicy see traffic from pod to pod. */
const SYSCTLS = { "/proc/sys/net/ipv4/ip_forward": "1", "/proc/sys/net/bridge/bridge-nf-call-iptables": "1" };

const MASQUERADE = [
  "POSTROUTING",
  "-s",
  POD_CIDR,
  "!",
  "-d",
  POD_CIDR,
  "-m",
  "comment",
  "--comment",
  "pawl-local",
  "-j",
  "MASQUERADE",
];

const iptables = (...args: string[]) => run("iptables", ["-w", ...args], { allowFailure: true });

/** The state folder of the cluster that made the bridge, kept as the bridge's alias; undefined without a bridge. */
export async function bridgeOwner(): Promise<string | undefined> {
  const asked = await run("ip", ["-j", "link", "show", BRIDGE], { allowFailure: true });
  if (asked.code !== 0) return undefined;
  const [link] = JSON.parse(asked.stdout) as { ifalias?: string }[];
  return link?.ifalias ?? "";
}

/** Two local clusters would share addresses and rules; and another program's network must not be cut off. */
async function requireFreeNetwork(): Promise<void> {
  const owner = await bridgeOwner();
  if (owner) {
    const cache = dirname(owner);
    throw new UserError(`Another local cluster runs: take it down with PAWL_CACHE=${cache} npm run cluster -- down`);
  }
  const taken = (await run("ip", ["-o", "-4", "addr", "show", "to", POD_CIDR])).stdout.trim();
  if (taken === "") return;
  throw new UserError(
    `The local cluster's network ${POD_CIDR} is in use by interface ${taken.split(/\s+/)[1]}: take that down, or name a cluster with --context.`,
  );
}

/** Makes the bridge, which bears its owner's name; returns the kernel settings as they were. */
export async function createNetwork(owner: string): Promise<Record<string, string>> {
  await requireFreeNetwork();
  await run("ip", ["link", "add", BRIDGE, "type", "bridge"]);
  await run("ip", ["link", "set", BRIDGE, "alias", owner]);
  await run("ip", ["addr", "add", `${HOST_ADDRESS}/16`, "dev", BRIDGE]);
  await run("ip", ["link", "set", BRIDGE, "up"]);
  if (which("modprobe")) await run("modprobe", ["br_netfilter"], { allowFailure: true });
  const before: Record<string, string> = {};
  for (const [path, value] of Object.entries(SYSCTLS)) {
    const old = readFileSync(path, "utf8").trim();
    if (old === value) continue;
    before[path] = old;
    writeFileSync(path, value);
  }
  await run("iptables", ["-w", "-t", "nat", "-A", ...MASQUERADE]);
  return before;
}

/** Removes the bridge, our rule, and the kernel settings' changes; whatever of it there is. */
export async function removeNetwork(sysctls: Record<string, string>): Promise<void> {
  await run("ip", ["link", "delete", BRIDGE], { allowFailure: true });
  if (which("iptables")) {
    while ((await iptables("-t", "nat", "-D", ...MASQUERADE)).code === 0);
  }
  for (const [path, value] of Object.entries(sysctls)) writeFileSync(path, value);
}

/** Rules and sets that kube-proxy and kube-router made: everything of theirs bears these names. */
export const isClusterChain = (name: string) => name.startsWith("KUBE-");

/**
 * What `iptables-save` printed, less the cluster's chains and every rule that speaks of one. Fed back to
 * `iptables-restore`, it leaves others' rules as they are; undefined when there is nothing of ours.
 */
export function withoutClusterRules(saved: string): string | undefined {
  const kept = saved.split("\n").filter((line) => {
    const chain = /^:(\S+)/.exec(line)?.[1] ?? /^-A (\S+)/.exec(line)?.[1];
    const target = / -[jg] (KUBE-\S+)/.exec(line)?.[1];
    return !(chain && isClusterChain(chain)) && !target;
  });
  const result = kept.join("\n");
  return result === saved ? undefined : result;
}

/** Removes the chains and sets of kube-proxy and kube-router. */
export async function removeClusterRules(): Promise<void> {
  for (const family of ["", "6"]) {
    const saved = await run(`ip${family}tables-save`, [], { allowFailure: true });
    const kept = saved.code === 0 ? withoutClusterRules(saved.stdout) : undefined;
    if (kept !== undefined) await run(`ip${family}tables-restore`, ["-w"], { input: kept, allowFailure: true });
  }
  const sets = await run("ipset", ["list", "-name"], { allowFailure: true });
  const ours = sets.stdout.split("\n").filter((name) => /^(inet6:)?KUBE-|^(inet6:)?kube-router-/.test(name));
  for (const name of ours) await run("ipset", ["destroy", name], { allowFailure: true });
}
