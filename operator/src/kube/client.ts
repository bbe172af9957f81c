/**
 * The API server's verbs on untyped JSON. Every call takes an AbortSignal and has a timeout; nothing is retried here.
 * Failures are KubeErrors: 404 is a result where it can be one, 409 and 410 are conflicts, 400, 403 and 422 terminal
 * with the server's words, 401, 429, 5xx and silence transient.
 */
import { type Connection, connect, type ConnectOptions } from "./connection.ts";
import { answerError, KubeError, statusOf } from "./errors.ts";
import { type Answer, exchange, succeed } from "./http.ts";
import {
  apiVersionOf,
  type KubeObject,
  NAMESPACES,
  type NewObject,
  pathOf,
  type Ref,
  type Resource,
  wording,
} from "./resources.ts";
import { watch, type WatchEvent } from "./watch.ts";

export type Found = { readonly found: true; readonly object: KubeObject };
/** `missing: "type"`: the server does not know the kind (its CRD is gone or not there yet); says nothing about objects. */
export type Missing = { readonly found: false; readonly missing: "object" | "type"; readonly message: string };

export type Page = {
  readonly items: readonly KubeObject[];
  readonly resourceVersion: string;
  /** Token for the next page; undefined at the end. */
  readonly continue: string | undefined;
};

export type Selection = {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
};

/** What a write to an object that may have changed must carry. */
export type Fence = { readonly resourceVersion: string };

export type ClientOptions = {
  /** Longest wait for one answer, in milliseconds. */
  readonly timeoutMs?: number;
  /** Owner of fields in server-side apply. */
  readonly fieldManager?: string;
};

type Options = { readonly signal?: AbortSignal | undefined };
type WriteOptions = Options & { readonly dryRun?: boolean };

const TIMEOUT_MS = 15_000;
/** A page of 500 objects takes seconds on a small server. */
const LIST_TIMEOUT_MS = 30_000;

const APPLY = "application/apply-patch+yaml";
const MERGE = "application/merge-patch+json";

export class KubeClient implements AsyncDisposable {
  readonly #connection: Connection;
  readonly #timeoutMs: number;
  readonly fieldManager: string;

  constructor(connection: Connection, options: ClientOptions = {}) {
    this.#connection = connection;
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    this.fieldManager = options.fieldManager ?? "pawl";
  }

  static connect(options: ConnectOptions & ClientOptions): KubeClient {
    return new KubeClient(connect(options), options);
  }

  /** The namespace of the context or of the pod this runs in. */
  get namespace(): string | undefined {
    return this.#connection.namespace;
  }

