/** What a model may ask of `http_request`, and how it is normalised. Pure. */
import { z } from "zod";
import type { ParsedArguments } from "#engine/ports.ts";
import { plainHost } from "./addresses.ts";
import { parseArguments } from "./arguments.ts";

/** Longer addresses are refused by many servers; a model that needs more should use a body. */
export const MAX_URL = 2_048;
export const MAX_HEADERS = 32;
export const MAX_HEADER_VALUE = 4_096;
/** A model writes a body token by token: this is far above what it can and far below what could hurt. */
export const MAX_BODY = 256 * 1024;

export const METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] as const;
const READS = new Set<string>(["GET", "HEAD", "OPTIONS"]);
export const DEFAULT_KEY_HEADER = "Idempotency-Key";

/** Set by the sender, or parts of the message's framing: setting them could smuggle another request. */
const FRAMING =
  "host content-length transfer-encoding connection keep-alive te trailer upgrade expect proxy-connection accept-encoding";
/** Would let a read be taken for a write, past the classification by method. */
const OVERRIDES = "x-http-method-override x-http-method x-method-override";
/** Credentials belong to the Agent, never to what a model says. */
const CREDENTIALS = "authorization proxy-authorization cookie";
const FORBIDDEN = new Set([...`${FRAMING} ${OVERRIDES} ${CREDENTIALS}`.split(" "), DEFAULT_KEY_HEADER.toLowerCase()]);

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

export const requestSchema = z.strictObject({
  method: z.enum(METHODS).describe("GET, HEAD and OPTIONS read; the others change something at the receiver"),
  url: z.string().min(1).max(MAX_URL).describe("Absolute http or https address"),
  headers: z.record(z.string(), z.string()).optional(),
  body: z
    .union([z.string(), z.looseObject({}), z.array(z.unknown())])
    .optional()
    .describe("Text, or JSON that is sent as application/json"),
});

export type RequestArguments = {
  readonly method: (typeof METHODS)[number];
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
};

export const isRead = (method: string): boolean => READS.has(method);

export function parseRequest(args: unknown): ParsedArguments {
  const shape = parseArguments(requestSchema, withUpperMethod(args));
  if (!shape.ok) return shape;
  const { method, url, headers = {}, body } = shape.value as z.infer<typeof requestSchema>;
  const wrong = checkUrl(url) ?? checkHeaders(headers) ?? checkBody(method, body);
  if (wrong !== undefined) return { ok: false, message: wrong };
  const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  const type =
    text === undefined ? {} : { "content-type": isJson(text) ? "application/json" : "text/plain; charset=utf-8" };
  const value = { method, url, headers: { ...type, ...lower }, ...(text === undefined ? {} : { body: text }) };
  return { ok: true, value: value satisfies RequestArguments };
}

function withUpperMethod(args: unknown): unknown {
  if (typeof args !== "object" || args === null || !("method" in args) || typeof args.method !== "string") return args;
  return { ...args, method: args.method.toUpperCase() };
}

function checkUrl(text: string): string | undefined {
  const url = URL.parse(text);
  if (url === null) return "url: not an absolute address";
  if (url.protocol !== "http:" && url.protocol !== "https:") return "url: only http and https are supported";
  if (url.username !== "" || url.password !== "") return "url: it must not contain a user name or password";
  return undefined;
}

export function checkHeaders(headers: Readonly<Record<string, string>>): string | undefined {
  const entries = Object.entries(headers);
  if (entries.length > MAX_HEADERS) return `headers: at most ${MAX_HEADERS}`;
  const seen = new Set<string>();
  for (const [name, value] of entries) {
    const lower = name.toLowerCase();
    if (!HEADER_NAME.test(name)) return `headers: "${name.slice(0, 40)}" is not a header name`;
    if (FORBIDDEN.has(lower)) return `headers: ${lower} is set by the system and cannot be given`;
    if (seen.has(lower)) return `headers: ${lower} is given twice`;
    seen.add(lower);
    if (value.length > MAX_HEADER_VALUE) return `headers: ${lower} is longer than ${MAX_HEADER_VALUE} characters`;
    if (!HEADER_VALUE.test(value)) return `headers: ${lower} contains characters that a header cannot carry`;
  }
  return undefined;
}

function checkBody(method: string, body: unknown): string | undefined {
  if (body === undefined) return undefined;
  if (isRead(method)) return `body: a ${method} request has none; use POST, PUT or PATCH to send something`;
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return Buffer.byteLength(text) > MAX_BODY ? `body: at most ${MAX_BODY} bytes` : undefined;
}

/** The header that carries the effect's id, or a sentence why the declared one cannot. */
export function keyHeaderFor(declared: string | undefined): { ok: true; name: string } | { ok: false; why: string } {
  const name = declared ?? DEFAULT_KEY_HEADER;
  const lower = name.toLowerCase();
  const usable = HEADER_NAME.test(name) && (lower === DEFAULT_KEY_HEADER.toLowerCase() || !FORBIDDEN.has(lower));
  return usable
    ? { ok: true, name }
    : { ok: false, why: `The Agent declares a key header that cannot be one: ${name}.` };
}

function isJson(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null;
  } catch {
    return false;
  }
}

/**
 * The address as one spelling: no fragment, no default port, lower-case host without a final dot, percent-encodings
 * in upper case and only where they are needed. Spellings of one address must not look like two targets.
 */
export function normalUrl(text: string): string {
  const url = new URL(text);
  const host = plainHost(url.hostname);
  const port = url.port === "" ? "" : `:${url.port}`;
  const shown = host.includes(":") ? `[${host}]` : host;
  return `${url.protocol}//${shown}${port}${normalPercent(url.pathname)}${normalPercent(url.search)}`;
}

function normalPercent(text: string): string {
  return text.replaceAll(/%[0-9a-fA-F]{2}/g, (code) => {
    const character = String.fromCharCode(Number.parseInt(code.slice(1), 16));
    return /[A-Za-z0-9._~-]/.test(character) ? character : code.toUpperCase();
  });
}
