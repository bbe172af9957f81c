import assert from "node:assert/strict";
import type { KubeClient } from "#kube/client.ts";
import { HOSTS_ANNOTATION, offers, parseHosts } from "#kube/hosts.ts";
import { type Resource, SECRETS } from "#kube/resources.ts";
import { KubeSecrets } from "#kube/secrets.ts";
import { isPawlError } from "#rules/errors.ts";
import { type Cluster, cluster, makeNamespace } from "./support/cluster.ts";

describe("the hosts that a Secret offers itself to", () => {
  const CASES: readonly (readonly [string, string, boolean])[] = [
    ["api.example.com", "api.example.com", true],
    ["api.example.com", "API.Example.com", true],
    ["API.example.com", "api.example.com", true],
    ["api.example.com", "api.example.com.", true],
    ["api.example.com", "api.example.com:8443", false],
    ["api.example.com:8443", "api.example.com:8443", true],
    ["api.example.com:8443", "api.example.com", false],
    ["a.example.com, b.example.com ,c.example.com", "b.example.com", true],
    ["example.com", "api.example.com", false],
    ["api.example.com", "example.com", false],
    ["api.example.com", "api.example.com.evil.example", false],
    ["api.example.com", "evil-api.example.com", false],
    ["*.example.com", "api.example.com", true],
    ["*.example.com", "a.b.example.com", true],
    ["*.example.com", "example.com", false],
    ["*.example.com", ".example.com", false],
    ["*.example.com", "evilexample.com", false],
    ["*.example.com", "api.example.com:8443", false],
    ["*.example.com:8443", "api.example.com:8443", true],
    ["*", "api.example.com", false],
    ["*.com", "example.com", false],
    ["https://api.example.com", "api.example.com", false],
    ["api.example.com/v1", "api.example.com", false],
    ["model:8080", "model:8080", true],
    ["127.0.0.1:8080", "127.0.0.1:8080", true],
    ["[::1]:8080", "[::1]:8080", true],
    ["", "api.example.com", false],
    [",", "", false],
  ];
  for (const [annotation, host, expected] of CASES) {
    it(`"${annotation}" ${expected ? "includes" : "does not include"} "${host}"`, () => {
      assert.equal(offers(parseHosts(annotation).hosts, host), expected);
    });
  }

  it("name what is no host[:port] as a mistake", () => {
    assert.deepEqual(parseHosts("https://a.example.com, *, b.example.com, a b, *.com"), {
      hosts: ["b.example.com"],
      mistakes: ["https://a.example.com", "*", "a b", "*.com"],
    });
  });
});

