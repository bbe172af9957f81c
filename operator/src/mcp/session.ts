/** A session with one server: opened when it is needed first, opened anew when the server has forgotten it. */
import { z } from "zod";
import { CLOSE_MS, LIST_MS, PROTOCOL_VERSIONS } from "./limits.ts";
import { endSession, post, type Posted, type WirePorts } from "./wire.ts";

export type Ask = {
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly isRead: boolean;
  readonly signal: AbortSignal;
  readonly sendBy?: number;
  readonly timeLimitMs: number;
};

type Failed = Exclude<Posted, { kind: "result" }>;

const initialized = z.object({ protocolVersion: z.string() });

/** Statuses by which a server says that it does not know the session: the message was not looked at. */
const FORGOTTEN = new Set([400, 404]);

export class McpSession {
  readonly #url: URL;
  readonly #secret: Readonly<Record<string, string>>;
  readonly #ports: WirePorts;
  #open: { id: string | undefined; version: string } | undefined;
  #opening: Promise<Failed | undefined> | undefined;
  #lastId = 0;

  /** `secret`: headers from Secrets, sent with every request. */
  constructor(url: URL, secret: Readonly<Record<string, string>>, ports: WirePorts) {
    this.#url = url;
    this.#secret = secret;
    this.#ports = ports;
  }

  /** Sends a request in the session; once more in a new one when the server has forgotten the old one. */
  async ask(ask: Ask): Promise<Posted> {
    const failed = await this.#ensure(ask);
    if (failed !== undefined) return failed;
    const known = this.#open?.id;
    const answer = await this.#post(ask);
    const forgotten = answer.kind === "status" && FORGOTTEN.has(answer.status) && known !== undefined;
    if (!forgotten) return answer;
    if (this.#open?.id === known) this.#open = undefined;
    return (await this.#ensure(ask)) ?? (await this.#post(ask));
  }

  async close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    if (open?.id === undefined) return;
    await endSession(this.#url, this.#headers(open), CLOSE_MS, this.#ports);
  }

  /** Undefined: there is a session. Opening carries out nothing, so whatever goes wrong in it means: not sent. */
  async #ensure(ask: Ask): Promise<Failed | undefined> {
    if (this.#open !== undefined) return undefined;
    this.#opening ??= this.#initialize(ask).finally(() => {
      this.#opening = undefined;
    });
    const failed = await this.#opening;
    if (failed === undefined) return undefined;
    const why = failed.kind === "not-sent" ? failed.why : `No session could be opened: ${wordsOf(failed)}`;
    return failed.kind === "status" ? failed : { kind: "not-sent", why };
  }

  async #initialize({ signal, sendBy }: Ask): Promise<Failed | undefined> {
    const params = {
      protocolVersion: PROTOCOL_VERSIONS[0],
      capabilities: {},
      clientInfo: { name: "pawl", version: "1" },
    };
    const common = { isRead: true, signal, ...(sendBy === undefined ? {} : { sendBy }), timeLimitMs: LIST_MS };
    const answer = await this.#post({ method: "initialize", params, ...common });
    if (answer.kind !== "result") return answer;
    const said = initialized.safeParse(answer.result);
    const version = said.success ? said.data.protocolVersion : "";
    const id = answer.headers["mcp-session-id"];
    const open = { id: typeof id === "string" ? id : undefined, version };
    if (!(PROTOCOL_VERSIONS as readonly string[]).includes(version)) {
      if (open.id !== undefined) await endSession(this.#url, this.#headers(open), CLOSE_MS, this.#ports);
      const words = version === "" ? "it names no protocol version" : `it speaks protocol ${version.slice(0, 40)}`;
      return { kind: "error", code: 0, message: `${words}; understood are ${PROTOCOL_VERSIONS.join(", ")}` };
    }
    const ready = await post(
      {
        url: this.#url,
        headers: this.#headers(open),
        message: { method: "notifications/initialized" },
        ...common,
        sendBy,
      },
      this.#ports,
    );
    if (ready.kind !== "result") return ready;
    this.#open = open;
    return undefined;
  }

  #post({ method, params, ...rest }: Ask): Promise<Posted> {
    this.#lastId += 1;
    const message = { id: this.#lastId, method, params };
    const headers = this.#headers(this.#open);
    return post({ url: this.#url, headers, message, ...rest, sendBy: rest.sendBy }, this.#ports);
  }

  #headers(open: { id: string | undefined; version: string } | undefined): Record<string, string> {
    return {
      ...this.#secret,
      ...(open?.id === undefined ? {} : { "mcp-session-id": open.id }),
      ...(open === undefined ? {} : { "mcp-protocol-version": open.version }),
    };
  }
}

/** What went wrong, in words for a person. */
export function wordsOf(posted: Failed): string {
  switch (posted.kind) {
    case "not-sent":
    case "no-answer":
      return posted.why;
    case "status":
      return `it answered HTTP ${posted.status}`;
    case "error":
      return posted.message === "" ? `it answered with error ${posted.code}` : posted.message;
  }
}
