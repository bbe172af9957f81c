// What a cluster has besides its control plane: names, and volumes.
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DNS_ADDRESS, layout, NODE } from "./layout.ts";

type Manifest = Record<string, unknown>;
const labels = { "k8s-app": "kube-dns" };
const meta = { name: "coredns", namespace: "kube-system", labels };

/** One option a line, as CoreDNS reads it. Names outside the cluster only where the host has a name server. */
function corefile(forward: boolean): string {
  return `.:1053 {
    errors
    health :8080
    ready :8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }
    ${forward ? "forward . /etc/resolv.conf" : ""}
    cache 5
    loop
    reload
}
`;
}

export function dnsManifests(image: string, forward: boolean): Manifest[] {
  const role = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "system:coredns" };
  const container = {
    name: "coredns",
    image,
    imagePullPolicy: "Never",
    args: ["-conf", "/etc/coredns/Corefile"],
    ports: [
      { name: "dns", containerPort: 1053, protocol: "UDP" },
      { name: "dns-tcp", containerPort: 1053, protocol: "TCP" },
    ],
    readinessProbe: { httpGet: { path: "/ready", port: 8181 }, periodSeconds: 1 },
    resources: { requests: { cpu: "20m", memory: "40Mi" }, limits: { memory: "170Mi" } },
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
    volumeMounts: [{ name: "config", mountPath: "/etc/coredns", readOnly: true }],
  };
  const pod = {
    serviceAccountName: "coredns",
    dnsPolicy: "Default",
    securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
    containers: [container],
    volumes: [{ name: "config", configMap: { name: "coredns" } }],
  };
  return [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: meta },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "system:coredns" },
      rules: [
        { apiGroups: [""], resources: ["services", "pods", "namespaces"], verbs: ["list", "watch"] },
        { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list", "watch"] },
      ],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "system:coredns" },
      roleRef: role,
      subjects: [{ kind: "ServiceAccount", name: "coredns", namespace: "kube-system" }],
    },
    { apiVersion: "v1", kind: "ConfigMap", metadata: meta, data: { Corefile: corefile(forward) } },
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: meta,
      spec: { replicas: 1, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: pod } },
    },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { ...meta, name: "kube-dns" },
      spec: {
        clusterIP: DNS_ADDRESS,
        selector: labels,
        ports: [
          { name: "dns", port: 53, targetPort: 1053, protocol: "UDP" },
          { name: "dns-tcp", port: 53, targetPort: 1053, protocol: "TCP" },
        ],
      },
    },
  ];
}

const VOLUMES = 16;

/**
 * A default storage class over a fixed number of folders: nothing in a bare cluster makes volumes on demand. They are
 * `local` volumes, for which, unlike `hostPath`, the kubelet applies a pod's fsGroup.
 */
export function volumeManifests(): Manifest[] {
  const storageClass = {
    apiVersion: "storage.k8s.io/v1",
    kind: "StorageClass",
    metadata: { name: "standard", annotations: { "storageclass.kubernetes.io/is-default-class": "true" } },
    provisioner: "kubernetes.io/no-provisioner",
    volumeBindingMode: "WaitForFirstConsumer",
  };
  const here = { key: "kubernetes.io/hostname", operator: "In", values: [NODE] };
  const volumes = Array.from({ length: VOLUMES }, (_, index) => {
    const path = join(layout().volumes, `volume-${index}`);
    mkdirSync(path, { recursive: true });
    return {
      apiVersion: "v1",
      kind: "PersistentVolume",
      metadata: { name: `volume-${index}` },
      spec: {
        capacity: { storage: "10Gi" },
        accessModes: ["ReadWriteOnce"],
        persistentVolumeReclaimPolicy: "Retain",
        storageClassName: "standard",
        local: { path },
        nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [here] }] } },
      },
    };
  });
  return [storageClass, ...volumes];
}

/** Empties a volume that its claim has left. */
export function emptyVolume(name: string): void {
  if (!/^volume-\d+$/.test(name)) return;
  const path = join(layout().volumes, name);
  for (const entry of readdirSync(path)) rmSync(join(path, entry), { recursive: true, force: true });
}
