/** Labels and annotations under `pawl.dev/` carry meaning between Pawl's own parts; people may not forge them. */
import type { Schema } from "../structural.ts";
import { isNotController, type PolicyOptions, quote, validatingPolicy } from "./build.ts";

export const RESERVED_PREFIX = "pawl.dev/";

/** What people may write under the prefix: a line for those who look at the object, without effect. */
export const OPEN_ANNOTATIONS = ["pawl.dev/description"] as const;

/** Every reserved entry of `object` is in `oldObject` with the same value, and the other way round. */
const unchanged = (field: "labels" | "annotations", open: readonly string[]): string => {
  const reserved = `k.startsWith(${quote(RESERVED_PREFIX)})${open.map((key) => ` && k != ${quote(key)}`).join("")}`;
  const [now, before] = [`object.metadata.?${field}`, `oldObject.metadata.?${field}`];
  const added = `!${now}.hasValue() || ${now}.value().all(k, !(${reserved}) || (oldObject != null && ${before}[?k] == ${now}[?k]))`;
  const taken = `oldObject == null || !${before}.hasValue() || ${before}.value().all(k, !(${reserved}) || ${now}[?k] == ${before}[?k])`;
  return `(${added}) && (${taken})`;
};

export const reservedLabels = (options: PolicyOptions): Schema[] =>
  validatingPolicy({
    name: "reserved-labels",
    description: "Labels and annotations under pawl.dev/ are Pawl's own.",
    operations: ["CREATE", "UPDATE"],
    resources: ["agents", "runs", "decisions"],
    conditions: [isNotController(options)],
    validations: [
      {
        expression: unchanged("labels", []),
        message: "labels that begin with pawl.dev/ are Pawl's own: use a prefix of yours",
      },
      {
        expression: unchanged("annotations", OPEN_ANNOTATIONS),
        message: `annotations that begin with pawl.dev/ are Pawl's own (but for ${OPEN_ANNOTATIONS.join(", ")}): use a prefix of yours`,
      },
    ],
  });
