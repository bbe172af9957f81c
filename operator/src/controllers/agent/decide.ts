/**
 * What an Agent is, in ordered checks, each with its reason. Pure. The first check that fails says why the Agent is not
 * accepted; only an accepted one is stored, so that what runs is always something its author was told is accepted.
 */
import {
  AGENT,
  type AgentConditionType,
  type AgentReason,
  type AgentSpec,
  type AgentStatus,
  checkAgent,
  type Condition,
  notActedUpon,
  setCondition,
} from "@pawl/crds";
import { canonicalHash } from "#engine/canonical.ts";
import type { KubeObject } from "#kube/resources.ts";
import { type ControllerConfig, type Install, isEnabled } from "../config.ts";
import { installationId } from "../identity.ts";
import { asStored, hasNul, line, reasonWord } from "../text.ts";
import { mergedSpec, overCeiling } from "./merge.ts";

export type Verdict<T extends AgentConditionType> = {
  readonly status: "True" | "False" | "Unknown";
  readonly reason: AgentReason<T> | (string & {});
  readonly message: string;
};

export type Accepted =
  | {
      readonly accepted: true;
      readonly verdict: Verdict<"Accepted">;
      readonly suspended: boolean;
      /** With the install's defaults filled in. */
      readonly spec: AgentSpec;
      readonly specHash: string;
      /** Somebody can be asked what a message means: the Agent's fast model, or the install's decision model. */
      readonly askable: boolean;
    }
  | { readonly accepted: false; readonly verdict: Verdict<"Accepted"> };

const MAX_MESSAGE = 1_024;
const refused = (reason: AgentReason<"Accepted">, message: string): Accepted => ({
  accepted: false,
  verdict: { status: "False", reason, message },
});

const listed = (items: readonly string[], most = 10): string =>
  items.length <= most
    ? items.join("; ")
    : `${items.slice(0, most).join("; ")}; and ${String(items.length - most)} more`;

/** The spec's own checks: nothing outside the object and the configuration is asked. */
export function accept(object: KubeObject, config: ControllerConfig): Accepted {
  const namespace = object.metadata.namespace ?? "";
  if (!isEnabled(config, namespace)) {
    return refused(
      "NamespaceNotEnabled",
      `this install does not serve the namespace ${namespace}: add it to agentNamespaces in the chart's values`,
    );
  }
  const { status: _, ...manifest } = object;
  const checked = checkAgent(manifest);
  if (!checked.ok) {
    return refused("Invalid", listed(checked.problems.map(({ path, message }) => `${path}: ${message}`)));
  }
  const spec = checked.value;
  if (hasNul(spec)) return refused("Invalid", "spec holds a NUL character, which the ledger cannot store: take it out");
  const unused = notActedUpon(AGENT, spec);
  if (unused.refused.length > 0) {
    return refused(
      "NotSupportedYet",
      `ignoring ${listed(unused.refused)} would let the agent do more than is written: take it out until this version of Pawl supports it`,
    );
  }
  const over = overCeiling(spec.budgets, config.ceilings);
  if (over.length > 0) return refused("OverCeiling", `${listed(over)}: lower it, or ask for a higher ceiling`);
  const merged = mergedSpec(spec, config);
  // The Agent's own words have passed: what fails now was filled in.
  const whole = checkAgent({ ...manifest, spec: merged });
  if (!whole.ok) {
    const problems = listed(whole.problems.map(({ path, message }) => `${path}: ${message}`));
    return refused(
      "Invalid",
      `the install's defaults are at fault; correct defaults in the chart's values: ${problems}`,
    );
  }
  if (merged.interrupt?.whoInterrupts === undefined) {
    return refused(
      "InterruptPolicyMissing",
      "set spec.interrupt.whoInterrupts to SameActorOnly, ThreadScoped or AddressedActorOnly (or defaults.interrupt.whoInterrupts in the chart's values): whose messages may change a running turn has no default",
    );
  }
  const noted = unused.ignored.length === 0 ? "" : `; without effect in this version: ${listed(unused.ignored)}`;
  return {
    accepted: true,
    verdict: { status: "True", reason: "Accepted", message: `accepted${noted}` },
    suspended: spec.suspend === true,
    spec: merged,
    specHash: canonicalHash(asStored(merged)),
    askable: (merged.models?.fast ?? config.defaults.models?.decision) !== undefined,
  };
}

/** What the ledger knows of the stored Agent. */
export type AgentFacts = {
  readonly generation: number;
  readonly refs: {
    readonly generation: number;
    readonly reason: string | null;
    readonly message: string | null;
  } | null;
  readonly active: number;
  readonly queued: number;
};

