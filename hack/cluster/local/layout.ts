// Where the local cluster keeps its things, and its addresses.
import { join } from "node:path";
import { cacheDir, runDir } from "../../lib/environment.ts";
import { UserError } from "../../lib/say.ts";

export const CONTEXT = "pawl-local";
export const NODE = "pawl-local";

/** Pods, the node and the API server share this bridge; pods reach processes of the host at its address. */
export const BRIDGE = "pawl0";
export const HOST_ADDRESS = "10.88.0.1";
export const POD_CIDR = "10.88.0.0/16";
export const SERVICE_CIDR = "10.96.0.0/16";
export const DNS_ADDRESS = "10.96.0.10";
/** On the bridge's own address, so no other program can be in the way. */
export const API_PORT = 6443;

export type Layout = ReturnType<typeof layout>;

/** A Unix socket's path holds at most 107 bytes, and the kubelet makes sockets below its folder. */
const LONGEST_KUBELET_SOCKET = "kubelet/pod-resources/kubelet.sock".length;

export function layout() {
  const state = join(cacheDir(), "cluster");
  const room = 107 - LONGEST_KUBELET_SOCKET - "/cluster/".length;
  if (cacheDir().length > room) {
    throw new UserError(
      `The path of the cache folder is too long for the sockets in it: set PAWL_CACHE to one of at most ${room} bytes.`,
    );
  }
  const run = runDir();
  return {
    state,
    run,
    pki: join(state, "pki"),
    etcd: join(state, "etcd"),
    logs: join(state, "logs"),
    kubelet: join(state, "kubelet"),
    containerd: join(state, "containerd"),
    cni: join(state, "cni"),
    volumes: join(state, "volumes"),
    kubeconfig: join(state, "kubeconfig"),
    /** The processes and what was changed on the machine. */
    record: join(state, "record.json"),
    lock: join(cacheDir(), "locks", "cluster"),
    socket: join(run, "containerd.sock"),
  };
}
