/**
 * One JSON-RPC message to a server and what came back, over the one connection that is closed afterwards: no pool, no
 * redirect, no resumption, so that what is said about a message is said about one sending of it.
 */
import type { Clock } from "#engine/ports.ts";
import type { Dialer } from "#tools/dialer.ts";
import { exchange } from "#tools/exchange.ts";
import { AnswerReader } from "./reader.ts";

export type WirePorts = { readonly clock: Clock; readonly dialer: Dialer };

export type Posting = {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly message: { readonly id?: number; readonly method: string; readonly params?: unknown };
  /** Nothing changes when it is cut short. */
  readonly isRead: boolean;
  readonly signal: AbortSignal;
  readonly sendBy: number | undefined;
  readonly timeLimitMs: number;
};

export type Posted =
  /** No byte left. */
  | { readonly kind: "not-sent"; readonly why: string }
  /** It was sent, and no answer to it came. */
  | { readonly kind: "no-answer"; readonly why: string }
  /** Refused or failed below JSON-RPC. */
  | { readonly kind: "status"; readonly status: number; readonly text: string }
  | { readonly kind: "result"; readonly result: unknown; readonly headers: Readonly<Record<string, unknown>> }
  | { readonly kind: "error"; readonly code: number; readonly message: string };

export async function post(posting: Posting, ports: WirePorts): Promise<Posted> {
  const body = JSON.stringify({ jsonrpc: "2.0", ...posting.message });
  const reader = new AnswerReader(posting.message.id);
  const { exchange: happened, answer } = await exchange(
    {
      method: "POST",
      url: posting.url,
      headers: {
        ...posting.headers,
        accept: "application/json, text/event-stream",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "content-length": `${Buffer.byteLength(body)}`,
        "user-agent": "pawl",
      },
      body,
      isRead: posting.isRead,
      signal: posting.signal,
      sendBy: posting.sendBy,
      timeLimitMs: posting.timeLimitMs,
      sink: reader,
      name: "mcp",
    },
    ports,
  );
  if (happened.kind !== "answered") return happened;
  const { status } = happened;
  const message = reader.answer;
  if (status < 200 || status >= 300) return { kind: "status", status, text: reader.text };
  if (posting.message.id === undefined) return { kind: "result", result: undefined, headers: answer?.headers ?? {} };
  if (message === undefined) return { kind: "no-answer", why: `HTTP ${status} came without an answer to the call.` };
  if (message.error !== undefined) {
    const { code, message: words } = message.error;
    return { kind: "error", code: Number(code), message: typeof words === "string" ? words.slice(0, 2_000) : "" };
  }
  return { kind: "result", result: message.result, headers: answer?.headers ?? {} };
}

/** Ends a session; nobody waits for what the server says to that. */
export async function endSession(
  url: URL,
  headers: Readonly<Record<string, string>>,
  timeLimitMs: number,
  ports: WirePorts,
): Promise<void> {
  const signal = new AbortController().signal;
  const plan = {
    method: "DELETE",
    url,
    headers,
    body: undefined,
    isRead: true,
    signal,
    sendBy: undefined,
    timeLimitMs,
  };
  await exchange({ ...plan, name: "mcp" }, ports);
}
