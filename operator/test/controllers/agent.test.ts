import assert from "node:assert/strict";
import { AGENT_REASONS, agentStatus, type AgentStatus } from "@pawl/crds";
import { accept, type AgentFacts, agentStatusOf } from "#controllers/agent/decide.ts";
import { mergedSpec } from "#controllers/agent/merge.ts";
import type { ControllerConfig } from "#controllers/config.ts";
import type { KubeObject } from "#kube/resources.ts";
import { agentObject, CONFIG, INSTALL, NOW } from "./support.ts";

const stored: AgentFacts = {
  generation: 1,
  refs: { generation: 1, reason: null, message: null },
  active: 2,
  queued: 1,
};
type Row = {
  readonly what: string;
  readonly object?: KubeObject;
  readonly config?: Partial<ControllerConfig>;
  readonly facts?: AgentFacts | null;
  /** Condition → status/reason. */
  readonly gives: Readonly<Record<"Accepted" | "ResolvedRefs" | "Ready", string>>;
  readonly says?: RegExp;
};
const notAccepted = (reason: string) => ({
  Accepted: `False/${reason}`,
  ResolvedRefs: "Unknown/Unchecked",
  Ready: "False/NotAccepted",
});

const TABLE: readonly Row[] = [
  {
    what: "everything is there",
    gives: { Accepted: "True/Accepted", ResolvedRefs: "True/Resolved", Ready: "True/Ready" },
  },
  {
    what: "no worker has tried the references",
    facts: { ...stored, refs: null },
    gives: { Accepted: "True/Accepted", ResolvedRefs: "Unknown/Unchecked", Ready: "Unknown/RefsNotResolved" },
  },
  {
    what: "the references of an older generation were found",
    facts: { ...stored, generation: 2 },
    gives: { Accepted: "True/Accepted", ResolvedRefs: "Unknown/Unchecked", Ready: "Unknown/RefsNotResolved" },
  },
  {
    what: "a Secret is missing",
    facts: { ...stored, refs: { generation: 1, reason: "SecretMissing", message: "there is no Secret model-key" } },
    gives: { Accepted: "True/Accepted", ResolvedRefs: "False/SecretMissing", Ready: "False/RefsNotResolved" },
    says: /SecretMissing: there is no Secret model-key/,
  },
  {
    what: "nobody names a model",
    config: { defaults: { interrupt: { whoInterrupts: "ThreadScoped" } } },
    gives: { Accepted: "True/Accepted", ResolvedRefs: "False/ModelMissing", Ready: "False/RefsNotResolved" },
    says: /set spec\.models\.primary/,
  },
  {
    what: "a mode needs a fast model and nobody names one",
    object: agentObject({ interrupt: { midTurn: "Amend" } }),
    gives: { Accepted: "True/Accepted", ResolvedRefs: "False/FastModelMissing", Ready: "False/RefsNotResolved" },
    says: /set spec\.models\.fast/,
  },
  {
    what: "a mode needs a fast model and the install has one that decides for every Agent",
    object: agentObject({ interrupt: { midTurn: "Preempt" } }),
    config: {
      defaults: {
        ...CONFIG.defaults,
        models: { ...CONFIG.defaults.models, decision: { baseURL: "http://model.test/v1", model: "tiny" } },
      },
    },
    gives: { Accepted: "True/Accepted", ResolvedRefs: "True/Resolved", Ready: "True/Ready" },
  },
  {
    what: "a limit of money has no prices to count with",
    object: agentObject({ budgets: { maxCostUSD: 0.5 } }),
    gives: { Accepted: "True/Accepted", ResolvedRefs: "False/PricesMissing", Ready: "False/RefsNotResolved" },
    says: /set spec\.models\.primary\.pricesUSDPerMTok/,
  },
  {
    what: "it is suspended",
    object: agentObject({ suspend: true }),
    gives: { Accepted: "True/Accepted", ResolvedRefs: "True/Resolved", Ready: "False/Suspended" },
  },
  {
    what: "its namespace is not served",
    object: agentObject({}, { namespace: "elsewhere" }),
    gives: notAccepted("NamespaceNotEnabled"),
    says: /add it to agentNamespaces/,
  },
  {
    what: "its spec is invalid",
    object: agentObject({ instructions: 7 }),
    gives: notAccepted("Invalid"),
    says: /spec\.instructions/,
  },
  {
    what: "it asks for what ignoring would weaken",
    object: agentObject({ access: [{ name: "team" }] }),
    gives: notAccepted("NotSupportedYet"),
    says: /spec\.access/,
  },
  {
    what: "it asks for more than the install allows",
    object: agentObject({ budgets: { wallClock: "3h" } }),
    config: { ceilings: { wallClock: "90m" } },
    gives: notAccepted("OverCeiling"),
    says: /spec\.budgets\.wallClock is 3h, at most 90m/,
  },
  {
    what: "nobody says who may interrupt",
    config: { defaults: {} },
    gives: notAccepted("InterruptPolicyMissing"),
    says: /set spec\.interrupt\.whoInterrupts/,
  },
  {
    what: "the install's defaults are wrong",
    config: {
      defaults: {
        models: { primary: { baseURL: "nonsense", model: "m" } },
        interrupt: { whoInterrupts: "ThreadScoped" },
      },
    },
    gives: notAccepted("Invalid"),
    says: /install's defaults are at fault.*spec\.models\.primary\.baseURL/,
  },
  {
    what: "it holds a character that PostgreSQL cannot store",
    object: agentObject({ instructions: "a\0b" }),
    gives: notAccepted("Invalid"),
    says: /NUL/,
  },
];

