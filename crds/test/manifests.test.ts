import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { AGENT, checkAgent, checkDecision, checkRun, notActedUpon } from "@pawl/crds";
import { parseAllDocuments } from "yaml";
import { CASES, OWN_CASES } from "./cases.ts";

const CHECK = { Agent: checkAgent, Run: checkRun, Decision: checkDecision };

const manifest = (kind: string, spec: unknown) => ({
  apiVersion: "pawl.dev/v1alpha1",
  kind,
  metadata: { name: "one" },
  spec,
});

describe("manifests, checked without a cluster", () => {
  for (const { name, kind, spec, before, refused } of [...CASES, ...OWN_CASES]) {
    it(`a${kind === "Agent" ? "n" : ""} ${kind} ${name}`, () => {
      const check = CHECK[kind];
      const checked = check(manifest(kind, spec), before === undefined ? undefined : manifest(kind, before));
      if (refused === undefined) {
        assert.deepEqual(checked.ok ? [] : checked.problems, []);
        return;
      }
      assert.equal(checked.ok, false, "must be refused");
      if (checked.ok) return;
      assert.match(checked.problems.map(({ path, message }) => `${path}: ${message}`).join("\n"), refused.ours);
    });
  }

  it("a manifest of another kind is refused by name", () => {
    const checked = checkRun({ apiVersion: "pawl.dev/v1", kind: "Run", metadata: { name: "x" }, spec: {} });
    assert.match(JSON.stringify(checked), /expected apiVersion: pawl\.dev\/v1alpha1 and kind: Run/);
  });

  it("a list is no manifest", () => {
    assert.equal(checkAgent([]).ok, false);
  });
});

describe("the samples", () => {
  const folder = join(import.meta.dirname, "..", "..", "samples");
  for (const file of readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".yaml"),
  )) {
    it(`in ${file} are valid, and say nothing that is not acted upon`, () => {
      const text = readFileSync(join(folder, file), "utf8").replace("HASH\n", `"${"0".repeat(64)}"\n`);
      const documents = parseAllDocuments(text, { version: "1.1" }).map(
        (one) => one.toJS() as { kind: keyof typeof CHECK },
      );
      assert.ok(documents.length > 0);
      for (const one of documents) {
        const checked = CHECK[one.kind](one);
        assert.deepEqual(checked.ok ? [] : checked.problems, []);
        if (checked.ok && one.kind === "Agent") {
          assert.deepEqual(notActedUpon(AGENT, checked.value), { refused: [], ignored: [] });
        }
      }
    });
  }
});

describe("fields that this version does not act upon", () => {
  it("are found by their paths, those whose neglect is dangerous apart", () => {
    const found = notActedUpon(AGENT, {
      instructions: "x",
      models: {
        primary: { baseURL: "https://x", model: "m", pricesUSDPerMTok: { input: 1, output: 1 } },
        fast: { baseURL: "https://x", model: "m" },
      },
      tools: {
        builtin: ["a"],
        requireApproval: ["*"],
        effects: [{ tool: "a", probe: { tool: "b" } }],
      },
      access: [{ name: "me" }],
      approvals: { routes: [], approvers: { users: ["bob"], slackUserGroups: ["S1"] } },
      budgets: { iterations: 1, maxCostUSD: 1 },
      interrupt: { midTurn: "Enqueue", whoInterrupts: "SameActorOnly" },
    });
    assert.deepEqual(found.refused, ["spec.access"]);
    assert.deepEqual(found.ignored, ["spec.approvals.routes", "spec.approvals.approvers.slackUserGroups"]);
  });

  it("are none in an Agent of instructions only", () => {
    assert.deepEqual(notActedUpon(AGENT, { instructions: "x" }), { refused: [], ignored: [] });
  });
});
