/**
 * A local copy of a collection that is never wrong for long: paged list → watch with bookmarks → list again on any
 * doubt. Watch events are hints; a periodic list looks behind them and counts what they missed.
 *
 * 1. After a failure requests are at least MIN_GAP_MS apart and back off; a watch that did not live for HEALTHY_MS is a
 *    failure, whatever it delivered (an end every 50 ms is not a reason to ask 20 times a second).
 * 2. A quiet end, and a watch that the server refuses for now, go on from the last resourceVersion: nothing can have
 *    been lost, and a starting server refuses watches for many seconds while it serves lists. Everything else (an ERROR
 *    event, a line that is not JSON, a cut, a silence, an old resourceVersion) lists again.
 * 3. A resourceVersion from the future (the cluster was restored) is answered with silence: the watchdog sees it.
 * 4. What is kept has no `managedFields`: more than half of a cache of Runs.
 */
import type { Clock } from "#engine/ports.ts";
import { isPawlError, PawlError } from "#rules/errors.ts";
import type { KubeClient, Selection } from "./client.ts";
import { KubeError } from "./errors.ts";
import { keyOf, type KubeObject, type Resource } from "./resources.ts";
import type { WatchEvent } from "./watch.ts";

export type Change = {
  readonly key: string;
  /** Undefined: it is gone. Absence here is a hint; see the rules for believing it. */
  readonly object: KubeObject | undefined;
  readonly previous: KubeObject | undefined;
  /** How it was learnt: a watch says that an object went, a list only that it is not there. */
  readonly by: "watch" | "list";
};

export type RelistReason = "start" | "periodic" | "doubt";

/** For metrics and logs. Must not throw. */
export type ReflectorHooks = {
  /** `failures` in a row, this one included. */
  readonly failed?: (error: PawlError, failures: number) => void;
  /** `missed`: changes that a watch should have delivered and did not; counted by periodic lists only. */
  readonly listed?: (list: { reason: RelistReason; objects: number; missed: number }) => void;
  /** `onChange` threw; the change stays in the copy, the next list does not repeat it. */
  readonly handlerThrew?: (error: unknown, key: string) => void;
};

export type ReflectorOptions = {
  readonly client: KubeClient;
  readonly resource: Resource;
  readonly selection?: Selection;
  readonly clock: Clock;
  /** In [0, 1); for jitter. */
  readonly random: () => number;
  /** Called for every difference, in the order it was learnt. Usually puts the key into a queue. */
  readonly onChange: (change: Change) => void;
  readonly hooks?: ReflectorHooks;
  readonly pageSize?: number;
  /** Between periodic lists, in milliseconds, ± 10 %. */
  readonly relistMs?: number;
  /** Longest silence of a watch, in milliseconds. */
  readonly silenceMs?: number;
};

const PAGE_SIZE = 500;
const RELIST_MS = 300_000;
/**
 * The server is asked to end each watch after 40 to 45 s, and sends a bookmark just before. So a watch that is silent for
 * longer is half-open or stands at a resourceVersion of the future, and both are noticed within a minute. (Bookmarks
 * alone come once a minute; waiting for them would take two and a half.)
 */
const WATCH_SECONDS = { least: 40, spread: 5 };
const SILENCE_MS = 55_000;
/** Two requests a second, and a margin. */
const MIN_GAP_MS = 550;
const MAX_BACKOFF_MS = 15_000;
const HEALTHY_MS = 5_000;

export class Reflector {
  readonly #options: ReflectorOptions;
  readonly #clock: Clock;
  #objects = new Map<string, KubeObject>();
  #resourceVersion = "";
  #failures = 0;
  #retryAfterMs = 0;
  /** The list after a failure has succeeded: the watch that follows it need not wait for the whole backoff again. */
  #listedSinceFailure = false;
  #lastRequest = Number.NEGATIVE_INFINITY;
  #lastContact: number | undefined;
  readonly #synced = Promise.withResolvers<void>();

