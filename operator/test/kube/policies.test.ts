import assert from "node:assert/strict";
import type { KubeClient } from "#kube/client.ts";
import { KubeError } from "#kube/errors.ts";
import { AGENTS, type KubeObject, type Resource, RUNS, SECRETS } from "#kube/resources.ts";
import { type Cluster, cluster, CONTROLLER, eventually, makeNamespace } from "./support/cluster.ts";

const NAMESPACE = "policies";
const rbac = (plural: string, kind: string): Resource => ({
  group: "rbac.authorization.k8s.io",
  version: "v1",
  plural,
  kind,
  namespaced: true,
});

const run = (name: string, spec: Record<string, unknown> = {}, metadata: Record<string, unknown> = {}) => ({
  metadata: { name, namespace: NAMESPACE, ...metadata },
  spec: { agentRef: { name: "helper" }, input: { text: "Hello?" }, ...spec },
});
const agent = (name: string, spec: Record<string, unknown> = {}, metadata: Record<string, unknown> = {}) => ({
  metadata: { name, namespace: NAMESPACE, ...metadata },
  spec: { instructions: "Answer briefly.", ...spec },
});
const model = (secret: string) => ({
  models: { primary: { baseURL: "https://x.example.com", model: "m", apiKeySecretRef: { name: secret, key: "k" } } },
});

/** `users` may do `verbs` on what is named. */
async function grant(
  admin: KubeClient,
  name: string,
  users: readonly string[],
  rules: readonly Record<string, unknown>[],
): Promise<void> {
  await admin.create(rbac("roles", "Role"), { metadata: { name, namespace: NAMESPACE }, rules });
  await admin.create(rbac("rolebindings", "RoleBinding"), {
    metadata: { name, namespace: NAMESPACE },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
    subjects: users.map((user) => ({ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: user })),
  });
}

/** Must be refused by a policy, with these words. */
async function refusedBy(policy: string, words: RegExp, attempt: Promise<unknown>): Promise<void> {
  await assert.rejects(attempt, (error: unknown) => {
    assert.ok(error instanceof KubeError, String(error));
    assert.deepEqual([error.code, error.kind], [403, "terminal"], error.message);
    assert.match(error.message, new RegExp(`pawl-${policy}`));
    assert.match(error.message, words);
    return true;
  });
}

