import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { FaultProxy } from "@pawl/fakes";
import { KubeClient } from "#kube/client.ts";
import { KubeError } from "#kube/errors.ts";
import { AGENTS, CONFIG_MAPS, type Resource, RUNS } from "#kube/resources.ts";
import { isPawlError } from "#rules/errors.ts";
import { type Cluster, cluster, eventually, makeNamespace } from "./support/cluster.ts";

const NAMESPACE = "client";
const WIDGETS: Resource = {
  group: "pawl.dev",
  version: "v1alpha1",
  plural: "widgets",
  kind: "Widget",
  namespaced: true,
};
const at = (name: string) => ({ namespace: NAMESPACE, name });
const configMap = (name: string, data: Record<string, string> = {}) => ({ metadata: at(name), data });

const failing = (kind: string, reason: string) => (error: unknown) => {
  assert.ok(isPawlError(error), String(error));
  assert.deepEqual([error.kind, error.reason], [kind, reason], error.message);
  return true;
};

describe("the Kubernetes client", function () {
  this.timeout(120_000);
  let kube: Cluster;

  before(async () => {
    kube = await cluster();
    await makeNamespace(NAMESPACE);
  });

  describe("reading", () => {
    it("gives objects as they are", async () => {
      await kube.admin.create(CONFIG_MAPS, configMap("one", { a: "b" }));
      const read = await kube.admin.get(CONFIG_MAPS, at("one"));
      assert.deepEqual(read.found && read.object["data"], { a: "b" });
    });

    it("tells an object that is not there from a kind that is not served", async () => {
      const missing = async (of: Resource) => {
        const read = await kube.admin.get(of, at("never"));
        return read.found ? "found" : read.missing;
      };
      assert.deepEqual(
        [await missing(CONFIG_MAPS), await missing(RUNS), await missing(WIDGETS)],
        ["object", "object", "type"],
      );
    });

    it("pages through a collection", async () => {
      for (let i = 0; i < 5; i++)
        await kube.admin.create(CONFIG_MAPS, { metadata: { ...at(`paged-${i}`), labels: { paged: "yes" } } });
      const selection = { namespace: NAMESPACE, labelSelector: "paged=yes" };
      const first = await kube.admin.listPage(CONFIG_MAPS, selection, { limit: 3 });
      const second = await kube.admin.listPage(CONFIG_MAPS, selection, { limit: 3, continue: first.continue });
      assert.deepEqual([first.items.length, second.items.length, second.continue], [3, 2, undefined]);
      assert.equal(first.resourceVersion, second.resourceVersion);
      assert.equal((await kube.admin.list(CONFIG_MAPS, selection)).length, 5);
    });

    it("knows the server's clock to the second, and the cluster by its UID", async () => {
      const before = Date.now();
      const time = (await kube.admin.serverTime()).getTime();
      assert.ok(time >= before - 2_000 && time <= Date.now() + 1_000, `${time} is not about ${before}`);
      assert.equal(time % 1_000, 0);
      const uid = await eventually("kube-system", async () => await kube.admin.kubeSystemUid().catch(() => undefined));
      assert.match(uid, /^[0-9a-f-]{36}$/);
      assert.equal(await kube.admin.kubeSystemUid(), uid);
    });
  });

  describe("writing", () => {
    it("refuses a field that the kind does not have", async () => {
      const object = { metadata: at("strict"), spec: { instructions: "x", typo: 1 } };
      await assert.rejects(kube.admin.create(AGENTS, object), failing("terminal", "BadRequest"));
      // The server calls this one an internal error; it is refused all the same.
      await assert.rejects(kube.admin.apply(AGENTS, object), /spec\.typo: field not declared in schema/);
    });

    it("names what is taken, what is invalid and where, and what is not there", async () => {
      await kube.admin.create(CONFIG_MAPS, configMap("taken"));
      await assert.rejects(kube.admin.create(CONFIG_MAPS, configMap("taken")), failing("conflict", "AlreadyExists"));
      await assert.rejects(
        kube.admin.create(AGENTS, { metadata: at("bad"), spec: { instructions: "" } }),
        (error: unknown) => {
          assert.ok(error instanceof KubeError);
          assert.deepEqual([error.kind, error.code, error.causes[0]?.field], ["terminal", 422, "spec.instructions"]);
          return true;
        },
      );
      await assert.rejects(
        kube.admin.create(CONFIG_MAPS, { metadata: { namespace: "nowhere", name: "x" } }),
        failing("terminal", "NotFound"),
      );
    });

    it("applies with a uid only to the object that has it, and creates nothing", async () => {
      const { metadata } = await kube.admin.create(CONFIG_MAPS, configMap("owned"));
      const apply = (name: string, uid: string) =>
        kube.admin.apply(CONFIG_MAPS, { metadata: { ...at(name), uid }, data: { a: "b" } });
      await apply("owned", metadata.uid ?? "");
      await assert.rejects(apply("owned", "0190a8b0-0000-7000-8000-000000000001"), (error: unknown) =>
        isPawlError(error),
      );
      await assert.rejects(apply("unborn", "0190a8b0-0000-7000-8000-000000000001"), (error: unknown) =>
        isPawlError(error, "conflict"),
      );
      assert.equal((await kube.admin.get(CONFIG_MAPS, at("unborn"))).found, false);
    });

    it("deletes the object meant and no other of that name", async () => {
      const { metadata } = await kube.admin.create(CONFIG_MAPS, configMap("doomed"));
      const remove = (uid: string) => kube.admin.delete(CONFIG_MAPS, at("doomed"), { uid });
      await assert.rejects(remove("0190a8b0-0000-7000-8000-000000000001"), failing("conflict", "Conflict"));
      assert.equal(await remove(metadata.uid ?? ""), "deleted");
      assert.equal(await remove(metadata.uid ?? ""), "gone");
    });

    it("tries out without leaving anything behind", async () => {
      await kube.admin.create(CONFIG_MAPS, configMap("dry"), { dryRun: true });
      assert.equal((await kube.admin.get(CONFIG_MAPS, at("dry"))).found, false);
    });
  });

  describe("through a bad connection", () => {
    let proxy: FaultProxy;
    let client: KubeClient;
    beforeEach(async () => {
      ({ proxy, client } = await kube.throughProxy({ timeoutMs: 300 }));
    });
    afterEach(async () => {
      await client.close();
      await proxy.close();
    });

    const CLASSES: readonly (readonly [number, string, string])[] = [
      [400, "terminal", "BadRequest"],
      [401, "transient", "Unauthorized"],
      [403, "terminal", "Forbidden"],
      [405, "terminal", "MethodNotAllowed"],
      [409, "conflict", "Conflict"],
      [410, "conflict", "Expired"],
      [413, "terminal", "RequestEntityTooLarge"],
      [422, "terminal", "Invalid"],
      [429, "transient", "TooManyRequests"],
      [500, "transient", "InternalError"],
      [502, "transient", "BadGateway"],
      [503, "transient", "ServiceUnavailable"],
      [504, "transient", "Timeout"],
      [418, "terminal", "HTTP418"],
    ];
    for (const [code, kind, reason] of CLASSES) {
      it(`takes ${code} for ${kind}`, async () => {
        proxy.fault = () => ({ kind: "status", code });
        await assert.rejects(client.get(CONFIG_MAPS, at("one")), failing(kind, reason));
      });
    }

    it("waits as long as the server says, and no longer than a minute", async () => {
      for (const [asked, ms] of [
        [7, 7_000],
        [86_400, 60_000],
      ] as const) {
        proxy.fault = () => ({ kind: "status", code: 429, retryAfter: asked });
        await assert.rejects(
          client.get(CONFIG_MAPS, at("one")),
          (error: unknown) => isPawlError(error) && error.retryAfterMs === ms,
        );
      }
    });

    it("does not believe a 404 that is not about the object", async () => {
      proxy.fault = () => ({ kind: "status", code: 404 });
      const read = await client.get(CONFIG_MAPS, at("one"));
      assert.equal(!read.found && read.missing, "type");
    });

    it("does not believe a success that is not an object", async () => {
      for (const body of [undefined, "<html>", [], null]) {
        proxy.fault = () => ({ kind: "status", code: 200, ...(body === undefined ? {} : { body }) });
        await assert.rejects(client.get(CONFIG_MAPS, at("one")), failing("transient", "AnswerMalformed"));
        await assert.rejects(client.list(CONFIG_MAPS), (error: unknown) => isPawlError(error, "transient"));
      }
    });

    it("gives a server that says nothing up in time", async () => {
      proxy.fault = () => ({ kind: "hang" });
      await assert.rejects(client.get(CONFIG_MAPS, at("one")), failing("transient", "Timeout"));
    });

    it("stops when it is told to, before and during a request", async () => {
      proxy.fault = () => ({ kind: "hang" });
      const stop = new AbortController();
      const asked = proxy.next();
      const reading = client.get(CONFIG_MAPS, at("one"), { signal: stop.signal });
      await asked;
      stop.abort();
      await assert.rejects(reading, failing("cancelled", "Cancelled"));
      await assert.rejects(
        client.get(CONFIG_MAPS, at("one"), { signal: stop.signal }),
        failing("cancelled", "Cancelled"),
      );
    });

    it("takes a cut connection for no answer", async () => {
      proxy.fault = () => ({ kind: "reset" });
      await assert.rejects(client.get(CONFIG_MAPS, at("one")), failing("transient", "Unreachable"));
    });

    it("finds what a lost answer has left: the name is taken, by us", async () => {
      proxy.fault = () => ({ kind: "swallow" });
      await assert.rejects(client.create(CONFIG_MAPS, configMap("lost")), (error: unknown) =>
        isPawlError(error, "transient"),
      );
      proxy.fault = () => ({ kind: "pass" });
      await assert.rejects(client.create(CONFIG_MAPS, configMap("lost")), failing("conflict", "AlreadyExists"));
    });

    it("uses its connections again instead of opening one per request", async () => {
      for (let i = 0; i < 30; i++) await client.get(CONFIG_MAPS, at("one"));
      // A request may come before the connection of the one before it is free again.
      assert.ok(proxy.connections <= 2, `${proxy.connections} connections`);
    });

    it("finds nobody at a closed port, and says so", async () => {
      await proxy.close();
      await assert.rejects(
        client.get(CONFIG_MAPS, at("one")),
        (error: unknown) => failing("transient", "Unreachable")(error) && /ECONNREFUSED/.test((error as Error).message),
      );
      // For afterEach.
      ({ proxy } = await kube.throughProxy());
    });
  });

  describe("credentials", () => {
    it("are read again after they were refused: a rotated token is used by the next request", async () => {
      const seen: string[] = [];
      const server = createServer((request, response) => {
        seen.push(request.headers.authorization ?? "");
        response.writeHead(seen.length === 1 ? 401 : 200, { "content-type": "application/json" });
        response.end(JSON.stringify(seen.length === 1 ? {} : { metadata: { name: "x" } }));
      });
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      const token = join(kube.plane.folder, "token");
      const kubeconfig = join(kube.plane.folder, "token.kubeconfig");
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const config = {
        apiVersion: "v1",
        kind: "Config",
        clusters: [{ name: "c", cluster: { server: url, "insecure-skip-tls-verify": true } }],
        users: [{ name: "u", user: { "auth-provider": { name: "tokenFile", config: { tokenFile: token } } } }],
        contexts: [{ name: "x", context: { cluster: "c", user: "u", namespace: "here" } }],
        "current-context": "x",
      };
      writeFileSync(kubeconfig, JSON.stringify(config));
      writeFileSync(token, "old");
      const client = KubeClient.connect({ from: { kubeconfig } });
      try {
        assert.equal(client.namespace, "here");
        await assert.rejects(client.get(CONFIG_MAPS, at("one")), failing("transient", "Unauthorized"));
        writeFileSync(token, "new");
        await client.get(CONFIG_MAPS, at("one"));
        assert.deepEqual(seen, ["Bearer old", "Bearer new"]);
      } finally {
        await client.close();
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
      }
    });

    it("that are not there are named", () => {
      assert.throws(
        () => KubeClient.connect({ from: { kubeconfig: "/nowhere/config" } }),
        failing("terminal", "KubeconfigUnreadable"),
      );
      assert.throws(
        () => KubeClient.connect({ from: { kubeconfig: kube.plane.kubeconfig, context: "other" } }),
        (error: unknown) => failing("terminal", "ContextUnknown")(error) && /it has: /.test((error as Error).message),
      );
    });

    it("of another user are used with his rights only", async () => {
      await assert.rejects(kube.as("nobody").get(CONFIG_MAPS, at("one")), failing("terminal", "Forbidden"));
    });
  });
});
