/**
 * A stand-in for an MCP server (streamable HTTP) that keeps its side of the protocol and holds clients to theirs: what a
 * lax server would let pass is answered with a 4xx and kept under GET /rejected. Every call that is carried out is logged.
 *
 * node fakes/src/mcp-main.ts --port 0 --log FILE [--key SECRET]
 *
 * Service: POST and DELETE /mcp. Control: PUT and DELETE /control (see mcp-modes.ts), POST /restart (forgets every
 * session), POST /release, GET /rejected, GET /tickets, GET /log[?atLeast=N], GET /healthz. With --key every request of
 * the service needs `Authorization: Bearer SECRET`.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { parseJson, readBody, sendJson } from "./http.ts";
import { type McpMode, McpModes, mcpControl } from "./mcp-modes.ts";
import { type ListedTool, type ToolAnswer, Tracker, trackerTools } from "./mcp-tracker.ts";
import { RequestLog } from "./request-log.ts";
import { fakeArguments, serveCommon, serveFake } from "./serve.ts";

const VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26"];

type Session = { readonly version: string; initialized: boolean; readonly ids: Set<unknown> };
type Message = {
  readonly jsonrpc?: unknown;
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: Readonly<Record<string, unknown>>;
};

const options = fakeArguments(["key"]);
const log = new RequestLog(options.log, {
  fake: "mcp",
  note: "a stand-in for an MCP server; calls that were carried out",
});
const modes = new McpModes();
const sessions = new Map<string, Session>();
const rejected: { why: string; message: unknown }[] = [];
const held = new Set<() => void>();
const tracker = new Tracker();
let tools: ListedTool[] = trackerTools();
let answers: "json" | "stream" = "json";
let pageSize = 100;
let forcedVersion: string | undefined;

class Rejected extends Error {
  readonly status: number;
  constructor(status: number, why: string) {
    super(why);
    this.status = status;
  }
}

/** Throws Rejected for what the protocol does not allow. */
function checkRequest(request: IncomingMessage): void {
  const { accept = "", authorization } = request.headers;
  if (options.own["key"] !== undefined && authorization !== `Bearer ${options.own["key"]}`)
    throw new Rejected(401, "not authorized");
  if (!accept.includes("application/json") || !accept.includes("text/event-stream"))
    throw new Rejected(406, "Accept must name application/json and text/event-stream");
  if (request.headers["content-type"]?.split(";")[0] !== "application/json")
    throw new Rejected(415, "Content-Type must be application/json");
}

function sessionOf(request: IncomingMessage): Session {
  const id = request.headers["mcp-session-id"];
  if (typeof id !== "string") throw new Rejected(400, "Mcp-Session-Id is missing");
  const session = sessions.get(id);
  if (session === undefined) throw new Rejected(404, "no such session");
  if (request.headers["mcp-protocol-version"] !== session.version)
    throw new Rejected(400, `MCP-Protocol-Version must be ${session.version}`);
  return session;
}

function checkMessage(message: Message, session: Session): void {
  if (message.id === undefined) return;
  if (!session.initialized && message.method !== "ping") throw new Rejected(400, "not initialized yet");
  if (session.ids.has(message.id)) throw new Rejected(400, "the id was used before");
  session.ids.add(message.id);
}

function initialize(message: Message, response: ServerResponse): void {
  const { protocolVersion: asked, capabilities, clientInfo } = message.params ?? {};
  if (typeof asked !== "string" || typeof capabilities !== "object" || typeof clientInfo !== "object")
    throw new Rejected(400, "initialize needs protocolVersion, capabilities and clientInfo");
  const version = forcedVersion ?? (VERSIONS.includes(asked) ? asked : (VERSIONS[0] ?? ""));
  const id = randomUUID();
  sessions.set(id, { version, initialized: false, ids: new Set([message.id]) });
  const result = { protocolVersion: version, capabilities: { tools: {} }, serverInfo: { name: "fake", version: "1" } };
  reply(response, { id: message.id, result }, { "mcp-session-id": id });
}

function reply(response: ServerResponse, body: object, headers: Record<string, string> = {}): void {
  const message = { jsonrpc: "2.0", ...body };
  if (answers === "json") return sendJson(response, 200, message, headers);
  response.writeHead(200, { "content-type": "text/event-stream", ...headers });
  response.write(": a comment\n\n");
  response.write(`event: message\ndata: ${JSON.stringify({ jsonrpc: "2.0", method: "notifications/message" })}\n\n`);
  // The stream stays open: whoever has its answer closes it.
  response.write(`id: 1\r\nevent: message\r\ndata: ${JSON.stringify(message)}\r\n\r\n`);
}

function list(message: Message, response: ServerResponse): void {
  const from = Number(message.params?.["cursor"] ?? 0);
  const next = from + pageSize;
  const page = tools.slice(from, next);
  reply(response, {
    id: message.id,
    result: { tools: page, ...(next < tools.length ? { nextCursor: String(next) } : {}) },
  });
}

