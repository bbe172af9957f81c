/**
 * Stands between a client and an API server and misbehaves on demand. Plain HTTP towards the client (so that it can
 * read and cut what passes), TLS towards the server with an administrator's certificate.
 *
 * `proxy.fault` decides about each request; `proxy.filter` about each event of a watch; the `…Streams` methods act on
 * the watches that are open now. Everything that arrived is in `proxy.requests`.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type RequestOptions, request as plainRequest } from "node:http";
import { Agent, request as tlsRequest } from "node:https";
import type { AddressInfo, Socket } from "node:net";

export type Seen = {
  readonly method: string;
  /** Path with query, as it came. */
  readonly url: string;
  readonly watch: boolean;
  /** performance.now() at arrival. */
  readonly at: number;
};

export type Fault =
  | { readonly kind: "pass" }
  /** Answers instead of the server. */
  | { readonly kind: "status"; readonly code: number; readonly body?: unknown; readonly retryAfter?: number }
  /** Takes the request and says nothing, for ever: a half-open connection. */
  | { readonly kind: "hang" }
  /** Cuts the connection at once. */
  | { readonly kind: "reset" }
  /** Lets the server do it, then cuts the connection instead of answering. */
  | { readonly kind: "swallow" }
  /** Ends a watch cleanly this many milliseconds after its headers. */
  | { readonly kind: "end"; readonly afterMs: number };

export type WatchedEvent = {
  readonly type: string;
  readonly object: { readonly metadata?: { readonly name?: string } };
};

export type FaultProxyOptions = {
  /** `https://…` or `http://…` of the API server. */
  readonly target: string;
  /** PEM texts. */
  readonly tls?: { readonly ca: string | Buffer; readonly cert?: string | Buffer; readonly key?: string | Buffer };
};

type Stream = { readonly response: ServerResponse; readonly upstream: IncomingMessage; silent: boolean };

export class FaultProxy implements AsyncDisposable {
  readonly requests: Seen[] = [];
  /** Connections that clients have opened so far. */
  connections = 0;
  fault: (request: Seen) => Fault = () => ({ kind: "pass" });
  /** False: the event never reaches the client. */
  filter: (event: WatchedEvent) => boolean = () => true;
  readonly #server: Server;
  readonly #target: URL;
  readonly #tls: FaultProxyOptions["tls"];
  readonly #agent: Agent;
  readonly #sockets = new Set<Socket>();
  readonly #streams = new Set<Stream>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #waiting: { matches: (request: Seen) => boolean; resolve: (request: Seen) => void }[] = [];
  #opened: (() => void)[] = [];
  #drained: (() => void)[] = [];