  constructor(options: ReflectorOptions) {
    this.#options = options;
    this.#clock = options.clock;
    // Nobody may be waiting when it is stopped before its first list.
    this.#synced.promise.catch(() => {});
  }

  /** Resolves after the first list; rejects (cancelled) when stopped before it. */
  get synced(): Promise<void> {
    return this.#synced.promise;
  }

  /** Milliseconds since the API server last said something true to us; undefined before the first list. */
  age(): number | undefined {
    return this.#lastContact === undefined ? undefined : this.#clock.monotonic() - this.#lastContact;
  }

  get(key: string): KubeObject | undefined {
    return this.#objects.get(key);
  }

  values(): IterableIterator<KubeObject> {
    return this.#objects.values();
  }

  get size(): number {
    return this.#objects.size;
  }

  /** Runs until `signal` aborts. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    let reason: RelistReason | undefined = "start";
    while (!signal.aborted) {
      try {
        if (reason !== undefined) {
          await this.#pace(signal);
          if (signal.aborted) break;
          await this.#list(reason, signal);
          this.#synced.resolve();
          reason = undefined;
        }
        await this.#pace(signal);
        if (signal.aborted) break;
        reason = await this.#watch(signal);
      } catch (error) {
        if (signal.aborted) break;
        reason = this.#fail(error, reason);
      }
    }
    this.#synced.reject(
      new PawlError("cancelled", "Cancelled", `stopped before ${this.#options.resource.plural} were listed`),
    );
  }

  /** Returns the reason to list next, if there is one. A list that failed is tried again with its own reason. */
  #fail(error: unknown, listing: RelistReason | undefined): RelistReason | undefined {
    const known = isPawlError(error)
      ? error
      : new PawlError("invariant", "Unexpected", String(error), { cause: error });
    this.#failures += 1;
    this.#options.hooks?.failed?.(known, this.#failures);
    this.#retryAfterMs = known.retryAfterMs ?? 0;
    if (listing !== undefined) return listing;
    const refused = known instanceof KubeError && known.code !== undefined && known.code !== 410;
    return refused ? undefined : "doubt";
  }

  /** Waits as long as the failures so far ask for; not at all when all is well. */
  async #pace(signal: AbortSignal): Promise<void> {
    const now = this.#clock.monotonic();
    const since = now - this.#lastRequest;
    let wait = 0;
    if (this.#failures > 0) {
      const ceiling = Math.min(MIN_GAP_MS * 2 ** this.#failures, MAX_BACKOFF_MS);
      const backoff = this.#retryAfterMs + ceiling / 2 + (ceiling / 2) * this.#options.random();
      wait = Math.max(MIN_GAP_MS - since, this.#listedSinceFailure ? 0 : backoff);
    }
    if (wait > 0) await this.#clock.sleep(wait, signal);
    this.#lastRequest = this.#clock.monotonic();
  }

  async #list(reason: RelistReason, signal: AbortSignal): Promise<void> {
    const { client, resource, selection = {}, pageSize = PAGE_SIZE } = this.#options;
    this.#listedSinceFailure = false;
    const found = new Map<string, KubeObject>();
    let resourceVersion = "";
    let token: string | undefined;
    do {
      const page = await client.listPage(resource, selection, { limit: pageSize, continue: token }, { signal });
      for (const object of page.items) found.set(keyOf(object), strip(object));
      resourceVersion = page.resourceVersion;
      token = page.continue;
    } while (token !== undefined);
    this.#lastContact = this.#clock.monotonic();
    const missed = this.#replace(found);
    this.#resourceVersion = resourceVersion;
    this.#listedSinceFailure = this.#failures > 0;
    this.#options.hooks?.listed?.({ reason, objects: found.size, missed: reason === "periodic" ? missed : 0 });
  }

  /** Takes the list as the truth and reports the differences. Returns how many of them the watch had passed over. */
  #replace(found: Map<string, KubeObject>): number {
    const before = this.#objects;
    const watched = this.#resourceVersion;
    this.#objects = found;
    let missed = 0;
    for (const [key, object] of found) {
      const previous = before.get(key);
      if (previous !== undefined && sameVersion(previous, object)) continue;
      // A change that is newer than what the watch has reached is on its way, not missed.
      if (!isNewer(object.metadata.resourceVersion ?? "", watched)) missed += 1;
      this.#report({ key, object, previous, by: "list" });
    }
    for (const [key, previous] of before) {
      if (found.has(key)) continue;
      missed += 1;
      this.#report({ key, object: undefined, previous, by: "list" });
    }
    return missed;
  }

  /** One watch, until it ends (undefined: go on from where it was) or a periodic list is due. Throws on any doubt. */
  async #watch(signal: AbortSignal): Promise<RelistReason | undefined> {
    const { client, resource, selection = {}, random, silenceMs = SILENCE_MS, relistMs = RELIST_MS } = this.#options;
    this.#listedSinceFailure = false;
    const due = new AbortController();
    const stop = (): void => due.abort();
    signal.addEventListener("abort", stop, { once: true });
    const timer = new AbortController();
    const started = this.#clock.monotonic();
    let relist = false;
    const alarm = this.#clock.sleep(relistMs * (0.9 + 0.2 * random()), timer.signal).then(() => {
      relist = !timer.signal.aborted;
      if (relist) due.abort();
    });
    try {
      const from = {
        resourceVersion: this.#resourceVersion,
        timeoutSeconds: Math.round(WATCH_SECONDS.least + WATCH_SECONDS.spread * random()),
        silenceMs,
      };
      for await (const event of client.watch(resource, selection, from, { signal: due.signal })) this.#take(event);
    } catch (error) {
      if (!relist) throw this.#outlived(started) ? this.#forgive(error) : error;
    } finally {
      timer.abort();
      signal.removeEventListener("abort", stop);
      await alarm;
    }
    if (relist) {
      this.#failures = 0;
      return "periodic";
    }
    if (this.#outlived(started)) this.#failures = 0;
    else this.#fail(new PawlError("transient", "WatchCutShort", `watch ${resource.plural}: ended at once`), undefined);
    return undefined;
  }

  readonly #outlived = (started: number): boolean => this.#clock.monotonic() - started >= HEALTHY_MS;

  /** A watch that had lived well before it failed starts the count anew. */
  #forgive(error: unknown): unknown {
    this.#failures = 0;
    return error;
  }

  #take({ type, object }: WatchEvent): void {
    this.#lastContact = this.#clock.monotonic();
    const { resourceVersion } = object.metadata;
    if (resourceVersion !== undefined) this.#resourceVersion = resourceVersion;
    if (type === "BOOKMARK") return;
    const key = keyOf(object);
    const previous = this.#objects.get(key);
    if (type === "DELETED") {
      this.#objects.delete(key);
      this.#report({ key, object: undefined, previous: previous ?? strip(object), by: "watch" });
      return;
    }
    const stripped = strip(object);
    this.#objects.set(key, stripped);
    this.#report({ key, object: stripped, previous, by: "watch" });
  }

  #report(change: Change): void {
    try {
      this.#options.onChange(change);
    } catch (error) {
      this.#options.hooks?.handlerThrew?.(error, change.key);
    }
  }
}

function strip(object: KubeObject): KubeObject {
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata };
}

const sameVersion = (a: KubeObject, b: KubeObject): boolean =>
  a.metadata.uid === b.metadata.uid && a.metadata.resourceVersion === b.metadata.resourceVersion;

/** Resource versions of one collection are growing numbers (Kubernetes 1.35 says so; etcd always did). */
function isNewer(version: string, than: string): boolean {
  if (!/^\d+$/.test(version) || !/^\d+$/.test(than)) return false;
  return BigInt(version) > BigInt(than);
}
