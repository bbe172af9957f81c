/** What makes a Run the same message when it is applied again, and what it says. Pure. */
import type { RunSpec } from "@pawl/crds";
import { canonicalHash } from "#engine/canonical.ts";
import type { Metadata } from "#kube/resources.ts";
import { asStored } from "../text.ts";

/** Unique within a namespace (the ledger's key is the namespace's UID with it). */
export function idempotencyKey(metadata: Metadata, spec: Pick<RunSpec, "idempotencyKey">): string {
  if (spec.idempotencyKey !== undefined) return spec.idempotencyKey;
  // With generateName the name is the server's invention: applied again, it is a new message.
  if (typeof metadata["generateName"] === "string" && metadata["generateName"] !== "") return metadata.uid ?? "";
  return `${metadata.namespace ?? ""}/${metadata.name}`;
}

/** Of everything that is asked; `cancel`, the key itself and how long the object stays are not. */
export function specHash(spec: RunSpec): string {
  const { agentRef, input, conversation, budgets } = spec;
  return canonicalHash(asStored({ agentRef, input, conversation, budgets }));
}

/** A label names a conversation; without one the key does. A label has no colon: the two never meet. */
export const conversationKey = (spec: RunSpec, key: string): string => spec.conversation ?? `run:${key}`;

export const connectorOf = (namespace: string): string => `kubernetes/${namespace}`;
