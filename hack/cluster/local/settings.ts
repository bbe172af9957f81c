// The configuration files of containerd, the pods' network and the kubelet.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { GROUP } from "./control-groups.ts";
import { BRIDGE, DNS_ADDRESS, HOST_ADDRESS, type Layout, POD_CIDR } from "./layout.ts";

export function containerdConfig(at: Layout, programs: { shim: string; runc: string; pause: string }): string {
  return `version = 3
root = "${at.containerd}"
state = "${at.run}/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]

[grpc]
address = "${at.socket}"

[ttrpc]
address = "${at.socket}.ttrpc"

[plugins."io.containerd.snapshotter.v1.overlayfs"]
# Unmounting an overlay otherwise waits for the whole disk to be written, seconds while something builds.
mount_options = ["volatile"]

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "${programs.pause}"

[plugins."io.containerd.cri.v1.runtime"]
# A process of a container on a machine may be forbidden to lower its own score.
restrict_oom_score_adj = true
# Below our own folder, so that "down" finds what is mounted.
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "${at.cni}/conf"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = "${programs.shim}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "${programs.runc}"
Root = "${at.run}/runc"
SystemdCgroup = false
`;
}

export function cniConfig(at: Layout): string {
  return JSON.stringify({
    cniVersion: "1.0.0",
    name: "pawl",
    plugins: [
      {
        type: "bridge",
        bridge: BRIDGE,
        isDefaultGateway: true,
        // A pod reaches itself through its own Service.
        hairpinMode: true,
        ipMasq: false,
        ipam: {
          type: "host-local",
          dataDir: join(at.cni, "addresses"),
          ranges: [[{ subnet: POD_CIDR, rangeStart: "10.88.0.10", gateway: HOST_ADDRESS }]],
        },
      },
    ],
  });
}

/** The name servers that a pod can use: one on the host's loopback address is not among them. */
export function reachableNameServers(resolvConf: string): string[] {
  const all = [...resolvConf.matchAll(/^\s*nameserver\s+(\S+)/gm)].map((match) => match[1] ?? "");
  return all.filter((address) => !/^127\.|^::1$/.test(address));
}

export function resolvConf(): string {
  for (const file of ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"]) {
    try {
      const servers = reachableNameServers(readFileSync(file, "utf8"));
      if (servers.length > 0) return servers.map((server) => `nameserver ${server}\n`).join("");
    } catch {
      // Not on this machine.
    }
  }
  return "";
}

export function kubeletConfig(at: Layout, certificate: { cert: string; key: string }): string {
  return JSON.stringify({
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    address: HOST_ADDRESS,
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: join(at.pki, "ca.crt") },
    },
    authorization: { mode: "Webhook" },
    tlsCertFile: certificate.cert,
    tlsPrivateKeyFile: certificate.key,
    healthzPort: 0,
    clusterDNS: [DNS_ADDRESS],
    clusterDomain: "cluster.local",
    resolvConf: join(at.state, "resolv.conf"),
    containerRuntimeEndpoint: `unix://${at.socket}`,
    podLogsDir: join(at.logs, "pods"),
    volumePluginDir: join(at.kubelet, "volume-plugins"),
    cgroupDriver: "cgroupfs",
    cgroupRoot: `/${GROUP}`,
    failCgroupV1: false,
    failSwapOn: false,
    enforceNodeAllocatable: [],
    // Tolerates a machine on which resource limits and oom scores may not be raised.
    featureGates: { KubeletInUserNamespace: true },
    podPidsLimit: 512,
    // The disk of a machine may not tell its usage; then pods with limits on it would be refused.
    localStorageCapacityIsolation: false,
    // Images come from no registry: one that is collected cannot be fetched again.
    imageGCHighThresholdPercent: 100,
    imageGCLowThresholdPercent: 99,
    evictionHard: {
      "memory.available": "100Mi",
      "nodefs.available": "0%",
      "nodefs.inodesFree": "0%",
      "imagefs.available": "0%",
      "imagefs.inodesFree": "0%",
    },
    serializeImagePulls: false,
    // The demo's and the tests' pods come and go quickly; the default of one a second makes them wait.
    syncFrequency: "10s",
    fileCheckFrequency: "0s",
    httpCheckFrequency: "0s",
  });
}
