/** The port: servers of one turn, each with at most one session, opened when a tool of it is called or it is listed. */
import type { Credentials, Listing, ListedTool, ServerSessions, ServerSpec, ToolServers } from "#engine/ports.ts";
import { isPawlError } from "#rules/errors.ts";
import { matchesAny } from "#rules/globs.ts";
import { z } from "zod";
import { CALL_MS, LIST_MS, MAX_PAGES, MAX_TOOLS } from "./limits.ts";
import { takeTool } from "./listing.ts";
import { McpSession, wordsOf } from "./session.ts";
import { serverTool } from "./tool.ts";
import type { WirePorts } from "./wire.ts";

export type McpOptions = WirePorts & {
  readonly credentials: Credentials;
  /** How long one call may take from its first byte on. */
  readonly callMs?: number;
};

type Waiting = Extract<Listing, { kind: "waiting" }>;
const page = z.object({ tools: z.array(z.unknown()), nextCursor: z.string().optional() });

const hostOf = (server: ServerSpec): string => new URL(server.url).host;
/** What is sent as a header must be one; a file's last line break is none of it. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]+$/;

export function mcpServers(options: McpOptions): ToolServers {
  return { open: (namespace) => new Sessions(options, namespace) };
}

class Sessions implements ServerSessions {
  readonly #options: McpOptions;
  readonly #namespace: string;
  readonly #sessions = new Map<string, McpSession>();

  constructor(options: McpOptions, namespace: string) {
    this.#options = options;
    this.#namespace = namespace;
  }

  async list(server: ServerSpec, signal: AbortSignal): Promise<Listing> {
    const session = await this.#session(server);
    if (!(session instanceof McpSession)) return session;
    const tools: ListedTool[] = [];
    const leftOut: string[] = [];
    let cursor: string | undefined;
    for (let pages = 0; pages < MAX_PAGES; pages += 1) {
      const params = cursor === undefined ? {} : { cursor };
      const answer = await session.ask({ method: "tools/list", params, isRead: true, signal, timeLimitMs: LIST_MS });
      if (answer.kind !== "result") return unreachable(server, wordsOf(answer));
      const parsed = page.safeParse(answer.result);
      if (!parsed.success) return invalid(server, "its list of tools is none");
      for (const listed of parsed.data.tools) {
        const taken = takeTool(listed);
        if (!taken.ok) leftOut.push(`${server.name}: ${taken.why}`);
        else if (matchesAny(server.tools, taken.tool.name)) tools.push(taken.tool);
      }
      cursor = parsed.data.nextCursor;
      if (cursor === undefined || tools.length > MAX_TOOLS) break;
    }
    if (tools.length > MAX_TOOLS || cursor !== undefined) {
      leftOut.push(`${server.name}: all after the first ${MAX_TOOLS} tools; name the wanted ones in its tools`);
    }
    return { kind: "listed", tools: tools.slice(0, MAX_TOOLS), leftOut };
  }

  tool(...[server, listed, name, words]: Parameters<ServerSessions["tool"]>): ReturnType<ServerSessions["tool"]> {
    const session = async () => {
      const found = await this.#session(server);
      return found instanceof McpSession ? found : found.message;
    };
    return serverTool(server, listed, name, words, { session, timeLimitMs: this.#options.callMs ?? CALL_MS });
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#sessions.values()].map((session) => session.close()));
    this.#sessions.clear();
  }

  async #session(server: ServerSpec): Promise<McpSession | Waiting> {
    const known = this.#sessions.get(server.name);
    if (known !== undefined) return known;
    if (!URL.canParse(server.url)) return invalid(server, "its url is none");
    const secret: Record<string, string> = {};
    for (const { name, secretRef } of server.headers) {
      const answer = await this.#secret(secretRef, server);
      if (answer.kind === "waiting") return answer;
      const value = answer.value.trim();
      if (!HEADER_VALUE.test(value)) return invalid(server, `Secret ${secretRef.name} holds no value of a header`);
      secret[name.toLowerCase()] = value;
    }
    const session = new McpSession(new URL(server.url), secret, this.#options);
    this.#sessions.set(server.name, session);
    return session;
  }

  async #secret(
    ref: ServerSpec["headers"][number]["secretRef"],
    server: ServerSpec,
  ): Promise<{ kind: "found"; value: string } | Waiting> {
    try {
      const answer = await this.#options.credentials.get(this.#namespace, ref, hostOf(server));
      if (answer.kind === "found") return answer;
      const reason = answer.kind === "missing" ? "SecretMissing" : "SecretRefused";
      return { kind: "waiting", reason, message: answer.message };
    } catch (error) {
      if (!isPawlError(error, "transient")) throw error;
      return { kind: "waiting", reason: error.reason, message: error.message };
    }
  }
}

const unreachable = (server: ServerSpec, why: string): Waiting => ({
  kind: "waiting",
  reason: "McpServerUnreachable",
  message: `MCP server ${server.name} at ${hostOf(server)} cannot be reached: ${why}`,
});

const invalid = (server: ServerSpec, why: string): Waiting => ({
  kind: "waiting",
  reason: "McpServerInvalid",
  message: `MCP server ${server.name}: ${why}`,
});
