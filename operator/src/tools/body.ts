/**
 * What is kept of an answer's body, however long it is: its first and last bytes and its size. The text made from it
 * is safe to store: no NUL (PostgreSQL refuses it), no half characters.
 */

/** What a model reads of one answer, in bytes: a page of facts; more of it costs every later call of the run. */
export const MAX_OBSERVATION = 16 * 1024;
/** Most answers say what they are at their beginning, and how they went at their end. */
export const HEAD_BYTES = 11 * 1024;
export const TAIL_BYTES = 4 * 1024;
/** Reading stops here: what follows could not be shown anyway, and an endless body must not hold the run. */
export const MAX_READ = 4 * 1024 * 1024;

/** Share of undecodable characters from which on a body is not text. */
const BINARY_SHARE = 0.1;

export class BoundedBody {
  #head = Buffer.alloc(0);
  #tail = Buffer.alloc(0);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get full(): boolean {
    return this.#size >= MAX_READ;
  }

  push(chunk: Buffer): void {
    this.#size += chunk.length;
    const room = HEAD_BYTES - this.#head.length;
    if (room > 0) this.#head = Buffer.concat([this.#head, chunk.subarray(0, room)]);
    const rest = chunk.subarray(Math.max(0, room));
    if (rest.length > 0) this.#tail = Buffer.from(Buffer.concat([this.#tail, rest]).subarray(-TAIL_BYTES));
  }

  /** The whole of it as text; undefined: something was left out, or it is no text. */
  whole(): string | undefined {
    if (this.#size > this.#head.length + this.#tail.length) return undefined;
    return asText(Buffer.concat([this.#head, this.#tail]));
  }

  /** `stopped`: reading ended before the body did, so that its size is a lower bound. */
  text(stopped: boolean): string {
    const omitted = this.#size - this.#head.length - this.#tail.length;
    if (omitted === 0 && !stopped) return asText(Buffer.concat([this.#head, this.#tail])) ?? this.#binary("");
    const head = asText(this.#head);
    const tail = asText(this.#tail);
    if (head === undefined || tail === undefined) return this.#binary(stopped ? "at least " : "");
    const total = `${stopped ? "at least " : ""}${this.#size} bytes in all`;
    return `${head}\n[… ${omitted} bytes left out, ${total} …]\n${tail}`;
  }

  #binary(prefix: string): string {
    return `[binary content, ${prefix}${this.#size} bytes, not shown]`;
  }
}

/** Undefined: not text. */
function asText(bytes: Buffer): string | undefined {
  if (bytes.includes(0)) return undefined;
  const text = new TextDecoder().decode(bytes);
  const broken = text.split("\ufffd").length - 1;
  if (broken > 3 && broken > text.length * BINARY_SHARE) return undefined;
  // A cut through a character leaves up to three marks at the edge.
  return text.replace(/^\ufffd{1,3}/, "").replace(/\ufffd{1,3}$/, "");
}

/** At most `bytes` bytes of UTF-8, ending between characters, without NUL or lone surrogates. */
export function clip(text: string, bytes: number): string {
  const safe = text.replaceAll("\0", "\ufffd").toWellFormed();
  const encoded = Buffer.from(safe);
  if (encoded.length <= bytes) return safe;
  return new TextDecoder().decode(encoded.subarray(0, bytes)).replace(/\ufffd{1,3}$/, "");
}
