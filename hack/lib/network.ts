// Ports, and whether a server answers.
import { readFileSync } from "node:fs";
import { request } from "node:https";
import { createServer } from "node:net";
import type { Certificate } from "../cluster/pki.ts";

/** Ports that nobody listened on a moment ago; all are held until all are found, so that they differ. */
export async function freePorts(count: number, address = "127.0.0.1"): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, () => {
      return new Promise<ReturnType<typeof createServer>>((resolve, reject) => {
        const server = createServer();
        server.once("error", reject).listen(0, address, () => resolve(server));
      });
    }),
  );
  const ports = servers.map((server) => (server.address() as { port: number }).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

/** GETs a path of an API server; the status code, or 0 when nothing answers within two seconds. */
export function probe(url: string, authority: string, client: Certificate): Promise<number> {
  return new Promise((resolve) => {
    const asked = request(
      url,
      {
        ca: readFileSync(authority),
        cert: readFileSync(client.cert),
        key: readFileSync(client.key),
        timeout: 2_000,
        agent: false,
      },
      (response) => {
        response.resume();
        response.on("end", () => resolve(response.statusCode ?? 0));
        response.on("error", () => resolve(0));
      },
    );
    asked.on("timeout", () => asked.destroy());
    asked.on("error", () => resolve(0));
    asked.end();
  });
}
