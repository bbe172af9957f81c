/** The admission policies that come with the CRDs, as plain objects. */
import type { Schema } from "../structural.ts";
import { defaults, runActor, runCancel } from "./actors.ts";
import { agentSecrets } from "./agent-secrets.ts";
import type { PolicyOptions } from "./build.ts";
import { decision, decisionDefaults } from "./decisions.ts";
import { reservedLabels } from "./reserved-labels.ts";

export type { PolicyOptions } from "./build.ts";
export { RESERVED_PREFIX } from "./reserved-labels.ts";

export type PolicyFile = {
  readonly name: string;
  /** Needs MutatingAdmissionPolicy, which not every supported cluster serves; without it people name themselves. */
  readonly mutating: boolean;
  /** The policy and its binding. */
  readonly objects: readonly Schema[];
};

export const policyFiles = (options: PolicyOptions): readonly PolicyFile[] => [
  { name: "defaults", mutating: true, objects: defaults(options) },
  { name: "run-actor", mutating: false, objects: runActor(options) },
  { name: "run-cancel", mutating: false, objects: runCancel(options) },
  { name: "agent-secrets", mutating: false, objects: agentSecrets() },
  { name: "decision-defaults", mutating: true, objects: decisionDefaults() },
  { name: "decision", mutating: false, objects: decision() },
  { name: "reserved-labels", mutating: false, objects: reservedLabels(options) },
];

/** Policies and bindings as a cluster takes them. `mutating: false` leaves out what an older cluster does not serve. */
export const admissionPolicies = (options: PolicyOptions & { readonly mutating?: boolean }): readonly Schema[] =>
  policyFiles(options)
    .filter((file) => options.mutating !== false || !file.mutating)
    .flatMap((file) => file.objects);
