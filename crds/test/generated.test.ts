import assert from "node:assert/strict";
import {
  AGENT,
  admissionPolicies,
  customResourceDefinition,
  DECISION,
  isFinalPhase,
  KINDS,
  parseDuration,
  RUN,
  RUN_PHASES,
  setCondition,
  type Condition,
} from "@pawl/crds";
import { parse } from "yaml";
import { chartFiles, staleFiles } from "../src/generate.ts";

describe("the generated chart", () => {
  it("is committed as the schemas say", () => {
    assert.deepEqual(staleFiles(), []);
  });

  it("holds CRDs that read back, also as YAML 1.1, as what was written", () => {
    for (const kind of KINDS) {
      const text = chartFiles().get(`${kind.plural}.pawl.dev.yaml`) ?? "";
      assert.deepEqual(parse(text, { version: "1.1" }), customResourceDefinition(kind));
      assert.deepEqual(parse(text, { version: "1.2" }), customResourceDefinition(kind));
    }
  });

  it("keeps each CRD well below what kubectl apply can carry", () => {
    for (const kind of KINDS) assert.ok(JSON.stringify(customResourceDefinition(kind)).length < 128 * 1024, kind.kind);
  });

  it("leaves one question to Helm in the policies: who the controller is", () => {
    for (const [path, text] of chartFiles()) {
      const asked = [...text.matchAll(/\{\{-? ?(.*?) ?-?\}\}/g)].map(([, inner]) => inner);
      const allowed = [
        'include "pawl-crds.controllerUsername" .',
        'if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"',
        "end",
      ];
      assert.deepEqual(
        asked.filter((one) => !allowed.includes(one ?? "")),
        [],
        path,
      );
    }
  });

  it("says the controller's name in every policy that spares it", () => {
    const text = JSON.stringify(admissionPolicies({ controllerUsername: "system:serviceaccount:ns:pawl" }));
    assert.equal(text.match(/system:serviceaccount:ns:pawl/g)?.length, 4);
    assert.ok(!text.includes("{{"));
  });

  it("leaves out the mutating policy where it is not served", () => {
    const kinds = (mutating: boolean) =>
      admissionPolicies({ controllerUsername: "x", mutating }).map(({ kind }) => kind);
    assert.ok(kinds(true).includes("MutatingAdmissionPolicy"));
    assert.ok(!kinds(false).includes("MutatingAdmissionPolicy"));
  });

  it("gives every kind the category pawl and their short names", () => {
    const names = [AGENT, RUN, DECISION].map(
      (kind) => (customResourceDefinition(kind)["spec"] as { names: Record<string, unknown> }).names,
    );
    assert.deepEqual(
      names.map(({ categories, shortNames }) => [categories, shortNames]),
      [
        [["pawl"], ["ag"]],
        [["pawl"], ["pawlrun"]],
        [["pawl"], ["pawldecision"]],
      ],
    );
  });
});

/** Paths of every field of an Agent that names a Secret, `[]` standing for "each item". */
function secretPaths(schema: unknown, path: string): string[] {
  const { properties, items } = schema as { properties?: Record<string, unknown>; items?: unknown };
  if (items !== undefined) return secretPaths(items, `${path}[]`);
  return Object.entries(properties ?? {}).flatMap(([name, field]) =>
    /(secret|githubApp)Ref$/i.test(name) ? [`${path}.${name}`] : secretPaths(field, `${path}.${name}`),
  );
}

describe("the policy agent-secrets", () => {
  it("knows every field of an Agent that names a Secret: a new one belongs into it and into this list", () => {
    const { versions } = customResourceDefinition(AGENT)["spec"] as unknown as {
      versions: { schema: { openAPIV3Schema: { properties: { spec: unknown } } } }[];
    };
    assert.deepEqual(secretPaths(versions[0]?.schema.openAPIV3Schema.properties.spec, "").sort(), [
      ".connectors.slack.secretRef",
      ".models.fast.apiKeySecretRef",
      ".models.primary.apiKeySecretRef",
      ".tools.mcpServers[].headers[].secretRef",
      ".workspace.egress[].credential.githubAppRef",
      ".workspace.egress[].credential.secretRef",
      ".workspace.grants[].secretRef",
    ]);
  });
});

describe("the words of the API", () => {
  it("durations are read in milliseconds", () => {
    assert.deepEqual(
      ["250ms", "2s", "90s", "1h30m", "24h"].map(parseDuration),
      [250, 2_000, 90_000, 5_400_000, 86_400_000],
    );
    for (const text of ["", "1", "s", "1 s", "1d", "-1s"]) assert.throws(() => parseDuration(text), RangeError, text);
  });

  it("Folded is no end: somebody else still answers", () => {
    assert.deepEqual(RUN_PHASES.filter(isFinalPhase), ["Succeeded", "Failed", "Cancelled", "BudgetExhausted"]);
  });

  it("a condition's time moves only when its status does", () => {
    const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second));
    const base = { type: "Ready" as const, reason: "A", message: "a" };
    const first = setCondition([], { ...base, status: "False", observedGeneration: 1 }, at(1));
    const second = setCondition(first, { ...base, status: "False", reason: "B", observedGeneration: 2 }, at(2));
    const third = setCondition(second, { ...base, status: "True", observedGeneration: 2 }, at(3));
    const read = ([one]: readonly Condition[]) => [one?.lastTransitionTime, one?.reason, one?.observedGeneration];
    assert.deepEqual(read(first), ["2026-01-01T00:00:01Z", "A", 1]);
    assert.deepEqual(read(second), ["2026-01-01T00:00:01Z", "B", 2]);
    assert.deepEqual(read(third), ["2026-01-01T00:00:03Z", "A", 2]);
    assert.equal(third.length, 1);
  });
});
