/** The Kubernetes API of Pawl: schemas, types, words, checks and the admission policies that belong to them. */
export { type AgentModel, type AgentSpec, agentSpec, type AgentStatus, agentStatus } from "./agent.ts";
export { type Condition, setCondition } from "./conditions.ts";
export { customResourceDefinition } from "./crd.ts";
export { AGENT_DEFAULTS } from "./defaults.ts";
export { type DecisionSpec, decisionSpec, type DecisionStatus, decisionStatus } from "./decision.ts";
export { parseDuration } from "./fields.ts";
export { AGENT, API_VERSION, DECISION, GROUP, type Kind, KINDS, RUN, VERSION } from "./kinds.ts";
export { admissionPolicies, type PolicyOptions, RESERVED_PREFIX } from "./policies/index.ts";
export { runSpec, type RunSpec, runStatus, type RunStatus } from "./run.ts";
export {
  type Checked,
  checkAgent,
  checkDecision,
  checkRun,
  notActedUpon,
  type NotActedUpon,
  type Problem,
} from "./validate.ts";
export * from "./vocabulary.ts";
import type { AgentSpec, AgentStatus } from "./agent.ts";
import type { DecisionSpec, DecisionStatus } from "./decision.ts";
import type { RunSpec, RunStatus } from "./run.ts";

export type ObjectMeta = {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  generateName?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: readonly Record<string, unknown>[];
  [key: string]: unknown;
};

export type Agent = {
  apiVersion: typeof import("./kinds.ts").API_VERSION;
  kind: "Agent";
  metadata: ObjectMeta;
  spec: AgentSpec;
  status?: AgentStatus;
};

export type Run = {
  apiVersion: typeof import("./kinds.ts").API_VERSION;
  kind: "Run";
  metadata: ObjectMeta;
  spec: RunSpec;
  status?: RunStatus;
};

export type Decision = {
  apiVersion: typeof import("./kinds.ts").API_VERSION;
  kind: "Decision";
  metadata: ObjectMeta;
  spec: DecisionSpec;
  status?: DecisionStatus;
};
