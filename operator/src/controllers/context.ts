/** What both controllers work with. Built once by `start.ts`; tests build it over real services. */
import type { Clock } from "#engine/ports.ts";
import type { KubeClient } from "#kube/client.ts";
import type { EventRecorder } from "#kube/events.ts";
import { type KubeObject, NAMESPACES } from "#kube/resources.ts";
import type { Runner } from "#ledger/database.ts";
import { PawlError } from "#rules/errors.ts";
import type { ControllerConfig, ControllerMetrics, Install, Log, Timing } from "./config.ts";

/** A local copy of a collection, as a Reflector keeps it. */
export interface Store {
  get(key: string): KubeObject | undefined;
  values(): Iterable<KubeObject>;
}

export type Context = {
  readonly kube: KubeClient;
  readonly db: Runner;
  readonly config: ControllerConfig;
  readonly timing: Timing;
  readonly install: Install;
  readonly clock: Clock;
  /** Wall clock, for what people read. */
  readonly now: () => Date;
  readonly log: Log;
  readonly metrics: ControllerMetrics | undefined;
  readonly events: Pick<EventRecorder, "record">;
  readonly agents: Store;
  readonly runs: Store;
  readonly decisions: Store;
  readonly namespaces: Namespaces;
};

/** How long a namespace's UID is believed without asking. Admission asks anew. */
const NAMESPACE_MS = 30_000;
const MAX_NAMESPACES = 10_000;

/** UIDs of namespaces: a namespace that was made again is another one, and so are its Runs. */
export class Namespaces {
  readonly #kube: KubeClient;
  readonly #clock: Clock;
  readonly #known = new Map<string, { uid: string; at: number }>();

  constructor(kube: KubeClient, clock: Clock) {
    this.#kube = kube;
    this.#clock = clock;
  }

  /** Null when there is none. `fresh`: ask, whatever is known. */
  async uid(name: string, options: { fresh?: boolean; signal?: AbortSignal } = {}): Promise<string | null> {
    const known = this.#known.get(name);
    if (options.fresh !== true && known !== undefined && this.#clock.monotonic() - known.at < NAMESPACE_MS) {
      return known.uid;
    }
    const got = await this.#kube.get(
      NAMESPACES,
      { name },
      options.signal === undefined ? {} : { signal: options.signal },
    );
    this.#known.delete(name);
    if (!got.found) {
      if (got.missing === "object") return null;
      throw new PawlError("transient", "NamespaceUnreadable", got.message);
    }
    const uid = got.object.metadata.uid ?? "";
    this.#known.set(name, { uid, at: this.#clock.monotonic() });
    for (const [oldest] of this.#known) {
      if (this.#known.size <= MAX_NAMESPACES) break;
      this.#known.delete(oldest);
    }
    return uid;
  }
}

/**
 * Objects as our own writes returned them, until the watch has caught up: looking at an older copy would cost a write
 * that the server refuses.
 */
export class OwnWrites {
  readonly #newest = new Map<string, KubeObject>();

  remember(key: string, object: KubeObject): void {
    this.#newest.set(key, object);
  }

  /** The newer of the copy and what we wrote; forgets what the copy has reached. */
  pick(key: string, cached: KubeObject | undefined): KubeObject | undefined {
    const written = this.#newest.get(key);
    if (written === undefined) return cached;
    if (cached !== undefined && cached.metadata.uid === written.metadata.uid && isOlder(cached, written))
      return written;
    this.#newest.delete(key);
    return cached;
  }
}

const version = (object: KubeObject): bigint => {
  const text = object.metadata.resourceVersion ?? "";
  return /^\d+$/.test(text) ? BigInt(text) : 0n;
};
const isOlder = (a: KubeObject, b: KubeObject): boolean => version(a) < version(b);
