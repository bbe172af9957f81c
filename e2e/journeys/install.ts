/** What the charts put into a cluster: pods that pass `restricted`, rights, networks. */
import assert from "node:assert/strict";
import { AGENTS, type Pawl, SYSTEM } from "../support/pawl.ts";

const CONNECT = `
  import { connect } from "node:net";
  const [host, port] = process.argv.slice(1);
  const socket = connect({ host, port: Number(port) });
  const end = (word) => { console.log(word); process.exit(0); };
  setTimeout(() => end("silence"), 3000);
  socket.on("connect", () => end("open")).on("error", (error) => end(error.code));`;

const FETCH = `
  const answer = await fetch("http://127.0.0.1:8080" + process.argv[1]);
  console.log(answer.status, (await answer.text()).trim());`;

export function installJourneys(pawl: () => Pawl): void {
  const reach = (namespace: string, from: string, host: string, port: number) =>
    pawl().node(namespace, from, CONNECT, host, String(port));
  const can = async (role: string, ...what: string[]) => {
    const as = `--as=system:serviceaccount:${SYSTEM}:pawl-${role}`;
    return (await pawl().kubectl.try(["auth", "can-i", as, ...what])).stdout.trim();
  };

  describe("an install", () => {
    it("runs under Pod Security restricted, without a warning", async () => {
      const label = "pod-security.kubernetes.io/enforce=restricted";
      const check = ["label", "--dry-run=server", "--overwrite", "namespace", SYSTEM, AGENTS, label];
      const { stderr } = await pawl().kubectl.try(check);
      assert.doesNotMatch(stderr, /Warning/);
      const namespace = await pawl().kubectl.get("namespace", SYSTEM);
      const labels = namespace?.metadata["labels"] as Record<string, string>;
      assert.equal(labels["pod-security.kubernetes.io/enforce"], "restricted");
    });

    for (const role of ["controller", "worker"]) {
      it(`answers /healthz, /readyz and /metrics in the ${role}`, async () => {
        const ask = (path: string) => pawl().node(SYSTEM, `deploy/pawl-${role}`, FETCH, path);
        assert.equal(await ask("/healthz"), "200 ok");
        assert.equal(await ask("/readyz"), "200 ok");
        assert.match(await ask("/metrics"), /^200 [^]*\npawl_/);
      });
    }

    it("gives the controller no Secret and the worker those of the agents' namespaces, by name", async () => {
      assert.equal(await can("controller", "get", "secrets", "-n", AGENTS), "no");
      assert.equal(await can("controller", "get", "secrets", "-n", SYSTEM), "no");
      assert.equal(await can("controller", "patch", "runs.pawl.dev", "-n", AGENTS), "no");
      assert.equal(await can("controller", "patch", "runs.pawl.dev", "--subresource=status", "-n", AGENTS), "yes");
      assert.equal(await can("worker", "get", "secrets", "-n", AGENTS), "yes");
      assert.equal(await can("worker", "list", "secrets", "-n", AGENTS), "no");
      assert.equal(await can("worker", "get", "secrets", "-n", SYSTEM), "no");
      assert.equal(await can("worker", "get", "secrets", "-n", "kube-system"), "no");
      assert.equal(await can("worker", "get", "runs.pawl.dev", "-n", AGENTS), "no");
    });

    it("lets its own pods alone reach the database", async () => {
      const host = `pawl-postgres.${SYSTEM}.svc`;
      assert.equal(await reach(SYSTEM, "deploy/pawl-controller", host, 5432), "open");
      assert.notEqual(await reach(AGENTS, "deploy/world", host, 5432), "open");
    });

    it("lets the worker out to what outbound names, and to no other private address", async () => {
      assert.equal(await reach(SYSTEM, "deploy/pawl-worker", `world.${AGENTS}`, 8080), "open");
      const selector = "-lapp.kubernetes.io/component=controller";
      const path = "jsonpath={.items[0].status.podIP}";
      const controller = await pawl().kubectl.run(["get", "pods", "-n", SYSTEM, selector, "-o", path]);
      assert.notEqual(await reach(SYSTEM, "deploy/pawl-worker", controller, 8080), "open");
      assert.notEqual(await reach(SYSTEM, "deploy/pawl-controller", `world.${AGENTS}`, 8080), "open");
    });
  });
}