/** References: what the spec names and a worker must find. `facts` null: not stored, because not accepted. */
export function resolve(accepted: Accepted, facts: AgentFacts | null): Verdict<"ResolvedRefs"> {
  if (!accepted.accepted || facts === null) {
    return { status: "Unknown", reason: "Unchecked", message: "references are tried once the Agent is accepted" };
  }
  const { models, interrupt, budgets } = accepted.spec;
  if (models?.primary === undefined) {
    return {
      status: "False",
      reason: "ModelMissing",
      message: "no model is named: set spec.models.primary (or defaults.models.primary in the chart's values)",
    };
  }
  if (interrupt?.midTurn !== undefined && interrupt.midTurn !== "Enqueue" && !accepted.askable) {
    return {
      status: "False",
      reason: "FastModelMissing",
      message: `spec.interrupt.midTurn ${interrupt.midTurn} needs a model that tells what a message is about: set spec.models.fast (or defaults.models.fast or defaults.models.decision in the chart's values), or midTurn: Enqueue`,
    };
  }
  if (budgets?.maxCostUSD !== undefined && models.primary.pricesUSDPerMTok === undefined) {
    return {
      status: "False",
      reason: "PricesMissing",
      message:
        "spec.budgets.maxCostUSD needs prices to count with: set spec.models.primary.pricesUSDPerMTok (or defaults.models.primary.pricesUSDPerMTok in the chart's values), or take maxCostUSD away",
    };
  }
  if (facts.refs === null || facts.refs.generation < facts.generation) {
    return {
      status: "Unknown",
      reason: "Unchecked",
      message: "no worker has tried the references of this generation yet; if this stays, look whether a worker runs",
    };
  }
  const { reason, message } = facts.refs;
  if (reason === null) return { status: "True", reason: "Resolved", message: message ?? "every reference was found" };
  return { status: "False", reason: reasonWord(reason, "Unresolved"), message: message ?? reason };
}

export function ready(accepted: Accepted, refs: Verdict<"ResolvedRefs">): Verdict<"Ready"> {
  if (!accepted.accepted) {
    const { reason, message } = accepted.verdict;
    return { status: "False", reason: "NotAccepted", message: `${reason}: ${message}` };
  }
  if (accepted.suspended) {
    return {
      status: "False",
      reason: "Suspended",
      message: "spec.suspend is true: messages wait and turns at work go on; take it away to go on",
    };
  }
  if (refs.status !== "True") {
    return { status: refs.status, reason: "RefsNotResolved", message: `${refs.reason}: ${refs.message}` };
  }
  return { status: "True", reason: "Ready", message: "messages are answered" };
}

type Verdicts = Partial<Record<AgentConditionType, Verdict<AgentConditionType>>>;

function withVerdicts(before: AgentStatus, verdicts: Verdicts, generation: number, now: Date) {
  let conditions = (before.conditions ?? []) as Condition<AgentConditionType>[];
  for (const [type, verdict] of Object.entries(verdicts) as [AgentConditionType, Verdict<AgentConditionType>][]) {
    const { status, reason, message } = verdict;
    conditions = setCondition(
      conditions,
      { type, status, reason, message: line(message, MAX_MESSAGE), observedGeneration: generation },
      now,
    );
  }
  return conditions;
}

/** The question whether another installation still serves this Agent; see `hold.ts`. */
export function askingStatusOf(object: KubeObject, install: Install, now: Date): AgentStatus {
  const before = (object["status"] ?? {}) as AgentStatus;
  const generation = object.metadata.generation ?? 0;
  const message = `another installation (${before.installation ?? ""}) has served this Agent; asking whether it still does`;
  const verdict = { status: "Unknown", reason: "OtherInstallation", message } as const;
  const verdicts = { Accepted: verdict, Ready: { ...verdict, reason: "NotAccepted" } } as const;
  return {
    ...before,
    observedGeneration: generation,
    installation: installationId(install),
    conditions: withVerdicts(before, verdicts, generation, now),
  };
}

/** The whole status. What is not known is left as it was. */
export function agentStatusOf(
  object: KubeObject,
  accepted: Accepted,
  facts: AgentFacts | null,
  install: Install,
  now: Date,
): AgentStatus {
  const before = (object["status"] ?? {}) as AgentStatus;
  const generation = object.metadata.generation ?? 0;
  const refs = resolve(accepted, facts);
  const verdicts = { Accepted: accepted.verdict, ResolvedRefs: refs, Ready: ready(accepted, refs) };
  const inUse = accepted.accepted ? generation : before.generationInUse;
  const model = accepted.accepted ? accepted.spec.models?.primary?.model : before.model;
  return {
    observedGeneration: generation,
    // Where this install does not serve, it does not claim either: another one may.
    ...(accepted.verdict.reason === "NamespaceNotEnabled" ? {} : { installation: installationId(install) }),
    ...(inUse === undefined ? {} : { generationInUse: inUse }),
    ...(facts === null ? {} : { active: facts.active, queued: facts.queued }),
    ...(model === undefined ? {} : { model }),
    ...(before.isolation === undefined ? {} : { isolation: before.isolation }),
    conditions: withVerdicts(before, verdicts, generation, now),
  };
}
