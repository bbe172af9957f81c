/** The few HTTP helpers that the fakes share. Plain node:http: a fake must be able to misbehave below any framework. */
import type { IncomingMessage, ServerResponse } from "node:http";

/** Largest request a fake reads: above any transcript the tests build, below what could exhaust a test machine. */
export const MAX_REQUEST_BYTES = 16 * 1024 * 1024;

/** The whole body, or undefined when the client went away before its end or sent more than MAX_REQUEST_BYTES. */
export async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > MAX_REQUEST_BYTES) return undefined;
      chunks.push(chunk);
    }
  } catch {
    return undefined;
  }
  return request.complete ? Buffer.concat(chunks).toString("utf8") : undefined;
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(text)),
    ...headers,
  });
  response.end(text);
}

/** JSON.parse that answers undefined for text that is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
