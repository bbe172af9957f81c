/** What every policy and binding of ours has in common. */
import { GROUP } from "../kinds.ts";
import type { Json, Schema } from "../structural.ts";

export type PolicyOptions = {
  /** `system:serviceaccount:<namespace>:<name>` of the controller, which alone writes mirrors. */
  readonly controllerUsername: string;
};

export type Condition = { readonly name: string; readonly expression: string };
export type Validation = {
  readonly expression: string;
  /** Said when `messageExpression` is absent or fails. */
  readonly message: string;
  readonly messageExpression?: string;
};

export type Operation = "CREATE" | "UPDATE";

/** A text as a CEL literal. */
export const quote = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

export const isNotController = ({ controllerUsername }: PolicyOptions): Condition => ({
  name: "not-the-controller",
  expression: `request.userInfo.username != ${quote(controllerUsername)}`,
});

/** Only the operations named here: deletes, status and what the garbage collector does stay out of our way. */
const matching = (operations: readonly Operation[], resources: readonly string[]): Json => ({
  matchPolicy: "Equivalent",
  resourceRules: [
    {
      apiGroups: [GROUP],
      apiVersions: ["*"],
      operations: [...operations],
      resources: [...resources],
      scope: "Namespaced",
    },
  ],
});

const metadata = (name: string, description: string): Json => ({
  name: `pawl-${name}`,
  labels: { "app.kubernetes.io/part-of": "pawl" },
  // The CRDs outlive an uninstall, and so must these: a Run written while no policy stands would carry a claimed actor.
  annotations: { "helm.sh/resource-policy": "keep", "pawl.dev/description": description },
});

type Head = {
  readonly name: string;
  readonly description: string;
  readonly operations: readonly Operation[];
  readonly resources: readonly string[];
  readonly conditions: readonly Condition[];
  readonly variables?: readonly Condition[];
};

export function validatingPolicy(head: Head & { readonly validations: readonly Validation[] }): Schema[] {
  return [
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingAdmissionPolicy",
      metadata: metadata(head.name, head.description),
      spec: {
        failurePolicy: "Fail",
        matchConstraints: matching(head.operations, head.resources),
        ...(head.conditions.length === 0 ? {} : { matchConditions: head.conditions.map((one) => ({ ...one })) }),
        ...(head.variables === undefined ? {} : { variables: head.variables.map((one) => ({ ...one })) }),
        validations: head.validations.map((one) => ({ ...one, reason: "Forbidden" })),
      },
    },
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingAdmissionPolicyBinding",
      metadata: metadata(head.name, head.description),
      spec: { policyName: `pawl-${head.name}`, validationActions: ["Deny"] },
    },
  ];
}

export function mutatingPolicy(head: Head & { readonly mutations: readonly string[] }): Schema[] {
  return [
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "MutatingAdmissionPolicy",
      metadata: metadata(head.name, head.description),
      spec: {
        failurePolicy: "Fail",
        reinvocationPolicy: "IfNeeded",
        matchConstraints: matching(head.operations, head.resources),
        matchConditions: head.conditions.map((one) => ({ ...one })),
        mutations: head.mutations.map((expression) => ({
          patchType: "ApplyConfiguration",
          applyConfiguration: { expression },
        })),
      },
    },
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "MutatingAdmissionPolicyBinding",
      metadata: metadata(head.name, head.description),
      spec: { policyName: `pawl-${head.name}` },
    },
  ];
}
