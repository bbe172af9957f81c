/**
 * Runs a fake as a process: reads its arguments, listens, and prints one JSON line `{fake, scripted, url}` when ready.
 * With `--die-with-parent` it ends when its standard input closes, so that a killed test leaves nothing behind.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { parseArgs } from "node:util";
import { sendJson } from "./http.ts";
import type { RequestLog } from "./request-log.ts";

export type Handler = (request: IncomingMessage, response: ServerResponse, url: URL) => Promise<void> | void;

const COMMON = {
  host: { type: "string", default: "127.0.0.1" },
  port: { type: "string", default: "0" },
  log: { type: "string" },
  "die-with-parent": { type: "boolean", default: false },
} as const;

export type CommonArguments = { host: string; port: number; log: string | undefined; dieWithParent: boolean };

/** The common arguments and the fake's own string options (`--name value`). Throws on an unknown one. */
export function fakeArguments(
  own: readonly string[],
): CommonArguments & { own: Readonly<Record<string, string | undefined>> } {
  const extra = Object.fromEntries(own.map((name) => [name, { type: "string" as const }]));
  const { values } = parseArgs({ options: { ...extra, ...COMMON }, strict: true });
  const port = Number(values.port);
  if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error(`--port must be 0 to 65535: ${values.port}`);
  const given: Readonly<Record<string, unknown>> = values;
  const text = (name: string): string | undefined => (typeof given[name] === "string" ? given[name] : undefined);
  return {
    host: values.host,
    port,
    log: values.log,
    dieWithParent: values["die-with-parent"],
    own: Object.fromEntries(own.map((name) => [name, text(name)])),
  };
}

/** What every fake serves beside its own service: its history and a health answer. True when it answered. */
export async function serveCommon(
  log: RequestLog,
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
): Promise<boolean> {
  if (request.method !== "GET") return false;
  if (url.pathname === "/healthz") {
    sendJson(response, 200, { ok: true });
    return true;
  }
  if (url.pathname !== "/log") return false;
  await log.atLeast(Number(url.searchParams.get("atLeast") ?? 0), (forget) => response.once("close", forget));
  sendJson(response, 200, log.entries);
  return true;
}

export async function serveFake(options: {
  fake: string;
  arguments: CommonArguments;
  handler: Handler;
  onConnection?: (socket: Socket) => void;
}): Promise<void> {
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://fake");
    void (async () => {
      try {
        await options.handler(request, response, url);
      } catch (error) {
        // A fake that breaks must be seen as broken, not taken for a misbehaving provider.
        process.stderr.write(`fake ${options.fake} failed: ${String(error)}\n`);
        response.destroy();
      }
    })();
  });
  // A held or stalled answer has to last as long as the test needs it.
  server.requestTimeout = 0;
  server.keepAliveTimeout = 60_000;
  if (options.onConnection !== undefined) server.on("connection", options.onConnection);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.arguments.port, options.arguments.host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const host = options.arguments.host === "0.0.0.0" ? "127.0.0.1" : options.arguments.host;
  const url = `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
  process.stdout.write(`${JSON.stringify({ ready: true, fake: options.fake, scripted: true, url })}\n`);
  const stop = (): never => process.exit(0);
  process.once("SIGTERM", stop).once("SIGINT", stop);
  if (options.arguments.dieWithParent) process.stdin.on("end", stop).on("error", stop).resume();
}
