// The command lines of etcd, the API server and the controller manager: the same for tests and for the local cluster.
import { join } from "node:path";
import type { Certificate } from "./pki.ts";

export type Etcd = { data: string; client: string; peer: string };

export function etcdArguments(etcd: Etcd): string[] {
  return [
    "--name=pawl",
    `--data-dir=${etcd.data}`,
    `--listen-client-urls=${etcd.client}`,
    `--advertise-client-urls=${etcd.client}`,
    `--listen-peer-urls=${etcd.peer}`,
    `--initial-advertise-peer-urls=${etcd.peer}`,
    `--initial-cluster=pawl=${etcd.peer}`,
    // The data is thrown away with the cluster; waiting for the disk only makes everything slower.
    "--unsafe-no-fsync",
    "--log-level=warn",
    "--logger=zap",
  ];
}

export type ApiServer = {
  etcd: string;
  address: string;
  port: number;
  pki: string;
  server: Certificate;
  authorization: "RBAC" | "Node,RBAC";
  more?: readonly string[];
};

export function apiServerArguments(api: ApiServer): string[] {
  return [
    `--etcd-servers=${api.etcd}`,
    `--bind-address=${api.address}`,
    `--secure-port=${api.port}`,
    `--tls-cert-file=${api.server.cert}`,
    `--tls-private-key-file=${api.server.key}`,
    `--client-ca-file=${join(api.pki, "ca.crt")}`,
    `--authorization-mode=${api.authorization}`,
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    `--service-account-key-file=${join(api.pki, "sa.pub")}`,
    `--service-account-signing-key-file=${join(api.pki, "sa.key")}`,
    "--service-cluster-ip-range=10.96.0.0/16",
    ...(api.more ?? []),
  ];
}

export function controllerManagerArguments(kubeconfig: string, pki: string, more: readonly string[]): string[] {
  return [
    `--kubeconfig=${kubeconfig}`,
    "--leader-elect=false",
    "--secure-port=0",
    `--root-ca-file=${join(pki, "ca.crt")}`,
    `--service-account-private-key-file=${join(pki, "sa.key")}`,
    ...more,
  ];
}
