// Where the scenario is played: lines with their time, the pauses of a person who plays, and what is recorded of it all.
import { setTimeout as delay } from "node:timers/promises";
import { UserError } from "../lib/say.ts";

/** `title`: a scene begins; `line`: something happened; `block`: text without a time; `count`: the kill counter. */
export type Kind = "title" | "line" | "block" | "count";
export type Say = (text: string, kind: Kind) => void;
export type Event = { readonly ms: number; readonly kind: Kind; readonly text: string };

export class Stage {
  readonly events: Event[] = [];
  readonly #started = performance.now();
  readonly #say: Say;
  readonly #next: (prompt: string) => Promise<void>;

  /** `next` waits for the person who plays; unattended it returns at once. */
  constructor(say: Say, next: (prompt: string) => Promise<void>) {
    this.#say = say;
    this.#next = next;
  }

  get ms(): number {
    return Math.round(performance.now() - this.#started);
  }

  #tell(text: string, kind: Kind): void {
    this.events.push({ ms: this.ms, kind, text });
    this.#say(kind === "line" ? `${(this.ms / 1_000).toFixed(1).padStart(5)}s  ${text}` : text, kind);
  }

  title = (text: string): void => this.#tell(text, "title");
  line = (text: string): void => this.#tell(text, "line");
  block = (text: string): void => this.#tell(text, "block");
  count = (text: string): void => this.#tell(text, "count");

  async next(prompt: string): Promise<void> {
    await this.#next(prompt);
  }
}

const LOOK_MS = 25;
/** Longer than every lease and time limit here together; on a busy machine too. */
const PATIENCE_MS = 45_000;

/** Looks until there is something; `what` is for the sentence when it never comes. */
export async function until<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
  const end = performance.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (performance.now() > end) throw new UserError(`Waited ${PATIENCE_MS / 1_000} s for this, in vain: ${what}.`);
    await delay(LOOK_MS);
  }
}

/** The same patience for something that comes by itself. */
export async function within<T>(what: string, wanted: Promise<T>): Promise<T> {
  const over = new AbortController();
  const silence = delay(PATIENCE_MS, undefined, { signal: over.signal }).then(() => {
    throw new UserError(`Waited ${PATIENCE_MS / 1_000} s for this, in vain: ${what}.`);
  });
  try {
    return await Promise.race([wanted, silence]);
  } finally {
    over.abort();
    silence.catch(() => undefined);
  }
}