  async get(of: Resource, ref: Ref, options: Options = {}): Promise<Found | Missing> {
    const what = wording("get", of, ref);
    const answer = await exchange(this.#connection, {
      method: "GET",
      path: pathOf(of, ref),
      what,
      timeoutMs: this.#timeoutMs,
      ...options,
    });
    if (answer.code === 200) return { found: true, object: objectOf(answer, what) };
    const error = answerError(answer.code, answer.body, answer.headers["retry-after"], what);
    if (answer.code !== 404) throw error;
    const { reason, details } = statusOf(answer.body);
    // Only an answer about this very object says that it is gone; proxies and missing CRDs answer 404 too.
    const exact =
      reason === "NotFound" &&
      details?.name === ref.name &&
      details.kind === of.plural &&
      (details.group ?? "") === of.group;
    return { found: false, missing: exact ? "object" : "type", message: error.message };
  }

  /** One page. Throws conflict/Expired when `continue` is too old. Reads the newest state (quorum). */
  async listPage(
    of: Resource,
    selection: Selection,
    page: { limit: number; continue?: string | undefined },
    options: Options = {},
  ): Promise<Page> {
    const { namespace, ...selectors } = selection;
    const where = namespace === undefined ? {} : { namespace };
    const answer = await succeed(this.#connection, {
      method: "GET",
      path: pathOf(of, where),
      query: { ...selectors, limit: page.limit, continue: page.continue },
      what: wording("list", of, where),
      timeoutMs: Math.max(this.#timeoutMs, LIST_TIMEOUT_MS),
      ...options,
    });
    const list = (answer.body ?? {}) as {
      items?: KubeObject[];
      metadata?: { resourceVersion?: string; continue?: string };
    };
    if (!Array.isArray(list.items) || list.metadata?.resourceVersion === undefined) {
      throw new KubeError("transient", "AnswerMalformed", `${wording("list", of, where)}: the answer is not a list`);
    }
    return {
      items: list.items,
      resourceVersion: list.metadata.resourceVersion,
      continue: list.metadata.continue || undefined,
    };
  }

  /** All objects, in pages. */
  async list(of: Resource, selection: Selection = {}, options: Options = {}): Promise<KubeObject[]> {
    const items: KubeObject[] = [];
    let token: string | undefined;
    do {
      const page = await this.listPage(of, selection, { limit: 500, continue: token }, options);
      items.push(...page.items);
      token = page.continue;
    } while (token !== undefined);
    return items;
  }

  /** Creates; unknown fields are refused. Throws conflict/AlreadyExists when the name is taken. */
  async create(of: Resource, object: NewObject, options: WriteOptions = {}): Promise<KubeObject> {
    const where = object.metadata.namespace === undefined ? {} : { namespace: object.metadata.namespace };
    const named = object.metadata.name === undefined ? where : { ...where, name: object.metadata.name };
    const answer = await succeed(this.#connection, {
      method: "POST",
      path: pathOf(of, where),
      query: {
        fieldManager: this.fieldManager,
        fieldValidation: "Strict",
        dryRun: options.dryRun === true ? "All" : undefined,
      },
      body: { apiVersion: apiVersionOf(of), kind: of.kind, ...object },
      what: wording("create", of, named),
      timeoutMs: this.#timeoutMs,
      signal: options.signal,
    });
    return objectOf(answer, wording("create", of, named));
  }

  /**
   * Server-side apply of the fields in `object`, taking them over from others. With `metadata.uid` it creates nothing;
   * with `metadata.resourceVersion` it is refused (conflict) once somebody else has written.
   */
  async apply(of: Resource, object: KubeObject, options: WriteOptions = {}): Promise<KubeObject> {
    return await this.#patch(of, object, undefined, APPLY, options);
  }

  /**
   * Server-side apply of the whole status: fields that are not in it go. Fenced by the resourceVersion that was read;
   * the server ignores a uid here. Throws conflict when somebody wrote first or the object is gone (`NotFound`).
   */
  async applyStatus(
    of: Resource,
    ref: Ref,
    fence: Fence,
    status: unknown,
    options: WriteOptions = {},
  ): Promise<KubeObject> {
    return await this.#status(of, { metadata: { ...ref, ...fence }, status }, APPLY, options);
  }

  /** Merge patch of the status: changes what it names (null takes away), leaves the rest. Fenced like `applyStatus`. */
  async mergeStatus(
    of: Resource,
    ref: Ref,
    fence: Fence,
    status: unknown,
    options: WriteOptions = {},
  ): Promise<KubeObject> {
    return await this.#status(of, { metadata: { ...ref, ...fence }, status }, MERGE, options);
  }

  /** Merge patch of anything but the status. Put the resourceVersion into `patch.metadata` to fence it. */
  async merge(of: Resource, ref: Ref, patch: Record<string, unknown>, options: WriteOptions = {}): Promise<KubeObject> {
    const { metadata, ...rest } = patch as { metadata?: Record<string, unknown> };
    return await this.#patch(of, { ...rest, metadata: { ...metadata, ...ref } }, undefined, MERGE, options);
  }

  /** Deletes, if it still is the object meant. `gone`: it was not there. Throws conflict when it is another one. */
  async delete(
    of: Resource,
    ref: Ref,
    preconditions: { uid?: string; resourceVersion?: string },
    options: WriteOptions = {},
  ): Promise<"deleted" | "gone"> {
    const what = wording("delete", of, ref);
    const answer = await exchange(this.#connection, {
      method: "DELETE",
      path: pathOf(of, ref),
      query: { dryRun: options.dryRun === true ? "All" : undefined },
      body: { kind: "DeleteOptions", apiVersion: "v1", preconditions, propagationPolicy: "Background" },
      what,
      timeoutMs: this.#timeoutMs,
      signal: options.signal,
    });
    if (answer.code >= 200 && answer.code < 300) return "deleted";
    if (answer.code === 404) return "gone";
    throw answerError(answer.code, answer.body, answer.headers["retry-after"], what);
  }

  /** Changes from `resourceVersion` on. See `watch.ts` for how it ends. */
  watch(
    of: Resource,
    selection: Selection,
    from: { resourceVersion: string; timeoutSeconds: number; silenceMs: number },
    options: Options = {},
  ): AsyncGenerator<WatchEvent> {
    const { namespace, ...selectors } = selection;
    const where = namespace === undefined ? {} : { namespace };
    return watch(this.#connection, {
      path: pathOf(of, where),
      query: {
        ...selectors,
        watch: true,
        allowWatchBookmarks: true,
        resourceVersion: from.resourceVersion,
        timeoutSeconds: from.timeoutSeconds,
      },
      what: wording("watch", of, where),
      silenceMs: from.silenceMs,
      signal: options.signal,
    });
  }

  /** The API server's clock, in whole seconds, from the Date header of an answer. */
  async serverTime(options: Options = {}): Promise<Date> {
    const what = "get the API server's time";
    const answer = await succeed(this.#connection, {
      method: "GET",
      path: "/version",
      what,
      timeoutMs: this.#timeoutMs,
      ...options,
    });
    const time = new Date(answer.headers["date"] ?? "");
    if (Number.isNaN(time.getTime()))
      throw new KubeError("transient", "AnswerMalformed", `${what}: the answer has no Date`);
    return time;
  }

  /** What tells one cluster from another: the UID of its namespace kube-system. */
  async kubeSystemUid(options: Options = {}): Promise<string> {
    const answer = await this.get(NAMESPACES, { name: "kube-system" }, options);
    const uid = answer.found ? answer.object.metadata.uid : undefined;
    if (uid === undefined)
      throw new KubeError("transient", "NotFound", "get namespaces kube-system: it is not there yet");
    return uid;
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #status(of: Resource, object: KubeObject, type: string, options: WriteOptions): Promise<KubeObject> {
    return await this.#patch(of, object, "status", type, options);
  }

  async #patch(
    of: Resource,
    object: KubeObject,
    subresource: string | undefined,
    type: string,
    options: WriteOptions,
  ): Promise<KubeObject> {
    const { name, namespace } = object.metadata;
    const ref = namespace === undefined ? { name } : { namespace, name };
    const what = wording(type === APPLY ? "apply" : "patch", of, ref, subresource);
    const answer = await exchange(this.#connection, {
      method: "PATCH",
      path: pathOf(of, ref, subresource),
      query: {
        fieldManager: this.fieldManager,
        force: type === APPLY ? true : undefined,
        fieldValidation: "Strict",
        dryRun: options.dryRun === true ? "All" : undefined,
      },
      body: { apiVersion: apiVersionOf(of), kind: of.kind, ...object },
      contentType: type,
      what,
      timeoutMs: this.#timeoutMs,
      signal: options.signal,
    });
    if (answer.code >= 200 && answer.code < 300) return objectOf(answer, what);
    const error = answerError(answer.code, answer.body, answer.headers["retry-after"], what);
    // To a writer, "gone" is what "changed" is: look again, then decide anew.
    if (answer.code === 404) throw new KubeError("conflict", "NotFound", error.message, { code: 404 });
    throw error;
  }
}

/** A success that carries no object comes from something between us and the server. */
function objectOf({ body, code }: Answer, what: string): KubeObject {
  if (typeof (body as { metadata?: unknown } | null)?.metadata === "object") return body as KubeObject;
  throw new KubeError("transient", "AnswerMalformed", `${what}: the answer is not an object`, { code });
}
