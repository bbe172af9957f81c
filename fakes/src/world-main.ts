/**
 * A stand-in for a service that agents write to. Under `/keyed/…` it honours Idempotency-Key (same key and request:
 * one write, the stored answer again); under every other path, `/plain/…` by custom, it does not.
 *
 * node fakes/src/world-main.ts --port 0 --log FILE
 *
 * Control: PUT and DELETE /control (see world-modes.ts), POST /release, GET /log[?atLeast=N], GET /healthz, GET / (a
 * page). Everything else is service, and is logged before it is answered.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { parseJson, readBody, sendJson } from "./http.ts";
import { RequestLog } from "./request-log.ts";
import { fakeArguments, serveCommon, serveFake } from "./serve.ts";
import { Modes, type WorldMode, worldControl } from "./world-modes.ts";
import { worldPage } from "./world-page.ts";
import { type Answer, sha256, WorldStore } from "./world-store.ts";

/** Enough of a body to recognise it in the log. */
const PREVIEW = 200;

const options = fakeArguments([]);
const log = new RequestLog(options.log, { fake: "world", note: "a stand-in for a service that agents write to" });
const store = new WorldStore();
const modes = new Modes();
const held = new Set<() => void>();
let connectionsToRefuse = 0;

async function serve(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
  const text = await readBody(request);
  if (text === undefined) return void response.destroy();
  const method = request.method ?? "GET";
  const header = request.headers["idempotency-key"];
  const key = typeof header === "string" ? header : null;
  const mode = modes.take(url.pathname);
  if (mode.mode === "drop") return void response.socket?.resetAndDestroy();
  const applied =
    mode.mode === "reject"
      ? { outcome: "rejected", writeId: null, answer: { status: mode.status, body: { error: "rejected" } } }
      : store.apply(method, url.pathname, key, text);
  log.append({
    method,
    path: url.pathname,
    key,
    bodySha256: sha256(text),
    bodyPreview: text.slice(0, PREVIEW),
    headers: request.headers,
    outcome: applied.outcome,
    writeId: applied.writeId,
    mode: mode.mode,
  });
  await answer(response, mode, applied.answer);
}

async function answer(response: ServerResponse, mode: WorldMode, given: Answer): Promise<void> {
  switch (mode.mode) {
    case "hold":
      await released(response);
      return sendJson(response, given.status, given.body);
    case "slow":
      await later(response, mode.delayMs);
      return sendJson(response, given.status, given.body);
    case "cut":
    case "drop":
      return void response.socket?.resetAndDestroy();
    case "partial": {
      const body = JSON.stringify(given.body);
      response.writeHead(given.status, { "content-type": "application/json", "content-length": String(body.length) });
      return void response.write(body.slice(0, body.length / 2), () => response.socket?.resetAndDestroy());
    }
    case "error":
      return sendJson(response, mode.status, { error: "scripted failure after the write" });
    case "garbage":
      return void response.socket?.end("this is not HTTP\r\n\r\n");
    case "reject":
      return sendJson(
        response,
        given.status,
        given.body,
        mode.location === undefined ? {} : { location: mode.location },
      );
    case "big": {
      const body = bigBody(mode.bytes);
      response.writeHead(given.status, { "content-type": "text/plain", "content-length": String(body.length) });
      return void response.end(body);
    }
    case "normal":
      return sendJson(response, given.status, given.body);
  }
}

/** A body whose first and last bytes can be told apart from its middle. */
function bigBody(bytes: number): Buffer {
  const body = Buffer.alloc(bytes, ".");
  body.write("BEGIN");
  body.write("END", Math.max(0, bytes - 3));
  return body;
}

async function released(response: ServerResponse): Promise<void> {
  await new Promise<void>((resolve) => {
    held.add(resolve);
    response.once("close", () => {
      held.delete(resolve);
      resolve();
    });
  });
}

async function later(response: ServerResponse, delayMs: number): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, delayMs);
    response.once("close", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

async function handle(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
  if (await serveCommon(log, request, response, url)) return;
  switch (`${request.method} ${url.pathname}`) {
    case "GET /":
      response.writeHead(200, { "content-type": "text/html; charset=utf-8" });
      return void response.end(worldPage(log.entries, store.writes));
    case "POST /release": {
      const count = held.size;
      for (const release of held) release();
      held.clear();
      return sendJson(response, 200, { released: count });
    }
    case "PUT /control": {
      const parsed = worldControl.safeParse(parseJson((await readBody(request)) ?? ""));
      if (!parsed.success) return sendJson(response, 400, { error: parsed.error.message });
      if ("refuseConnections" in parsed.data) connectionsToRefuse = parsed.data.refuseConnections;
      else modes.set(parsed.data);
      return sendJson(response, 200, parsed.data);
    }
    case "DELETE /control":
      modes.clear();
      connectionsToRefuse = 0;
      return sendJson(response, 200, {});
    default:
      return await serve(request, response, url);
  }
}

await serveFake({
  fake: "world",
  arguments: options,
  handler: handle,
  onConnection: (socket) => {
    if (connectionsToRefuse === 0) return;
    connectionsToRefuse -= 1;
    socket.resetAndDestroy();
  },
});