  constructor(options: FaultProxyOptions) {
    this.#target = new URL(options.target);
    this.#tls = options.tls;
    this.#agent = new Agent({ keepAlive: true, ...options.tls });
    this.#server = createServer((request, response) => this.#handle(request, response));
    this.#server.on("connection", (socket) => {
      this.connections += 1;
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(0, "127.0.0.1", resolve);
    });
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The next request that matches, from now on. */
  next(matches: (request: Seen) => boolean = () => true): Promise<Seen> {
    return new Promise((resolve) => this.#waiting.push({ matches, resolve }));
  }

  /** Resolves when a watch is open (its headers have passed); at once if one is. */
  async streaming(): Promise<void> {
    if (this.#streams.size > 0) return;
    await new Promise<void>((resolve) => this.#opened.push(resolve));
  }

  /** Resolves when no watch is open any more. */
  async drained(): Promise<void> {
    if (this.#streams.size === 0) return;
    await new Promise<void>((resolve) => this.#drained.push(resolve));
  }

  /** Puts a line into every open watch. */
  inject(line: string): void {
    for (const { response } of this.#streams) response.write(`${line}\n`);
  }

  /** Half of a line, then a clean end. */
  cutStreams(half: string): void {
    for (const { response } of this.#streams) response.end(half);
  }

  /** Open watches say nothing any more; their connections stay. */
  silenceStreams(): void {
    for (const stream of this.#streams) stream.silent = true;
  }

  endStreams(): void {
    for (const { response } of this.#streams) response.end();
  }

  resetStreams(): void {
    for (const { response } of this.#streams) response.socket?.resetAndDestroy();
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    for (const { upstream } of this.#streams) upstream.destroy();
    this.#agent.destroy();
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #handle(request: IncomingMessage, response: ServerResponse): void {
    const url = request.url ?? "/";
    const seen: Seen = {
      method: request.method ?? "GET",
      url,
      watch: new URL(url, this.#target).searchParams.get("watch") === "true",
      at: performance.now(),
    };
    this.requests.push(seen);
    const fault = this.fault(seen);
    const heard = this.#waiting.filter(({ matches }) => matches(seen));
    this.#waiting = this.#waiting.filter((one) => !heard.includes(one));
    if (fault.kind === "status") answer(request, response, fault);
    else if (fault.kind === "reset") request.socket.resetAndDestroy();
    else if (fault.kind !== "hang") this.#forward(request, response, seen, fault);
    for (const { resolve } of heard) resolve(seen);
  }

  #forward(request: IncomingMessage, response: ServerResponse, seen: Seen, fault: Fault): void {
    const secure = this.#target.protocol === "https:";
    const options: RequestOptions = {
      host: this.#target.hostname,
      port: this.#target.port,
      method: seen.method,
      path: seen.url,
      headers: { ...request.headers, host: this.#target.host },
    };
    const outgoing = secure ? tlsRequest({ ...options, ...this.#tls, agent: this.#agent }) : plainRequest(options);
    outgoing.on("error", () => request.socket.destroy());
    response.on("close", () => outgoing.destroy());
    outgoing.on("response", (upstream) => {
      upstream.on("error", () => response.destroy());
      if (fault.kind === "swallow") {
        upstream.resume();
        upstream.once("end", () => request.socket.resetAndDestroy());
        return;
      }
      response.writeHead(upstream.statusCode ?? 502, withoutFraming(upstream.headers));
      if (seen.watch && upstream.statusCode === 200) this.#stream(upstream, response, fault);
      else upstream.pipe(response);
    });
    request.pipe(outgoing);
  }

  #stream(upstream: IncomingMessage, response: ServerResponse, fault: Fault): void {
    const stream: Stream = { response, upstream, silent: false };
    response.flushHeaders();
    this.#streams.add(stream);
    response.once("close", () => {
      this.#streams.delete(stream);
      upstream.destroy();
      if (this.#streams.size === 0) for (const resolve of this.#drained.splice(0)) resolve();
    });
    if (fault.kind === "end") {
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        response.end();
      }, fault.afterMs);
      this.#timers.add(timer);
    }
    let rest = "";
    upstream.setEncoding("utf8");
    upstream.on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#pass(line, stream);
    });
    upstream.on("end", () => {
      if (!stream.silent) response.end();
    });
    for (const resolve of this.#opened.splice(0)) resolve();
  }

  #pass(line: string, { response, silent }: Stream): void {
    if (silent || response.writableEnded) return;
    if (this.filter(JSON.parse(line) as WatchedEvent)) response.write(`${line}\n`);
  }
}

/** What belongs to one connection must not be copied to another. */
function withoutFraming(headers: IncomingMessage["headers"]): IncomingMessage["headers"] {
  const { connection: _, "transfer-encoding": __, "keep-alive": ___, ...rest } = headers;
  return rest;
}

function answer(request: IncomingMessage, response: ServerResponse, fault: Extract<Fault, { kind: "status" }>): void {
  const headers = fault.retryAfter === undefined ? {} : { "retry-after": String(fault.retryAfter) };
  request.resume();
  if (fault.body === undefined) {
    response.writeHead(fault.code, { ...headers, "content-type": "text/plain" });
    response.end(`fault ${fault.code}`);
    return;
  }
  response.writeHead(fault.code, { ...headers, "content-type": "application/json" });
  response.end(JSON.stringify(fault.body));
}

export const startFaultProxy = async (options: FaultProxyOptions): Promise<FaultProxy> =>
  await new FaultProxy(options).listen();
