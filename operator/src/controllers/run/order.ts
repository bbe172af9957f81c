/**
 * The order of a conversation's Runs: as they were made. They are reconciled side by side, so without this the second
 * of two that were applied together could become the first message.
 */
import type { RunSpec } from "@pawl/crds";
import type { KubeObject } from "#kube/resources.ts";
import { isFinished } from "./conditions.ts";
import { statusOf } from "./decide.ts";

/** Between two looks at whether the one before has become a message. */
export const ORDER_LOOK_MS = 100;
/** Longer than any admission that goes well; one that keeps failing must not hold its whole conversation for ever. */
export const MAX_ORDER_WAIT_MS = 10_000;

const versionOf = (object: KubeObject): bigint => {
  const text = object.metadata.resourceVersion ?? "";
  return /^\d+$/.test(text) ? BigInt(text) : 0n;
};

const conversationOf = (object: KubeObject): string | undefined => {
  const spec = object["spec"] as RunSpec | undefined;
  if (spec?.conversation === undefined) return undefined;
  return JSON.stringify([object.metadata.namespace, spec.agentRef?.name, spec.conversation]);
};

/** Not a message yet, and still going to be one. */
function waits(object: KubeObject): boolean {
  const status = statusOf(object);
  return status?.ledger === undefined && !isFinished(status) && (object["spec"] as RunSpec).cancel === undefined;
}

/**
 * Creation is stamped in whole seconds; within one, the version under which an object was first seen tells who came
 * first (a status written later raises it, so the first is kept).
 */
export class Arrivals {
  readonly #first = new Map<string, bigint>();

  note(object: KubeObject): void {
    const uid = object.metadata.uid ?? "";
    if (!this.#first.has(uid)) this.#first.set(uid, versionOf(object));
  }

  forget(object: KubeObject): void {
    this.#first.delete(object.metadata.uid ?? "");
  }

  #before(a: KubeObject, b: KubeObject): boolean {
    const [first, second] = [a.metadata["creationTimestamp"] ?? "", b.metadata["creationTimestamp"] ?? ""];
    if (first !== second) return first < second;
    const version = (object: KubeObject): bigint => this.#first.get(object.metadata.uid ?? "") ?? versionOf(object);
    return version(a) < version(b);
  }

  /** A Run of the same conversation that was made before this one and is not a message yet. */
  ahead(runs: Iterable<KubeObject>, object: KubeObject): KubeObject | undefined {
    const conversation = conversationOf(object);
    if (conversation === undefined) return undefined;
    for (const other of runs) {
      if (other.metadata.uid === object.metadata.uid || conversationOf(other) !== conversation) continue;
      if (waits(other) && this.#before(other, object)) return other;
    }
    return undefined;
  }
}
