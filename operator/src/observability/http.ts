/** `/healthz` (the process lives), `/readyz` (it can do its work), `/metrics`. Nothing else is served here. */
import { createServer, type Server } from "node:http";
import type { Registry } from "prom-client";
import { PawlError } from "#rules/errors.ts";

export type Probe = { readonly name: string; readonly ready: () => boolean };

export async function serveHealth(
  listen: { host: string; port: number },
  registry: Registry,
  probes: readonly Probe[],
): Promise<{ port: number; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    const answer = (code: number, body: string, type = "text/plain; charset=utf-8") => {
      response.writeHead(code, { "content-type": type }).end(body);
    };
    switch (request.url) {
      case "/healthz":
        return answer(200, "ok\n");
      case "/readyz": {
        const waiting = probes.filter((probe) => !probe.ready()).map((probe) => probe.name);
        return answer(
          waiting.length === 0 ? 200 : 503,
          waiting.length === 0 ? "ok\n" : `waiting for: ${waiting.join(", ")}\n`,
        );
      }
      case "/metrics":
        registry.metrics().then(
          (text) => answer(200, text, registry.contentType),
          () => answer(500, "metrics cannot be collected\n"),
        );
        return;
      default:
        return answer(404, "there are /healthz, /readyz and /metrics\n");
    }
  });
  await listening(server, listen);
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : listen.port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function listening(server: Server, listen: { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error) => {
      const text = `PAWL_LISTEN: cannot listen on ${listen.host}:${listen.port}: ${error.message}`;
      reject(new PawlError("terminal", "ListenRefused", text, { cause: error }));
    });
    server.listen(listen.port, listen.host, resolve);
  });
}