describe("Secrets", function () {
  this.timeout(120_000);
  const NAMESPACE = "secrets";
  const HOST = "api.example.com";
  const VALUE = "sk-very-secret";
  let kube: Cluster;
  let worker: KubeClient;

  before(async () => {
    kube = await cluster();
    await makeNamespace(NAMESPACE);
    await makeNamespace("secrets-of-others");
    const rbac = (plural: string, kind: string): Resource => ({
      group: "rbac.authorization.k8s.io",
      version: "v1",
      plural,
      kind,
      namespaced: true,
    });
    // What the chart gives the worker: get, and nothing else.
    await kube.admin.create(rbac("roles", "Role"), {
      metadata: { namespace: NAMESPACE, name: "credentials" },
      rules: [{ apiGroups: [""], resources: ["secrets"], verbs: ["get"] }],
    });
    await kube.admin.create(rbac("rolebindings", "RoleBinding"), {
      metadata: { namespace: NAMESPACE, name: "credentials" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "credentials" },
      subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "worker" }],
    });
    worker = kube.as("worker");
    const secret = async (
      name: string,
      hosts: string | undefined,
      stringData: Record<string, string>,
      namespace = NAMESPACE,
    ) =>
      await kube.admin.create(SECRETS, {
        metadata: { namespace, name, ...(hosts === undefined ? {} : { annotations: { [HOSTS_ANNOTATION]: hosts } }) },
        stringData,
      });
    await secret("good", `${HOST},other.example.com:8443`, { key: VALUE, line: `${VALUE}\n`, empty: "" });
    await secret("shy", undefined, { key: VALUE });
    await secret("wrong", "https://api.example.com, b.example.com", { key: VALUE });
    await secret("far", HOST, { key: VALUE }, "secrets-of-others");
  });

  const ask = async (name: string, key: string, host = HOST, namespace = NAMESPACE) =>
    await new KubeSecrets(worker).get(namespace, { name, key }, host);

  it("are found where they offer themselves", async () => {
    assert.deepEqual(await ask("good", "key"), { kind: "found", value: VALUE });
    assert.deepEqual(await ask("good", "key", "other.example.com:8443"), { kind: "found", value: VALUE });
  });

  it("lose the line break that an editor left behind", async () => {
    assert.deepEqual(await ask("good", "line"), { kind: "found", value: VALUE });
  });

  const REFUSALS: readonly (readonly [string, () => Promise<unknown>, "missing" | "refused", RegExp])[] = [
    [
      "that do not exist",
      () => ask("never", "key"),
      "missing",
      /^Secret secrets\/never does not exist: create it with a key "key"$/,
    ],
    [
      "without the key",
      () => ask("good", "token"),
      "missing",
      /^Secret secrets\/good has no key "token"; it has: empty, key, line$/,
    ],
    ["whose keys look like an object's own", () => ask("good", "constructor"), "missing", /has no key "constructor"/],
    ["with nothing under the key", () => ask("good", "empty"), "missing", /has nothing under "empty"/],
    [
      "that offer themselves to nobody",
      () => ask("shy", "key"),
      "refused",
      /offers itself to no host.*kubectl annotate --overwrite secret -n secrets shy pawl\.dev\/hosts=api\.example\.com$/,
    ],
    [
      "that offer themselves to others",
      () => ask("good", "key", "evil.example.com"),
      "refused",
      /offers itself to api\.example\.com, other\.example\.com:8443, not to evil\.example\.com/,
    ],
    [
      "whose annotation is no list of hosts",
      () => ask("wrong", "key"),
      "refused",
      /\(not a host\[:port\]: https:\/\/api\.example\.com\)/,
    ],
    [
      "in a namespace that is not enabled",
      () => ask("far", "key", HOST, "secrets-of-others"),
      "refused",
      /may not read Secret secrets-of-others\/far: add "secrets-of-others" to agentNamespaces/,
    ],
  ];
  for (const [name, attempt, kind, words] of REFUSALS) {
    it(`${name} are ${kind}, in words that say what to do and not the value`, async () => {
      const answer = (await attempt()) as { kind: string; message: string };
      assert.equal(answer.kind, kind);
      assert.match(answer.message, words);
      assert.doesNotMatch(JSON.stringify(answer), new RegExp(VALUE));
    });
  }

  it("are asked for by name only, and again each time", async () => {
    const { proxy, client } = await kube.throughProxy();
    try {
      const secrets = new KubeSecrets(client);
      for (let i = 0; i < 2; i++) await secrets.get(NAMESPACE, { name: "good", key: "key" }, HOST);
      const path = "/api/v1/namespaces/secrets/secrets/good";
      assert.deepEqual(
        proxy.requests.map(({ method, url }) => [method, url]),
        [
          ["GET", path],
          ["GET", path],
        ],
      );
    } finally {
      await client.close();
      await proxy.close();
    }
  });

  it("cannot be told while the server is away: that is no answer", async () => {
    const { proxy, client } = await kube.throughProxy();
    try {
      proxy.fault = () => ({ kind: "status", code: 503 });
      const attempt = new KubeSecrets(client).get(NAMESPACE, { name: "good", key: "key" }, HOST);
      await assert.rejects(attempt, (error: unknown) => isPawlError(error, "transient"));
    } finally {
      await client.close();
      await proxy.close();
    }
  });
});
