/**
 * The history a fake writes down of what it accepted: the verdict of the crash sweep comes from here, never from what
 * the product says of itself. One JSON object per line, appended synchronously before the answer leaves, so that a
 * request that was answered is always in the file; what a killed fake loses it had not accepted.
 */
import { appendFileSync } from "node:fs";

export type LogEntry = { readonly seq: number; readonly at: string } & Readonly<Record<string, unknown>>;

export class RequestLog {
  readonly #entries: LogEntry[] = [];
  readonly #file: string | undefined;
  readonly #waiting = new Set<{ count: number; resolve: () => void }>();

  /** `file` undefined: kept in memory only. `opening` becomes the first line of the file (seq 0, no request). */
  constructor(file: string | undefined, opening: Readonly<Record<string, unknown>>) {
    this.#file = file;
    this.#write({ seq: 0, at: new Date().toISOString(), event: "started", ...opening });
  }

  append(fields: Readonly<Record<string, unknown>>): LogEntry {
    const entry: LogEntry = { seq: this.#entries.length + 1, at: new Date().toISOString(), ...fields };
    this.#write(entry);
    this.#entries.push(entry);
    for (const waiter of this.#waiting) {
      if (waiter.count > this.#entries.length) continue;
      this.#waiting.delete(waiter);
      waiter.resolve();
    }
    return entry;
  }

  get entries(): readonly LogEntry[] {
    return this.#entries;
  }

  /** Resolves when at least `count` requests were accepted; `onGone` tells when nobody waits any more. */
  async atLeast(count: number, onGone: (forget: () => void) => void): Promise<void> {
    if (this.#entries.length >= count) return;
    await new Promise<void>((resolve) => {
      const waiter = { count, resolve };
      this.#waiting.add(waiter);
      onGone(() => this.#waiting.delete(waiter));
    });
  }

  #write(entry: LogEntry): void {
    if (this.#file !== undefined) appendFileSync(this.#file, `${JSON.stringify(entry)}\n`);
  }
}
