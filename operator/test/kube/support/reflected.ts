/** A reflector over the ConfigMaps of one test, behind a proxy that misbehaves, with everything it did on record. */
import assert from "node:assert/strict";
import type { FaultProxy, Seen } from "@pawl/fakes";
import type { KubeClient } from "#kube/client.ts";
import { type Change, Reflector, type ReflectorOptions, type RelistReason } from "#kube/reflector.ts";
import { CONFIG_MAPS } from "#kube/resources.ts";
import type { PawlError } from "#rules/errors.ts";
import { SkippingClock } from "./clock.ts";
import type { Cluster } from "./cluster.ts";

/** Backs off for at most 15 s at a time; everything longer (the periodic list) waits for the test. */
const LIMIT_MS = 90_000;

export type Request = Seen & { readonly virtual: number };

export class Reflected implements AsyncDisposable {
  readonly clock = new SkippingClock(LIMIT_MS);
  readonly changes: Change[] = [];
  readonly failures: PawlError[] = [];
  readonly lists: { reason: RelistReason; objects: number; missed: number }[] = [];
  readonly thrown: string[] = [];
  readonly proxy: FaultProxy;
  readonly reflector: Reflector;
  /** Requests that reached the proxy, with the reflector's own time. */
  readonly requests: Request[] = [];
  readonly #client: KubeClient;
  readonly #admin: KubeClient;
  readonly #namespace: string;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  #watchers = new Set<() => void>();

  constructor(
    proxy: FaultProxy,
    client: KubeClient,
    admin: KubeClient,
    namespace: string,
    options: Partial<ReflectorOptions>,
  ) {
    this.proxy = proxy;
    this.#client = client;
    this.#admin = admin;
    this.#namespace = namespace;
    const pass = proxy.fault;
    this.fault = pass;
    proxy.fault = (seen) => {
      this.requests.push({ ...seen, virtual: this.clock.monotonic() });
      const fault = this.fault(seen);
      this.#notify();
      return fault;
    };
    this.reflector = new Reflector({
      client,
      resource: CONFIG_MAPS,
      selection: { namespace },
      clock: this.clock,
      // The shortest waits that jitter allows: the worst case for the pace.
      random: () => 0,
      silenceMs: 60_000,
      ...options,
      onChange: (change) => {
        this.changes.push(change);
        this.#notify();
        options.onChange?.(change);
      },
      hooks: {
        failed: (error) => {
          this.failures.push(error);
          this.#notify();
        },
        listed: (list) => {
          this.lists.push(list);
          this.#notify();
        },
        handlerThrew: (_error, key) => this.thrown.push(key),
      },
    });
    this.#running = this.reflector.run(this.#stop.signal);
  }

  fault: FaultProxy["fault"];

  static async start(kube: Cluster, namespace: string, options: Partial<ReflectorOptions> = {}): Promise<Reflected> {
    const { proxy, client } = await kube.throughProxy();
    const made = new Reflected(proxy, client, kube.admin, namespace, options);
    await made.reflector.synced;
    await made.proxy.streaming();
    return made;
  }

  async create(name: string): Promise<void> {
    await this.#admin.create(CONFIG_MAPS, { metadata: { namespace: this.#namespace, name } });
  }

  async remove(name: string): Promise<void> {
    await this.#admin.delete(CONFIG_MAPS, { namespace: this.#namespace, name }, {});
  }

  has(name: string): boolean {
    return this.reflector.get(`${this.#namespace}/${name}`) !== undefined;
  }

  /** Resolves once `holds` does; looked at whenever anything happens. */
  async until(what: string, holds: () => boolean): Promise<void> {
    if (holds()) return;
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#watchers.delete(look);
        reject(
          new Error(`waited in vain until ${what}; failures: ${this.failures.map(({ reason }) => reason).join(", ")}`),
        );
      }, 30_000);
      const look = (): void => {
        if (!holds()) return;
        clearTimeout(timer);
        this.#watchers.delete(look);
        resolve();
      };
      this.#watchers.add(look);
    });
  }

  /** Never more than two requests a second: any three of them span at least one. */
  assertPace(requests: readonly Request[]): void {
    for (const [index, { virtual }] of requests.entries()) {
      const third = requests[index + 2];
      if (third !== undefined)
        assert.ok(third.virtual - virtual >= 1_000, `three requests within ${third.virtual - virtual} ms`);
    }
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await this.#client.close();
    await this.proxy.close();
  }

  #notify(): void {
    // After the reflector has taken it in.
    setImmediate(() => {
      for (const look of this.#watchers) look();
    });
  }
}
