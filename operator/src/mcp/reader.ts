/** Reads a server's answer until the message that it is about has come: as one JSON body, or in a stream of events. */
import type { Sink } from "#tools/exchange.ts";
import { MAX_ANSWER } from "./limits.ts";

export type RpcMessage = {
  readonly id?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly code?: unknown; readonly message?: unknown };
};

const isMessage = (value: unknown): value is RpcMessage =>
  typeof value === "object" && value !== null && (value as { jsonrpc?: unknown }).jsonrpc === "2.0";

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export class AnswerReader implements Sink {
  readonly #id: number | undefined;
  readonly #decoder = new TextDecoder();
  #stream = false;
  #text = "";
  #size = 0;
  #scanned = 0;
  #found: RpcMessage | undefined;

  /** `id`: of the request; undefined: nothing is answered. */
  constructor(id: number | undefined) {
    this.#id = id;
  }

  begin(_status: number, headers: { readonly "content-type"?: string }): void {
    this.#stream = headers["content-type"]?.startsWith("text/event-stream") === true;
  }

  push(chunk: Buffer): void {
    this.#size += chunk.length;
    if (this.#size > MAX_ANSWER) return;
    this.#text += this.#decoder.decode(chunk, { stream: true });
    if (this.#stream) this.#events();
  }

  /** Nothing more needs to be read: the answer is there, or it is too long. */
  get full(): boolean {
    return this.#found !== undefined || this.#size > MAX_ANSWER;
  }

  /** The message that answers the request; undefined: it has not come (whole). */
  get answer(): RpcMessage | undefined {
    if (this.#found !== undefined || this.#stream || this.#size > MAX_ANSWER) return this.#found;
    return this.#ours(parse(this.#text));
  }

  /** A body that is no answer, for a person: its beginning. */
  get text(): string {
    return this.#text.slice(0, 500);
  }

  #ours(message: unknown): RpcMessage | undefined {
    if (!isMessage(message) || message.id !== this.#id) return undefined;
    return message.result !== undefined || message.error !== undefined ? message : undefined;
  }

  /** Whole events only; what follows the last empty line waits for more. Progress and requests of the server are passed by. */
  #events(): void {
    for (;;) {
      const rest = this.#text.slice(this.#scanned);
      const end = /\r\n\r\n|\n\n|\r\r/.exec(rest);
      if (end === null) return;
      this.#scanned += end.index + end[0].length;
      const data = rest
        .slice(0, end.index)
        .split(/\r\n|\n|\r/)
        .flatMap((line) => (line.startsWith("data:") ? [line.slice(5).replace(/^ /, "")] : []));
      this.#found ??= this.#ours(parse(data.join("\n")));
    }
  }
}