const statusFor = (row: Row, before?: AgentStatus): AgentStatus => {
  const object = { ...(row.object ?? agentObject()), ...(before === undefined ? {} : { status: before }) };
  const accepted = accept(object, { ...CONFIG, ...row.config });
  return agentStatusOf(object, accepted, row.facts === undefined ? stored : row.facts, INSTALL, NOW);
};

describe("an Agent's conditions", () => {
  for (const row of TABLE) {
    it(`are right when ${row.what}`, () => {
      const status = statusFor(row);
      const given = Object.fromEntries(status.conditions?.map((c) => [c.type, `${c.status}/${c.reason}`]) ?? []);
      assert.deepEqual(given, row.gives);
      if (row.says !== undefined) {
        assert.match(status.conditions?.map(({ message }) => message).join("\n") ?? "", row.says);
      }
      for (const { type, reason } of status.conditions ?? []) {
        assert.ok(
          ((AGENT_REASONS as Record<string, readonly string[]>)[type] ?? []).includes(reason),
          `${type} does not know ${reason}`,
        );
      }
      assert.equal(agentStatus.safeParse(status).success, true);
    });
  }

  it("keep their time while their verdict stays", () => {
    const [first] = TABLE as [Row];
    const before = statusFor(first);
    const later = accept(agentObject(), CONFIG);
    const object = { ...agentObject(), status: before };
    const after = agentStatusOf(object, later, stored, INSTALL, new Date(NOW.getTime() + 60_000));
    assert.deepEqual(after, before);
  });

  it("leave what is in use in use while a new text is refused", () => {
    const before = statusFor(TABLE[0] as Row);
    const refused = agentObject({ instructions: 7 }, { generation: 4 });
    const status = agentStatusOf({ ...refused, status: before }, accept(refused, CONFIG), stored, INSTALL, NOW);
    assert.equal(status.generationInUse, 3);
    assert.equal(status.observedGeneration, 4);
    assert.equal(status.model, "small");
  });
});

describe("a merged spec", () => {
  const spec = agentObject()["spec"] as never;

  it("has its own word first, then the install's, then the built-in one", () => {
    const own = { instructions: "x", interrupt: { maxCount: 3 }, budgets: { iterations: 7 } } as never;
    const config = { ...CONFIG, defaults: { ...CONFIG.defaults, budgets: { iterations: 9, toolCalls: 11 } } };
    const merged = mergedSpec(own, config);
    assert.equal(merged.interrupt?.maxCount, 3);
    assert.equal(merged.interrupt?.whoInterrupts, "SameActorOnly");
    assert.equal(merged.interrupt?.maxWait, "30s");
    assert.deepEqual([merged.budgets?.iterations, merged.budgets?.toolCalls, merged.budgets?.modelCalls], [7, 11, 60]);
  });

  it("has the install's fast model where it names none, and never the install's decision model", () => {
    const fast = { baseURL: "https://fast.test/v1", model: "fast" };
    const models = { ...CONFIG.defaults.models, fast, decision: { baseURL: "https://d.test/v1", model: "d" } };
    const merged = mergedSpec(spec, { ...CONFIG, defaults: { ...CONFIG.defaults, models } });
    assert.deepEqual(merged.models?.fast, fast);
    assert.ok(!JSON.stringify(merged).includes("d.test"));
  });

  it("stays under the install's ceilings, whoever named more", () => {
    const merged = mergedSpec(spec, { ...CONFIG, ceilings: { iterations: 5, wallClock: "30m", inputTokens: 1 } });
    assert.deepEqual(
      [merged.budgets?.iterations, merged.budgets?.wallClock, merged.budgets?.inputTokens, merged.budgets?.toolCalls],
      [5, "30m", 1, 200],
    );
  });

  it("is the same generation whether suspended or not, and another when a default changes", () => {
    const hash = (object: KubeObject, config: ControllerConfig): string => {
      const accepted = accept(object, config);
      assert.ok(accepted.accepted);
      return accepted.specHash;
    };
    assert.equal(hash(agentObject({ suspend: true }), CONFIG), hash(agentObject(), CONFIG));
    const other = { ...CONFIG, defaults: { ...CONFIG.defaults, budgets: { iterations: 3 } } };
    assert.notEqual(hash(agentObject(), other), hash(agentObject(), CONFIG));
  });
});
