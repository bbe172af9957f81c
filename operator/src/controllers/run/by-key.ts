/** Which Run objects show a key of the ledger: usually one, more where a message was applied again under another name. */
import type { KubeObject } from "#kube/resources.ts";
import { keyOf } from "#kube/resources.ts";
import { idempotencyKey } from "./key.ts";

const entryOf = (namespace: string, key: string): string => `${namespace}\0${key}`;

export class RunIndex {
  readonly #keys = new Map<string, Set<string>>();

  add(object: KubeObject): void {
    const entry = this.#entry(object);
    const names = this.#keys.get(entry) ?? new Set<string>();
    this.#keys.set(entry, names.add(keyOf(object)));
  }

  remove(object: KubeObject): void {
    const entry = this.#entry(object);
    const names = this.#keys.get(entry);
    names?.delete(keyOf(object));
    if (names?.size === 0) this.#keys.delete(entry);
  }

  /** Object keys (`namespace/name`). */
  showing(namespace: string, key: string): Iterable<string> {
    return this.#keys.get(entryOf(namespace, key)) ?? [];
  }

  #entry(object: KubeObject): string {
    const { metadata } = object;
    return entryOf(metadata.namespace ?? "", idempotencyKey(metadata, object["spec"] ?? {}));
  }
}