const content = ({ isError, value }: ToolAnswer) => ({
  content: [{ type: "text", text: JSON.stringify(value) }],
  structuredContent: value,
  isError,
});

const NOT_DONE: readonly McpMode["mode"][] = ["drop", "refuse", "status"];

async function callTool(message: Message, response: ServerResponse): Promise<void> {
  const { name, arguments: args = {} } = (message.params ?? {}) as {
    name?: string;
    arguments?: Record<string, unknown>;
  };
  if (!tools.some((tool) => tool.name === name) || name === undefined) {
    return reply(response, { id: message.id, error: { code: -32_602, message: `Unknown tool: ${name ?? ""}` } });
  }
  const mode = modes.take(name);
  const error = (code: number) => reply(response, { id: message.id, error: { code, message: "scripted error" } });
  const done = NOT_DONE.includes(mode.mode) ? undefined : tracker.run(name, args);
  if (done !== undefined) log.append({ tool: name, arguments: args, mode: mode.mode, isError: done.isError });
  switch (mode.mode) {
    case "drop":
    case "cut":
      return void response.socket?.resetAndDestroy();
    case "halfway":
      response.writeHead(200, { "content-type": "text/event-stream" });
      return void response.write(": soon\n\n", () => response.socket?.resetAndDestroy());
    case "refuse":
    case "error":
      return error(mode.code);
    case "status":
      return sendJson(response, mode.status, { error: "scripted status" });
    case "hold":
      await released(response);
      break;
    case "toolError":
      return reply(response, {
        id: message.id,
        result: { content: [{ type: "text", text: "the tool failed half-way" }], isError: true },
      });
    case "normal":
      break;
  }
  if (done !== undefined) reply(response, { id: message.id, result: content(done) });
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

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const text = await readBody(request);
  if (text === undefined) return void response.destroy();
  const message = parseJson(text) as Message | undefined;
  try {
    checkRequest(request);
    if (typeof message !== "object" || message === null || Array.isArray(message) || message.jsonrpc !== "2.0")
      throw new Rejected(400, "one JSON-RPC message, please");
    if (message.method === "initialize") return initialize(message, response);
    const session = sessionOf(request);
    checkMessage(message, session);
    if (message.method === "notifications/initialized") session.initialized = true;
    if (message.id === undefined) return void response.writeHead(202).end();
    if (message.method === "tools/list") return list(message, response);
    if (message.method === "tools/call") return await callTool(message, response);
    reply(response, { id: message.id, error: { code: -32_601, message: "Method not found" } });
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    // A session that is gone is the server's doing, not the client's.
    if (error.status !== 404) rejected.push({ why: error.message, message });
    sendJson(response, error.status, { jsonrpc: "2.0", id: null, error: { code: -32_000, message: error.message } });
  }
}

async function control(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const parsed = mcpControl.safeParse(parseJson((await readBody(request)) ?? ""));
  if (!parsed.success) return sendJson(response, 400, { error: parsed.error.message });
  const { data } = parsed;
  if ("mode" in data) modes.set(data);
  else if ("answers" in data) answers = data.answers;
  else if ("pageSize" in data) pageSize = data.pageSize;
  else if ("protocolVersion" in data) forcedVersion = data.protocolVersion;
  else if (data.as === null) tools = tools.filter((tool) => tool.name !== data.describe);
  else tools = tools.map((tool) => (tool.name === data.describe ? ({ ...tool, ...data.as } as ListedTool) : tool));
  return sendJson(response, 200, data);
}

function reset(): void {
  modes.clear();
  tools = trackerTools();
  answers = "json";
  pageSize = 100;
  forcedVersion = undefined;
}

async function handle(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
  if (await serveCommon(log, request, response, url)) return;
  switch (`${request.method} ${url.pathname}`) {
    case "POST /mcp":
      return await serve(request, response);
    case "DELETE /mcp":
      sessions.delete(String(request.headers["mcp-session-id"]));
      return void response.writeHead(204).end();
    case "GET /sessions":
      return sendJson(response, 200, [...sessions.keys()]);
    case "GET /rejected":
      return sendJson(response, 200, rejected);
    case "GET /tickets":
      return sendJson(response, 200, tracker.tickets);
    case "POST /restart":
      sessions.clear();
      return sendJson(response, 200, {});
    case "POST /release": {
      const count = held.size;
      for (const release of held) release();
      held.clear();
      return sendJson(response, 200, { released: count });
    }
    case "PUT /control":
      return await control(request, response);
    case "DELETE /control":
      reset();
      return sendJson(response, 200, {});
    default:
      // GET /mcp too: this server has nothing to say by itself.
      return sendJson(response, 405, { error: "not here" });
  }
}

await serveFake({ fake: "mcp", arguments: options, handler: handle });
