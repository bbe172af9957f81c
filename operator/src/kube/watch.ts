/**
 * A watch as an async iteration. It ends quietly when the server ends it, and throws a KubeError for everything else:
 * an error status, an ERROR event, a line that is not JSON, a cut, a silence. It never goes on after a doubt.
 */
import type { Connection } from "./connection.ts";
import { answerError, KubeError, streamError } from "./errors.ts";
import { Deadline, failure, open, readBody } from "./http.ts";
import type { KubeObject } from "./resources.ts";

export type WatchEvent = { readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK"; readonly object: KubeObject };

export type WatchCall = {
  readonly path: string;
  readonly query: Readonly<Record<string, string | number | boolean | undefined>>;
  readonly what: string;
  /** Longest silence before the watch counts as dead. The server's bookmarks come once a minute and before its end. */
  readonly silenceMs: number;
  readonly signal?: AbortSignal | undefined;
};

/** etcd takes 1.5 MB; JSON with escapes may be larger. */
const MAX_LINE = 16 * 1024 * 1024;
/** A watch from a given resourceVersion opens at once; a server that does not answer by then will not. */
const OPEN_MS = 15_000;
const NEWLINE = 0x0a;

const TYPES: ReadonlySet<unknown> = new Set(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]);

/** One line of the stream. Throws KubeError for ERROR events and for what is no event. */
export function parseLine(line: string, what: string): WatchEvent {
  let event: { type?: unknown; object?: { metadata?: unknown } };
  try {
    event = JSON.parse(line) as typeof event;
  } catch (cause) {
    throw new KubeError("transient", "WatchGarbled", `${what}: a line of the watch is not JSON`, { cause });
  }
  if (event?.type === "ERROR") throw streamError(event.object, what);
  if (!TYPES.has(event?.type) || typeof event.object?.metadata !== "object") {
    throw new KubeError("transient", "WatchGarbled", `${what}: a line of the watch is no event`);
  }
  return event as WatchEvent;
}

/** Lines of a byte stream, without the newline. What stands after the last newline when the stream ends is dropped. */
async function* lines(body: AsyncIterable<Buffer>, heard: () => void, what: string): AsyncGenerator<string> {
  let parts: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    heard();
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
      parts.push(chunk.subarray(from, at));
      yield Buffer.concat(parts).toString("utf8");
      [parts, size, from] = [[], 0, at + 1];
    }
    parts.push(chunk.subarray(from));
    size += chunk.length - from;
    if (size > MAX_LINE) throw new KubeError("transient", "WatchGarbled", `${what}: a line of the watch is too long`);
  }
}

export async function* watch(connection: Connection, call: WatchCall): AsyncGenerator<WatchEvent> {
  const deadline = new Deadline(Math.min(call.silenceMs, OPEN_MS), call.signal);
  const heard = (): void => deadline.rearm(call.silenceMs);
  try {
    const opened = await open(connection, { ...call, method: "GET" }, "watches", deadline.signal);
    try {
      if (opened.code !== 200) {
        throw answerError(opened.code, await readBody(opened), opened.headers["retry-after"], call.what);
      }
      heard();
      for await (const line of lines(opened.body, heard, call.what)) {
        if (line !== "") yield parseLine(line, call.what);
      }
    } finally {
      // Left early, for whatever reason: the connection must not stay open behind us.
      opened.body.on("error", () => {}).destroy();
    }
  } catch (error) {
    if (deadline.expired) {
      throw new KubeError("transient", "WatchSilent", `${call.what}: nothing was heard for too long`);
    }
    throw failure(error, deadline, call.silenceMs, call.what);
  } finally {
    deadline.stop();
  }
}
