/**
 * What the world fake remembers: one record per write that happened, and, under `/keyed/`, the answer given to each
 * Idempotency-Key. Pure state, no I/O.
 */
import { createHash } from "node:crypto";

export type Answer = { readonly status: number; readonly body: unknown };
export type WriteRecord = {
  readonly id: number;
  readonly method: string;
  readonly path: string;
  readonly key: string | null;
  readonly body: unknown;
};
export type Applied = {
  /** `conflict`: the key came with another request before; nothing was written. */
  readonly outcome: "write" | "replay" | "conflict" | "read";
  readonly writeId: number | null;
  readonly answer: Answer;
};

export const KEYED = "/keyed/";
export const READS = new Set(["GET", "HEAD", "OPTIONS"]);

export const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

export class WorldStore {
  readonly writes: WriteRecord[] = [];
  readonly #answers = new Map<string, { fingerprint: string; writeId: number; answer: Answer }>();

  apply(method: string, path: string, key: string | null, text: string): Applied {
    if (READS.has(method)) return { outcome: "read", writeId: null, answer: this.#read(path) };
    const honoured = key !== null && path.startsWith(KEYED);
    const fingerprint = sha256(JSON.stringify([method, path, text]));
    const earlier = honoured ? this.#answers.get(key) : undefined;
    if (earlier !== undefined && earlier.fingerprint !== fingerprint) {
      const error = "this idempotency key was used for another request";
      return { outcome: "conflict", writeId: null, answer: { status: 422, body: { error } } };
    }
    if (earlier !== undefined) return { outcome: "replay", writeId: earlier.writeId, answer: earlier.answer };
    const record = { id: this.writes.length + 1, method, path, key, body: bodyOf(text) };
    this.writes.push(record);
    const answer = { status: method === "POST" ? 201 : 200, body: { id: record.id, path, body: record.body } };
    if (honoured) this.#answers.set(key, { fingerprint, writeId: record.id, answer });
    return { outcome: "write", writeId: record.id, answer };
  }

  #read(path: string): Answer {
    const match = /^(.*)\/(\d+)$/.exec(path);
    if (match !== null) {
      const found = this.writes.find((entry) => entry.id === Number(match[2]) && entry.path === match[1]);
      return found === undefined ? { status: 404, body: { error: "no such record" } } : { status: 200, body: found };
    }
    return { status: 200, body: { records: this.writes.filter((entry) => entry.path === path) } };
  }
}

function bodyOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
