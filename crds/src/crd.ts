/** A kind as a CustomResourceDefinition, ready to be applied. */
import { GROUP, type Kind, VERSION } from "./kinds.ts";
import type { Rule } from "./rules.ts";
import { type Json, NotStructural, type Schema, structural } from "./structural.ts";

/** etcd takes 1.5 MB and kubectl's last-applied annotation 256 KiB; beyond it `kubectl apply` fails. */
const MAX_BYTES = 256 * 1024;

const ruleEntry = ({ cel, message, fieldPath }: Rule): Json => ({
  rule: cel,
  message,
  ...(fieldPath === undefined ? {} : { fieldPath }),
});

function openAPISchema(kind: Kind): Schema {
  return {
    type: "object",
    description: kind.description,
    required: ["spec"],
    properties: {
      apiVersion: { type: "string", description: "The version of the API this object is written in." },
      kind: { type: "string", description: `${kind.kind}.` },
      metadata: { type: "object" },
      spec: structural(kind.spec, `${kind.kind}.spec`),
      status: structural(kind.status, `${kind.kind}.status`),
    },
    ...(kind.rootRules.length === 0 ? {} : { "x-kubernetes-validations": kind.rootRules.map(ruleEntry) }),
  };
}

/** Throws NotStructural if the kind says what a CRD cannot, or is too large to be applied. */
export function customResourceDefinition(kind: Kind): Schema {
  const crd: Schema = {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: {
      name: `${kind.plural}.${GROUP}`,
      // An uninstall of the chart must not take every Agent and Run with it.
      annotations: { "helm.sh/resource-policy": "keep" },
      labels: { "app.kubernetes.io/part-of": "pawl" },
    },
    spec: {
      group: GROUP,
      scope: "Namespaced",
      names: {
        kind: kind.kind,
        listKind: `${kind.kind}List`,
        plural: kind.plural,
        singular: kind.singular,
        shortNames: [...kind.shortNames],
        categories: ["pawl"],
      },
      versions: [
        {
          name: VERSION,
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: kind.columns.map(({ wide, ...column }) => ({
            ...column,
            ...(wide === true ? { priority: 1 } : {}),
          })),
          ...(kind.selectable.length === 0
            ? {}
            : { selectableFields: kind.selectable.map((jsonPath) => ({ jsonPath })) }),
          schema: { openAPIV3Schema: openAPISchema(kind) },
        },
      ],
    },
  };
  const bytes = Buffer.byteLength(JSON.stringify(crd));
  if (bytes >= MAX_BYTES) throw new NotStructural(`${kind.kind}: ${bytes} bytes are more than ${MAX_BYTES}`);
  return crd;
}