describe("admission policies", function () {
  this.timeout(120_000);
  let kube: Cluster;
  let alice: KubeClient;
  let bob: KubeClient;
  let controller: KubeClient;

  before(async () => {
    kube = await cluster();
    await makeNamespace(NAMESPACE);
    [alice, bob, controller] = [kube.as("alice"), kube.as("bob"), kube.as(CONTROLLER)];
    const all = ["get", "list", "create", "update", "patch", "delete"];
    await grant(
      kube.admin,
      "people",
      ["alice", "bob", CONTROLLER],
      [{ apiGroups: ["pawl.dev"], resources: ["agents", "runs"], verbs: all }],
    );
    await grant(
      kube.admin,
      "alices-secrets",
      ["alice"],
      [
        {
          apiGroups: [""],
          resources: ["secrets"],
          verbs: ["get"],
          resourceNames: ["shared", ...Array.from({ length: 25 }, (_, i) => `s${i}`)],
        },
      ],
    );
    // Policies come into force a moment after they are written, each on its own.
    const inForce = async (attempt: () => Promise<unknown>): Promise<true | undefined> =>
      await attempt().then(
        () => undefined,
        (error: unknown) => (/pawl-/.test(String(error)) ? true : undefined),
      );
    const probe = { dryRun: true };
    await eventually("defaults", async () => {
      const made = await alice.create(RUNS, run("probe"), probe).catch(() => undefined);
      return (made?.["spec"] as { input: { actor?: string } } | undefined)?.input.actor === "alice" ? true : undefined;
    });
    await eventually("run-actor", () =>
      inForce(() => alice.create(RUNS, run("probe", { input: { text: "x", actor: "eve" } }), probe)),
    );
    await eventually("run-cancel", () =>
      inForce(() => alice.create(RUNS, run("probe", { cancel: { actor: "eve" } }), probe)),
    );
    await eventually("agent-secrets", () =>
      inForce(() => alice.create(AGENTS, agent("probe", model("nobodys")), probe)),
    );
    await eventually("reserved-labels", () =>
      inForce(() => alice.create(AGENTS, agent("probe", {}, { labels: { "pawl.dev/x": "y" } }), probe)),
    );
  });

  const specOf = (object: KubeObject) =>
    object["spec"] as { input?: { actor?: string }; cancel?: { actor?: string; reason?: string } };

  describe("the actor of a Run", () => {
    it("is filled in with the user who creates it", async () => {
      assert.equal(specOf(await alice.create(RUNS, run("filled"))).input?.actor, "alice");
    });

    it("may be given, when it is the user who creates it", async () => {
      assert.equal(
        specOf(await alice.create(RUNS, run("given", { input: { text: "x", actor: "alice" } }))).input?.actor,
        "alice",
      );
    });

    it("cannot be somebody else, and the refusal says who it must be", async () => {
      await refusedBy(
        "run-actor",
        /spec\.input\.actor must be alice, the user who creates the Run, not bob/,
        alice.create(RUNS, run("claimed", { input: { text: "x", actor: "bob" } })),
      );
    });

    it("cannot be somebody else for a cluster administrator either", async () => {
      await refusedBy(
        "run-actor",
        /must be admin/,
        kube.admin.create(RUNS, run("claimed", { input: { text: "x", actor: "alice" } })),
      );
    });

    it("reads well in kubectl", async () => {
      const manifest = {
        apiVersion: "pawl.dev/v1alpha1",
        kind: "Run",
        ...run("claimed", { input: { text: "x", actor: "bob" } }),
      };
      const said = await kube.kubectl(["create", "--as", "alice", "-f", "-"], manifest);
      assert.equal(said.code, 1);
      assert.match(
        said.text,
        /pawl-run-actor.*denied request: spec\.input\.actor must be alice.*write that name, or leave it out/,
      );
    });

    it("stays when the same manifest, which names nobody, is applied again, by whoever and in either way", async () => {
      const manifest = { apiVersion: "pawl.dev/v1alpha1", kind: "Run", ...run("applied") };
      for (const [as, more] of [
        ["alice", []],
        ["alice", []],
        ["bob", []],
        ["bob", ["--server-side", "--force-conflicts"]],
        ["alice", ["--server-side", "--force-conflicts"]],
      ] as const) {
        const said = await kube.kubectl(["apply", "--as", as, ...more, "-f", "-"], manifest);
        assert.equal(said.code, 0, said.text);
      }
      const read = await kube.admin.get(RUNS, { namespace: NAMESPACE, name: "applied" });
      assert.equal(read.found && specOf(read.object).input?.actor, "alice");
    });

    it("cannot be changed by an update", async () => {
      await alice.create(RUNS, run("fixed"));
      const patch = bob.merge(RUNS, { namespace: NAMESPACE, name: "fixed" }, { spec: { input: { actor: "bob" } } });
      await assert.rejects(patch, /apply a new Run under another name/);
    });
  });

  describe("a mirror", () => {
    const mirror = { agentRef: { name: "helper" }, mirror: { runID: "0190a8b0-0000-7000-8000-000000000001" } };

    it("is written by the controller's account", async () => {
      await controller.create(RUNS, {
        metadata: { name: "mirror", namespace: NAMESPACE, labels: { "pawl.dev/agent": "helper" } },
        spec: mirror,
      });
    });

    it("is refused to everybody else, administrators included", async () => {
      for (const client of [alice, kube.admin]) {
        await refusedBy(
          "run-actor",
          /mirror is written by Pawl only/,
          client.create(RUNS, { metadata: { name: "forged", namespace: NAMESPACE }, spec: mirror }),
        );
      }
    });

    it("is refused to the same account name in another namespace", async () => {
      await grant(
        kube.admin,
        "other",
        ["system:serviceaccount:other:pawl-controller"],
        [{ apiGroups: ["pawl.dev"], resources: ["runs"], verbs: ["create"] }],
      );
      const other = kube.as("system:serviceaccount:other:pawl-controller");
      await refusedBy(
        "run-actor",
        /mirror/,
        other.create(RUNS, { metadata: { name: "forged", namespace: NAMESPACE }, spec: mirror }),
      );
    });
  });

  describe("cancelling", () => {
    const cancel = (client: KubeClient, name: string, value: unknown) =>
      client.merge(RUNS, { namespace: NAMESPACE, name }, { spec: { cancel: value } });

    it("is signed with the name of the user who does it", async () => {
      await alice.create(RUNS, run("cancelled"));
      assert.deepEqual(specOf(await cancel(bob, "cancelled", { reason: "wrong one" })).cancel, {
        actor: "bob",
        reason: "wrong one",
      });
    });

    it("cannot be signed with another name", async () => {
      await alice.create(RUNS, run("framed"));
      await refusedBy(
        "run-cancel",
        /spec\.cancel\.actor must be bob, the user who cancels the Run, not alice/,
        cancel(bob, "framed", { actor: "alice" }),
      );
    });

    it("takes place once: no second signature, no taking back, no new reason", async () => {
      await alice.create(RUNS, run("once"));
      await cancel(alice, "once", {});
      for (const value of [{ actor: "bob" }, { reason: "later" }, null]) {
        await assert.rejects(cancel(bob, "once", value), /cancel is set once/);
      }
      const read = await kube.admin.get(RUNS, { namespace: NAMESPACE, name: "once" });
      assert.deepEqual(read.found && specOf(read.object).cancel, { actor: "alice" });
    });

    it("stays when the manifest that cancelled is applied again without the name", async () => {
      const manifest = { apiVersion: "pawl.dev/v1alpha1", kind: "Run", ...run("twice", { cancel: { reason: "x" } }) };
      for (const as of ["alice", "bob"]) {
        const said = await kube.kubectl(
          ["apply", "--as", as, "--server-side", "--force-conflicts", "-f", "-"],
          manifest,
        );
        assert.equal(said.code, 0, said.text);
      }
      const read = await kube.admin.get(RUNS, { namespace: NAMESPACE, name: "twice" });
      assert.deepEqual(read.found && specOf(read.object).cancel, { actor: "alice", reason: "x" });
    });
  });

  describe("Secrets in an Agent", () => {
    const header = (name: string) => ({
      tools: {
        mcpServers: [
          { name: "m", url: "https://m.example.com", headers: [{ name: "A", secretRef: { name, key: "k" } }] },
        ],
      },
    });
    const egress = (credential: unknown) => ({
      workspace: { egress: [{ host: "h.example.com", paths: ["/"], credential }] },
    });
    /** Every place of an Agent that can name a Secret. */
    const places: Readonly<Record<string, (secret: string) => Record<string, unknown>>> = {
      "the model's key": model,
      "the fast model's key": (secret) => ({ models: { fast: model(secret).models.primary } }),
      "an MCP header": header,
      "the Slack app": (secret) => ({ connectors: { slack: { secretRef: { name: secret } } } }),
      "an egress credential": (secret) => egress({ secretRef: { name: secret, key: "k" }, as: "Bearer" }),
      "a GitHub App": (secret) => egress({ githubAppRef: { name: secret }, as: "Bearer" }),
      "a grant": (secret) => ({
        workspace: { grants: [{ name: "g", secretRef: { name: secret, key: "k" }, deliver: "Env" }] },
      }),
    };

    for (const [place, spec] of Object.entries(places)) {
      it(`may be named in ${place} by who may get them, and by nobody else`, async () => {
        await alice.create(AGENTS, agent("probe", spec("shared")), { dryRun: true });
        for (const [client, secret] of [
          [bob, "shared"],
          [alice, "private"],
        ] as const) {
          await refusedBy(
            "agent-secrets",
            new RegExp(`the Agent names Secret ${secret}, which \\w+ may not get in namespace policies`),
            client.create(AGENTS, agent("probe", spec(secret)), { dryRun: true }),
          );
        }
      });
    }

    it("are all looked at, also the last of many", async () => {
      const many = (names: readonly string[]) => ({
        workspace: {
          grants: names
            .slice(0, 16)
            .map((name, i) => ({ name: `g${i}`, secretRef: { name, key: "k" }, deliver: "Env" })),
        },
        tools: {
          mcpServers: names.slice(16).map((name, i) => ({
            name: `m${i}`,
            url: "https://m.example.com",
            headers: [{ name: "A", secretRef: { name, key: "k" } }],
          })),
        },
      });
      const names = Array.from({ length: 20 }, (_, i) => `s${i}`);
      await alice.create(AGENTS, agent("many", many(names)), { dryRun: true });
      for (const index of [0, 7, 15, 16, 19]) {
        const one = names.map((name, i) => (i === index ? "private" : name));
        await refusedBy(
          "agent-secrets",
          /names Secret private/,
          alice.create(AGENTS, agent("many", many(one)), { dryRun: true }),
        );
      }
      await refusedBy(
        "agent-secrets",
        /at most 20 different Secrets/,
        alice.create(AGENTS, agent("many", many([...names, "s20"])), { dryRun: true }),
      );
    });

    it("count once however often they are named", async () => {
      const headers = Array.from({ length: 8 }, (_, i) => ({
        name: `H${i}`,
        secretRef: { name: "shared", key: `k${i}` },
      }));
      const mcpServers = Array.from({ length: 5 }, (_, i) => ({
        name: `m${i}`,
        url: "https://m.example.com",
        headers,
      }));
      await alice.create(AGENTS, agent("often", { tools: { mcpServers } }), { dryRun: true });
    });

    it("are used by whoever changes the Agent: an update is looked at like a create", async () => {
      await alice.create(AGENTS, agent("alices", model("shared")));
      const ref = { namespace: NAMESPACE, name: "alices" };
      await refusedBy(
        "agent-secrets",
        /names Secret shared, which bob/,
        bob.merge(AGENTS, ref, { spec: { instructions: "Send it to me." } }),
      );
      await bob.merge(AGENTS, ref, { metadata: { labels: { team: "b" } } });
      await alice.merge(AGENTS, ref, { spec: { instructions: "Answer at length." } });
    });

    it("need not exist yet: the order of apply does not matter", async () => {
      const read = await kube.admin.get(SECRETS, { namespace: NAMESPACE, name: "shared" });
      assert.equal(read.found, false);
      await alice.create(AGENTS, agent("early", model("shared")));
    });
  });

  describe("labels and annotations under pawl.dev/", () => {
    for (const [resource, make] of [
      [AGENTS, agent],
      [RUNS, run],
    ] as const) {
      for (const field of ["labels", "annotations"]) {
        it(`are refused to people as ${field} of ${resource.plural}`, async () => {
          const object = make("labelled", {}, { [field]: { "pawl.dev/agent": "helper" } });
          await refusedBy("reserved-labels", /are Pawl's own.*use a prefix of yours/, alice.create(resource, object));
        });
      }
    }

    it("are open where they are documented, and everything else is free", async () => {
      const metadata = {
        annotations: { "pawl.dev/description": "for the demo", "example.com/x": "y" },
        labels: { "app.kubernetes.io/part-of": "x" },
      };
      await alice.create(AGENTS, agent("described", {}, metadata));
    });

    it("of Pawl's own objects may be neither changed nor taken away, and hinder no other change", async () => {
      await controller.create(RUNS, {
        metadata: { name: "owned", namespace: NAMESPACE, labels: { "pawl.dev/agent": "helper" } },
        spec: { agentRef: { name: "helper" }, mirror: { runID: "0190a8b0-0000-7000-8000-000000000002" } },
      });
      const ref = { namespace: NAMESPACE, name: "owned" };
      for (const value of ["other", null]) {
        await refusedBy(
          "reserved-labels",
          /Pawl's own/,
          alice.merge(RUNS, ref, { metadata: { labels: { "pawl.dev/agent": value } } }),
        );
      }
      await alice.merge(RUNS, ref, { metadata: { labels: { mine: "yes" } } });
      assert.equal(await alice.delete(RUNS, ref, {}), "deleted");
    });
  });
});
