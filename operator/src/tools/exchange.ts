/**
 * One HTTP request over one connection that is closed afterwards. The socket is connected before the request exists,
 * so that the look at the clock is the last thing before the first byte: what happens between the two (a pause of the
 * process, at most) is named in the docs and cannot be closed from this side.
 */
import { type IncomingMessage, request as httpRequest } from "node:http";
import type { Socket } from "node:net";
import type { Clock } from "#engine/ports.ts";
import { failpoint } from "#src/failpoints.ts";
import { BoundedBody } from "./body.ts";
import { codeOf, type Dialer } from "./dialer.ts";
import type { Exchange } from "./outcome.ts";

export type Plan = {
  readonly method: string;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
  readonly isRead: boolean;
  readonly signal: AbortSignal;
  /** Monotonic milliseconds. */
  readonly sendBy: number | undefined;
  readonly timeLimitMs: number;
  /** Reads the body as it comes, and says when it has enough. Absent: as much as a model is shown. */
  readonly sink?: Sink;
  /** Of the failpoints in here. */
  readonly name?: string;
};

export interface Sink {
  begin(status: number, headers: IncomingMessage["headers"]): void;
  push(chunk: Buffer): void;
  readonly full: boolean;
}

export type Answer = {
  readonly headers: IncomingMessage["headers"];
  readonly body: BoundedBody;
  /** How reading the body ended: at its end, at the limit, or by a loss (of the connection, of patience). */
  readonly ending: "complete" | "stopped" | "lost";
};

export type Result = { readonly exchange: Exchange; readonly answer?: Answer };

const nameOf = (plan: Plan): string => plan.name ?? "http_request";
const notSent = (why: string): Result => ({ exchange: { kind: "not-sent", why } });
const noAnswer = (why: string): Result => ({ exchange: { kind: "no-answer", why } });

const CANCELLED = "It was cancelled first.";

export async function exchange(plan: Plan, ports: { clock: Clock; dialer: Dialer }): Promise<Result> {
  if (plan.signal.aborted) return notSent(CANCELLED);
  const dialled = await ports.dialer.dial(plan.url, plan.signal);
  if (!dialled.ok) return notSent(plan.signal.aborted ? CANCELLED : dialled.why);
  const over = new AbortController();
  try {
    const result = await send(plan, ports.clock, dialled.socket, over.signal);
    if (result.exchange.kind !== "not-sent") failpoint(`${nameOf(plan)}:answered`);
    return result;
  } finally {
    over.abort();
    dialled.socket.destroy();
  }
}

/** Resolves exactly once; the caller destroys the socket then. */
async function send(plan: Plan, clock: Clock, socket: Socket, over: AbortSignal): Promise<Result> {
  return await new Promise<Result>((resolve) => {
    let sent = false;
    let answered = false;
    const lost = (why: string): void => resolve(sent ? noAnswer(why) : notSent(why));
    const request = httpRequest({
      method: plan.method,
      path: `${plan.url.pathname}${plan.url.search}`,
      headers: { ...plan.headers, host: plan.url.host, connection: "close" },
      setHost: false,
      createConnection: () => socket,
    });
    request.on("error", (error) => {
      if (!answered) lost(`The connection was lost (${codeOf(error)}).`);
    });
    request.on("close", () => {
      if (!answered) lost("The connection was closed without an answer.");
    });
    request.once("finish", () => failpoint(`${nameOf(plan)}:sent`));
    request.once("response", (response) => {
      answered = true;
      void readAnswer(response, over, plan.sink).then((answer) =>
        resolve({ exchange: { kind: "answered", status: response.statusCode ?? 0 }, answer }),
      );
    });
    // With a socket that is already connected, `end` writes to it at once.
    request.once("socket", () => {
      failpoint(`${nameOf(plan)}:connected`);
      const refusal = lastLook(plan, clock, socket);
      if (refusal !== undefined) {
        resolve(notSent(refusal));
        return void request.destroy();
      }
      sent = true;
      request.end(plan.body);
      void limit(plan, clock, over, (why) => {
        if (!answered) resolve(noAnswer(why));
        socket.destroy();
      });
    });
  });
}

/** The last thing before the first byte: why it must not leave, or undefined. */
function lastLook(plan: Plan, clock: Clock, socket: Socket): string | undefined {
  if (plan.signal.aborted) return CANCELLED;
  if (socket.destroyed || !socket.writable) return "The connection was lost again.";
  if (plan.sendBy !== undefined && clock.monotonic() >= plan.sendBy)
    return "The time in which it could be sent had passed.";
  return undefined;
}

/** Ends a request that takes too long, and a read that nobody waits for any more. A write that left is waited for. */
async function limit(plan: Plan, clock: Clock, over: AbortSignal, end: (why: string) => void): Promise<void> {
  const stop = plan.isRead ? AbortSignal.any([over, plan.signal]) : over;
  await clock.sleep(plan.timeLimitMs, stop);
  if (over.aborted) return;
  end(plan.isRead && plan.signal.aborted ? "It was cancelled." : `No answer within ${plan.timeLimitMs / 1000} s.`);
}

async function readAnswer(response: IncomingMessage, over: AbortSignal, sink: Sink | undefined): Promise<Answer> {
  const body = new BoundedBody();
  const { headers } = response;
  sink?.begin(response.statusCode ?? 0, headers);
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      body.push(chunk);
      sink?.push(chunk);
      if ((sink ?? body).full || over.aborted) return { headers, body, ending: "stopped" };
    }
    return { headers, body, ending: response.complete ? "complete" : "lost" };
  } catch {
    return { headers, body, ending: "lost" };
  }
}
