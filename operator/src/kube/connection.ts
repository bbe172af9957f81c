/**
 * The way to the API server: addresses, certificates and tokens from client-node's KubeConfig (the only use of it),
 * connections from our own pools. client-node itself opens one TLS connection per request, and its typed APIs drop
 * fields that their models do not know.
 */
import { KubeConfig } from "@kubernetes/client-node";
import { Agent, type Dispatcher } from "undici";
import { PawlError } from "#rules/errors.ts";

export type ConnectOptions = {
  /** Where credentials come from. `context` absent: the file's current one. */
  readonly from: { readonly kubeconfig: string; readonly context?: string } | { readonly inCluster: true };
  /** Speak as another user; for tests and tools, needs the right to impersonate. */
  readonly as?: string;
  /** Connections for requests; each open watch has one of its own besides. */
  readonly connections?: number;
};

export type Connection = {
  readonly origin: string;
  /** The namespace of the context or of the pod, if it has one. */
  readonly namespace: string | undefined;
  /** What a request needs at this moment. Throws PawlError(transient) when credentials cannot be read. */
  access(): Promise<Access>;
  /** Credentials were refused: read them again before the next request. */
  forget(): void;
  close(): Promise<void>;
};

export type Access = {
  readonly headers: Readonly<Record<string, string>>;
  readonly requests: Dispatcher;
  /** A pool of its own: every open watch occupies a connection for minutes. */
  readonly watches: Dispatcher;
};

/** Tokens and certificates in a pod are rotated on disk; kubelet does it well before they expire. */
const REREAD_MS = 60_000;
const CONNECT_TIMEOUT_MS = 5_000;
/** Above about ten requests at once an API server on a small machine only queues them. */
const CONNECTIONS = 16;

type Credentials = {
  ca?: unknown;
  cert?: unknown;
  key?: unknown;
  servername?: string;
  rejectUnauthorized?: boolean;
  headers?: Record<string, unknown>;
};

function load(from: ConnectOptions["from"]): KubeConfig {
  const config = new KubeConfig();
  try {
    if ("inCluster" in from) config.loadFromCluster();
    else config.loadFromFile(from.kubeconfig);
  } catch (cause) {
    const where = "inCluster" in from ? "the pod's service account" : from.kubeconfig;
    throw new PawlError("terminal", "KubeconfigUnreadable", `cannot read ${where}: ${(cause as Error).message}`, {
      cause,
    });
  }
  if ("kubeconfig" in from && from.context !== undefined) {
    if (config.getContextObject(from.context) === null) {
      const known = config.getContexts().map(({ name }) => name);
      throw new PawlError(
        "terminal",
        "ContextUnknown",
        `${from.kubeconfig} has no context "${from.context}"; it has: ${known.join(", ")}`,
      );
    }
    config.setCurrentContext(from.context);
  }
  return config;
}

/** Opens no connection yet. Throws PawlError(terminal) when the configuration names no usable cluster. */
export function connect(options: ConnectOptions): Connection {
  const config = load(options.from);
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw new PawlError("terminal", "ClusterMissing", "the kubeconfig's context names no cluster");
  if (cluster.proxyUrl !== undefined && cluster.proxyUrl !== null) {
    throw new PawlError("terminal", "ProxyUnsupported", `proxy-url of cluster "${cluster.name}" is not supported`);
  }
  return new Pools(config, new URL(cluster.server), options);
}

class Pools implements Connection {
  readonly origin: string;
  readonly namespace: string | undefined;
  #config: KubeConfig;
  #refused = false;
  readonly #options: ConnectOptions;
  #access: Access | undefined;
  /** The TLS material that the pools were made with. */
  #material = "";
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<Access> | undefined;
  #closed = false;

  constructor(config: KubeConfig, server: URL, options: ConnectOptions) {
    this.origin = server.origin + server.pathname.replace(/\/$/, "");
    const context = config.getContextObject(config.getCurrentContext());
    this.namespace = context?.namespace;
    this.#config = config;
    this.#options = options;
  }

  async access(): Promise<Access> {
    if (this.#closed) throw new PawlError("cancelled", "Closed", "the connection to the API server was closed");
    if (this.#access !== undefined && performance.now() - this.#readAt < REREAD_MS) return this.#access;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return await this.#reading;
  }

  forget(): void {
    this.#refused = true;
    this.#readAt = Number.NEGATIVE_INFINITY;
  }

  async close(): Promise<void> {
    this.#closed = true;
    const access = this.#access;
    this.#access = undefined;
    await Promise.all([access?.requests.destroy(), access?.watches.destroy()]);
  }

  async #read(): Promise<Access> {
    const read: Credentials = {};
    try {
      // client-node keeps a token for a minute of its own; only a new KubeConfig reads it again at once.
      if (this.#refused) this.#config = load(this.#options.from);
      this.#refused = false;
      await this.#config.applyToHTTPSOptions(read as Parameters<KubeConfig["applyToHTTPSOptions"]>[0]);
    } catch (cause) {
      const why = (cause as Error).message;
      throw new PawlError("transient", "CredentialsUnreadable", `cannot read credentials for the API server: ${why}`, {
        cause,
      });
    }
    const headers = Object.fromEntries(
      Object.entries(read.headers ?? {}).map(([name, value]) => [name.toLowerCase(), String(value)]),
    );
    if (this.#options.as !== undefined) headers["impersonate-user"] = this.#options.as;
    const material = JSON.stringify(
      [read.ca, read.cert, read.key, read.servername, read.rejectUnauthorized].map(String),
    );
    const before = this.#access;
    const pools = before !== undefined && material === this.#material ? before : this.#pools(read);
    if (before !== undefined && before.requests !== pools.requests) this.#retire(before);
    this.#material = material;
    this.#readAt = performance.now();
    this.#access = { headers, requests: pools.requests, watches: pools.watches };
    return this.#access;
  }

  #pools(read: Credentials): Pick<Access, "requests" | "watches"> {
    const tls = Object.fromEntries(
      (["ca", "cert", "key", "servername", "rejectUnauthorized"] as const)
        .filter((name) => read[name] !== undefined && read[name] !== null)
        .map((name) => [name, read[name]]),
    );
    // HTTP/1.1: over h2 everything would share one connection and stall together. Timeouts are the client's.
    const base = {
      allowH2: false,
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: { ...tls, timeout: CONNECT_TIMEOUT_MS },
    };
    return {
      requests: new Agent({ ...base, connections: this.#options.connections ?? CONNECTIONS }),
      watches: new Agent({ ...base, connections: null }),
    };
  }

  /** Certificates were rotated: requests under way may end, open watches are cut and come again with the new ones. */
  #retire(before: Access): void {
    before.requests.close().catch(() => {});
    before.watches.destroy().catch(() => {});
  }
}
