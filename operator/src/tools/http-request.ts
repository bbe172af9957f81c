/**
 * The tool `http_request`: one request to a public address (or to one the install allows). Classified by method: GET,
 * HEAD and OPTIONS read, everything else is an effect on its URL. Redirects are handed back, never followed: where a
 * write goes is the model's decision, on the record.
 */
import type { Clock, Tool, ToolContext, ToolOutcome } from "#engine/ports.ts";
import { jsonSchema } from "./arguments.ts";
import { clip, MAX_OBSERVATION } from "./body.ts";
import type { Dialer } from "./dialer.ts";
import { type Answer, exchange, type Result } from "./exchange.ts";
import {
  isRead,
  keyHeaderFor,
  normalUrl,
  parseRequest,
  type RequestArguments,
  requestSchema,
} from "./http-arguments.ts";
import { verdictOf } from "./outcome.ts";

/** From the first byte to the closed connection: longer than most services need, and the run can bear. */
export const TIME_LIMIT_MS = 30_000;
/** A receipt is for the journal: what happened, and of what was said only what an undo may need. */
export const MAX_RECEIPT = 6 * 1024;
/** Without the answer. */
const MAX_RECEIPT_FACTS = 2 * 1024;
/** JSON of an answer that is kept whole: the thing that was made, not a list of everything. */
export const MAX_RECEIPT_RESULT = 4 * 1024 - 64;
const MAX_RECEIPT_BODY = 512;
const MAX_RECEIPT_FIELD = 256;

/** Answer headers that tell a model something. */
const SHOWN = ["content-type", "location", "retry-after", "etag", "last-modified", "allow"] as const;

export function httpRequestTool(ports: { readonly clock: Clock; readonly dialer: Dialer }): Tool {
  return {
    name: "http_request",
    description:
      "Sends one HTTP request and returns status and body (shortened when long). Redirects are not followed. " +
      "GET, HEAD and OPTIONS read; POST, PUT, PATCH and DELETE change something and are done at most once.",
    parameters: jsonSchema(requestSchema),
    quick: false,
    timeLimitMs: TIME_LIMIT_MS,
    parse: parseRequest,
    effect: (args) => (isRead(requestOf(args).method) ? "tool.query" : "tool.effect"),
    target: (args) => normalUrl(requestOf(args).url),
    source: (args) => new URL(requestOf(args).url).host,
    execute: async (args, context) => await run(requestOf(args), context, ports),
  };
}

/** Only what `parse` let through comes here. */
const requestOf = (args: Readonly<Record<string, unknown>>): RequestArguments => args as RequestArguments;

async function run(
  request: RequestArguments,
  context: ToolContext,
  ports: { clock: Clock; dialer: Dialer },
): Promise<ToolOutcome> {
  const reading = isRead(request.method);
  const key = keyHeaderFor(context.keyHeader);
  if (!key.ok) return { kind: "failed", observation: `Nothing was sent. ${key.why}` };
  if (Object.hasOwn(request.headers, key.name.toLowerCase())) {
    return { kind: "failed", observation: `Nothing was sent. The header ${key.name} is set by the system.` };
  }
  const result = await exchange(
    {
      method: request.method,
      url: new URL(request.url),
      headers: {
        accept: "*/*",
        "accept-encoding": "identity",
        "user-agent": "pawl",
        ...request.headers,
        ...(request.body === undefined && reading
          ? {}
          : { "content-length": `${Buffer.byteLength(request.body ?? "")}` }),
        ...(reading || context.effectId === undefined ? {} : { [key.name]: context.effectId }),
      },
      body: request.body,
      isRead: reading,
      signal: context.signal,
      sendBy: context.sendBy,
      timeLimitMs: context.timeLimitMs,
    },
    ports,
  );
  return toOutcome(request, result, reading);
}

function toOutcome(request: RequestArguments, result: Result, reading: boolean): ToolOutcome {
  const kind = verdictOf(result.exchange, reading);
  const observation = clip(observe(result, kind), MAX_OBSERVATION);
  switch (kind) {
    case "confirmed":
      return { kind, observation, receipt: receiptOf(request, result), partial: isPartial(result) };
    case "failed":
      if (result.exchange.kind === "not-sent") return { kind, observation, unsent: true };
      return reading && isGone(result) ? { kind, observation, absent: true } : { kind, observation };
    case "unknown":
      return { kind, observation };
  }
}

/** "There is nothing at this address": the answer of a service, and to a read it is one. */
const GONE = new Set([404, 410]);
const isGone = ({ exchange: happened }: Result): boolean => happened.kind === "answered" && GONE.has(happened.status);

/** Does what is shown leave something of the answer out? */
const isPartial = ({ answer }: Result): boolean =>
  answer !== undefined && (answer.ending !== "complete" || answer.body.whole() === undefined);

function observe({ exchange: happened, answer }: Result, kind: ToolOutcome["kind"]): string {
  const unsure = "It is not known whether it was carried out: look before you try again.";
  if (happened.kind === "not-sent") return `Nothing was sent. ${happened.why}`;
  if (happened.kind === "no-answer") {
    return kind === "unknown"
      ? `The request was sent. ${happened.why} ${unsure}`
      : `There was no answer. ${happened.why}`;
  }
  const lines = [`HTTP ${happened.status}`, ...(kind === "unknown" ? [unsure] : [])];
  if (answer === undefined) return lines.join("\n");
  for (const name of SHOWN) {
    const value = answer.headers[name];
    if (typeof value === "string") lines.push(`${name}: ${clip(value, MAX_RECEIPT_FIELD)}`);
  }
  if (answer.ending === "lost") lines.push("[the connection was lost before the body was complete]");
  return [...lines, "", bodyText(answer)].join("\n").trimEnd();
}

function bodyText({ headers, body, ending }: Answer): string {
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity" && body.size > 0) {
    return `[content compressed as ${clip(encoding, 40)}, ${body.size} bytes, not shown]`;
  }
  return body.text(ending === "stopped");
}

function receiptOf(request: RequestArguments, { exchange: happened, answer }: Result): Record<string, unknown> {
  const { headers = {}, body } = answer ?? {};
  const field = (name: "location" | "etag"): Record<string, string> => {
    const value = headers[name];
    return typeof value === "string" ? { [name]: clip(value, MAX_RECEIPT_FIELD) } : {};
  };
  const receipt = {
    status: happened.kind === "answered" ? happened.status : 0,
    method: request.method,
    url: clip(normalUrl(request.url), MAX_RECEIPT_BODY),
    bytes: body?.size ?? 0,
    ...field("location"),
    ...field("etag"),
  };
  const said = { ...receipt, ...(answer === undefined ? {} : { body: clip(bodyText(answer), MAX_RECEIPT_BODY) }) };
  // Escapes can make a short text long.
  const facts = Buffer.byteLength(JSON.stringify(said)) <= MAX_RECEIPT_FACTS ? said : receipt;
  const json = answer?.ending === "complete" ? shortJson(answer.body.whole()) : undefined;
  return json === undefined ? facts : { ...facts, result: json };
}

/** The value of JSON that is short enough to be kept; undefined: it is neither. */
export function shortJson(text: string | undefined): unknown {
  if (text === undefined || Buffer.byteLength(text) > MAX_RECEIPT_RESULT) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
