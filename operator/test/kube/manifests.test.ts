import assert from "node:assert/strict";
import { AGENTS, DECISIONS, RUNS } from "#kube/resources.ts";
import { type Case, CASES, OWN_CASES } from "../../../crds/test/cases.ts";
import { type Cluster, cluster, CONTROLLER, makeNamespace } from "./support/cluster.ts";

const NAMESPACE = "manifests";
const manifest = (kind: string, name: string, spec: unknown) => ({
  apiVersion: "pawl.dev/v1alpha1",
  kind,
  metadata: { name, namespace: NAMESPACE },
  spec,
});

describe("manifests, as kubectl users meet them", function () {
  this.timeout(120_000);
  let kube: Cluster;

  before(async () => {
    kube = await cluster();
    await makeNamespace(NAMESPACE);
  });

  const check = (cases: readonly Case[], prefix: string, as: readonly string[]) => {
    for (const [index, { name, kind, spec, before: earlier, refused }] of cases.entries()) {
      it(`a${kind === "Agent" ? "n" : ""} ${kind} ${name}`, async () => {
        const object = `${prefix}-${index}`;
        if (earlier !== undefined) {
          const of = { Agent: AGENTS, Run: RUNS, Decision: DECISIONS }[kind];
          await kube.admin.create(of, manifest(kind, object, earlier));
        }
        // replace, not apply: the manifest is the whole of the new object.
        const verb = earlier === undefined ? "create" : "replace";
        const said = await kube.kubectl([verb, ...as, "-f", "-"], manifest(kind, object, spec));
        if (refused === undefined)
          assert.deepEqual([said.code, said.text.trim()], [0, `${kind.toLowerCase()}.pawl.dev/${object} ${verb}d`]);
        else {
          assert.notEqual(said.code, 0, `was accepted: ${said.text}`);
          assert.match(said.text, refused.server);
        }
      });
    }
  };

  check(CASES, "case", []);

  describe("written by Pawl's own account", () => {
    check(OWN_CASES, "own", ["--as", CONTROLLER, "--as-group", "system:masters"]);
  });

  it("an Agent written once reads back with nothing added to it", async () => {
    const spec = { instructions: "Answer briefly." };
    await kube.admin.create(AGENTS, manifest("Agent", "plain", spec));
    const read = await kube.admin.get(AGENTS, { namespace: NAMESPACE, name: "plain" });
    assert.deepEqual(read.found && read.object["spec"], spec);
  });

  it("kubectl explain describes every field down to the last", async () => {
    for (const path of ["run.spec", "run.status", "agent.spec", "agent.status", "decision.spec", "decision.status"]) {
      const said = await kube.kubectl(["explain", path, "--recursive=false", "--api-version=pawl.dev/v1alpha1"]);
      assert.equal(said.code, 0, said.text);
      assert.doesNotMatch(said.text, /<no description>/, path);
    }
    const said = await kube.kubectl(["explain", "run.spec.input.text"]);
    assert.match(said.text, /What the agent is asked\./);
  });

  it("every kind answers to their short names and to the category", async () => {
    for (const name of ["ag", "pawlrun", "pawldecision", "pawl", "runs.pawl.dev"]) {
      const said = await kube.kubectl(["get", name, "-n", NAMESPACE]);
      assert.equal(said.code, 0, said.text);
    }
  });
});
