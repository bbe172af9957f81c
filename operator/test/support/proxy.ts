/** A TCP proxy in front of one server that can go silent: connections stay open and nothing comes through. */
import { connect, createServer, type Server, type Socket } from "node:net";

export type Direction = "requests" | "replies";

export class SilentProxy {
  readonly #server: Server;
  readonly #pairs = new Set<{ client: Socket; upstream: Socket }>();

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(target: { host: string; port: number }): Promise<SilentProxy> {
    const server = createServer();
    const proxy = new SilentProxy(server);
    server.on("connection", (client) => {
      const upstream = connect(target.port, target.host);
      const pair = { client, upstream };
      proxy.#pairs.add(pair);
      for (const socket of [client, upstream]) {
        socket.on("error", () => {});
        socket.on("close", () => {
          client.destroy();
          upstream.destroy();
          proxy.#pairs.delete(pair);
        });
      }
      client.on("data", (chunk) => upstream.write(chunk));
      upstream.on("data", (chunk) => client.write(chunk));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the proxy does not listen");
    return address.port;
  }

  /** From now on the connections that exist carry nothing that way. New ones are not touched. */
  silence(direction: Direction): number {
    for (const { client, upstream } of this.#pairs) {
      const from = direction === "requests" ? client : upstream;
      from.removeAllListeners("data");
      from.resume(); // swallowed, as by a firewall that forgot the connection
    }
    return this.#pairs.size;
  }

  async close(): Promise<void> {
    for (const { client, upstream } of this.#pairs) {
      client.destroy();
      upstream.destroy();
    }
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
