// The scripted model, the world that agents write to and an MCP server, as pods: stand-ins for services on the internet.
import { createHash } from "node:crypto";
import type { FakeKind, ScriptBook } from "@pawl/fakes";

export const PORT = 8080;
/** As the worker reaches them; `outbound.allow` names the world's host. */
export const urlOf = (name: FakeKind, namespace: string) => `http://${name}.${namespace}:${PORT}`;

export type FakesOptions = {
  namespace: string;
  image: string;
  book: ScriptBook;
  /** Changes with every use, so that pods and their logs begin anew. */
  use: string;
};

/** Everything but the namespace. */
export function fakesManifests({ namespace, image, book, use }: FakesOptions): object[] {
  const script = JSON.stringify(book);
  const stamp = createHash("sha256").update(script).update(use).digest("hex").slice(0, 16);
  const model = ["fakes/src/model-main.ts", "--script", "/script/book.json"];
  return [
    {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "model-script", namespace },
      data: { "book.json": script },
    },
    ...fakeManifests("model", { namespace, image, stamp, args: model, configMap: "model-script" }),
    ...fakeManifests("world", { namespace, image, stamp }),
  ];
}

type One = { namespace: string; image: string; stamp?: string; args?: readonly string[]; configMap?: string };

/** One fake: its Deployment and its Service. */
export function fakeManifests(
  name: FakeKind,
  { namespace, image, stamp = "", args = [`fakes/src/${name}-main.ts`], configMap }: One,
): object[] {
  const labels = { "app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "pawl-fakes" };
  const container = {
    name,
    image,
    args: [...args, "--host", "0.0.0.0", "--port", String(PORT), "--log", "/tmp/requests.jsonl"],
    ports: [{ name: "http", containerPort: PORT }],
    readinessProbe: { httpGet: { path: "/healthz", port: "http" }, periodSeconds: 1 },
    resources: { requests: { cpu: "20m", memory: "64Mi" }, limits: { memory: "256Mi" } },
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
    volumeMounts: [
      { name: "tmp", mountPath: "/tmp" },
      ...(configMap === undefined ? [] : [{ name: "script", mountPath: "/script", readOnly: true }]),
    ],
  };
  const spec = {
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    // Nothing to finish: a held answer would keep the pod for as long as it is allowed to take.
    terminationGracePeriodSeconds: 1,
    securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
    containers: [container],
    volumes: [
      { name: "tmp", emptyDir: {} },
      ...(configMap === undefined ? [] : [{ name: "script", configMap: { name: configMap } }]),
    ],
  };
  return [
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name, namespace, labels },
      spec: {
        replicas: 1,
        strategy: { type: "Recreate" },
        selector: { matchLabels: labels },
        template: { metadata: { labels, annotations: { "pawl-fakes/stamp": stamp } }, spec },
      },
    },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name, namespace, labels },
      spec: { selector: labels, ports: [{ name: "http", port: PORT, targetPort: "http" }] },
    },
  ];
}
