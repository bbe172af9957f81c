/**
 * Events (events.k8s.io/v1) for what a person would want to see in `kubectl describe`. They are a courtesy: capped in
 * rate, dropped when the server is slow, and never a failure of whoever records one.
 */
import { randomBytes } from "node:crypto";
import type { Clock } from "#engine/ports.ts";
import type { KubeClient } from "./client.ts";
import { apiVersionOf, EVENTS, type KubeObject, type Resource } from "./resources.ts";

export type EventNote = {
  readonly about: { readonly resource: Resource; readonly object: KubeObject };
  readonly type: "Normal" | "Warning";
  /** CamelCase: TurnStarted, EffectCommitted, … */
  readonly reason: string;
  /** What was being done, CamelCase. */
  readonly action: string;
  /** For a person; cut at 1,024 bytes. */
  readonly note: string;
};

export type RecorderOptions = {
  readonly client: KubeClient;
  readonly clock: Clock;
  /** The component that speaks: `pawl.dev/controller`. */
  readonly controller: string;
  /** This process: the pod's name. */
  readonly instance: string;
  /** Wall clock, for the event's own time stamp. */
  readonly now?: () => Date;
  /** For metrics. Must not throw. */
  readonly dropped?: (why: "rate" | "repeat" | "backlog" | "failed") => void;
};

/** Events per second over all objects, and how many may come at once. */
const RATE = 5;
const BURST = 50;
/** The same words about the same object again within this time are dropped. */
const REPEAT_MS = 300_000;
const MAX_REMEMBERED = 4_096;
const MAX_BACKLOG = 100;
const TIMEOUT_MS = 5_000;
/** Limits of the API. */
const MAX_NOTE = 1_024;
const MAX_WORD = 128;

export class EventRecorder {
  readonly #options: RecorderOptions;
  readonly #said = new Map<string, number>();
  readonly #sending = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  #tokens = BURST;
  #filledAt: number;

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#filledAt = options.clock.monotonic();
  }

  /** Returns at once and never throws. Returns whether the event was taken. */
  record(event: EventNote): boolean {
    if (this.#stopping.signal.aborted) return false;
    const why = this.#refusal(event);
    if (why !== undefined) {
      this.#options.dropped?.(why);
      return false;
    }
    const task = this.#send(event);
    this.#sending.add(task);
    void task.finally(() => this.#sending.delete(task));
    return true;
  }

  /** Resolves when everything that was taken has been sent or dropped. */
  async flush(): Promise<void> {
    while (this.#sending.size > 0) await Promise.all(this.#sending);
  }

  /** Takes nothing more, cuts what is under way, and resolves when it has ended. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.flush();
  }

  #refusal(event: EventNote): "rate" | "repeat" | "backlog" | undefined {
    const now = this.#options.clock.monotonic();
    const { metadata } = event.about.object;
    const same = [metadata.uid, metadata.namespace, metadata.name, event.reason, event.note].join("\0");
    const before = this.#said.get(same);
    if (before !== undefined && now - before < REPEAT_MS) return "repeat";
    if (this.#sending.size >= MAX_BACKLOG) return "backlog";
    this.#tokens = Math.min(BURST, this.#tokens + ((now - this.#filledAt) / 1_000) * RATE);
    this.#filledAt = now;
    if (this.#tokens < 1) return "rate";
    this.#tokens -= 1;
    this.#said.delete(same);
    this.#said.set(same, now);
    // Oldest first: a Map keeps the order of insertion.
    for (const [key] of this.#said) {
      if (this.#said.size <= MAX_REMEMBERED) break;
      this.#said.delete(key);
    }
    return undefined;
  }

  /** Never rejects. */
  async #send({ about, type, reason, action, note }: EventNote): Promise<void> {
    const { client, controller, instance } = this.#options;
    const { name, uid, resourceVersion } = about.object.metadata;
    const namespace = about.object.metadata.namespace ?? "default";
    const timeout = new AbortController();
    const timer = setTimeout(() => timeout.abort(), TIMEOUT_MS);
    const stop = (): void => timeout.abort();
    this.#stopping.signal.addEventListener("abort", stop, { once: true });
    try {
      await client.create(
        EVENTS,
        {
          metadata: { namespace, name: `${name.slice(0, 230)}.${randomBytes(8).toString("hex")}` },
          eventTime: `${(this.#options.now?.() ?? new Date()).toISOString().slice(0, -1)}000Z`,
          reportingController: controller,
          reportingInstance: instance.slice(0, MAX_WORD),
          action: action.slice(0, MAX_WORD),
          reason: reason.slice(0, MAX_WORD),
          regarding: {
            apiVersion: apiVersionOf(about.resource),
            kind: about.resource.kind,
            name,
            ...(about.object.metadata.namespace === undefined ? {} : { namespace }),
            ...(uid === undefined ? {} : { uid }),
            ...(resourceVersion === undefined ? {} : { resourceVersion }),
          },
          note: cut(note),
          type,
        },
        { signal: timeout.signal },
      );
    } catch {
      this.#options.dropped?.("failed");
    } finally {
      clearTimeout(timer);
      this.#stopping.signal.removeEventListener("abort", stop);
    }
  }
}

/** The API counts bytes; a character is never cut in two. */
function cut(note: string): string {
  if (Buffer.byteLength(note) <= MAX_NOTE) return note;
  const bytes = Buffer.from(note).subarray(0, MAX_NOTE - Buffer.byteLength("…"));
  return `${bytes.toString("utf8").replace(/\uFFFD$/, "")}…`;
}
