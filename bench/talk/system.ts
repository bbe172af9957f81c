/** What a system that people talk to is to `mailbox`: opened once in a process of its own, then told everything. */
import type { Said } from "./schedule.ts";

export const MODES = ["enqueue", "amend", "preempt"] as const;
export type Mode = (typeof MODES)[number];
/** Strategies of the Chat SDK for messages that overlap. */
export const STRATEGIES = ["drop", "queue", "burst", "debounce", "concurrent"] as const;
export const PAWL = MODES.map((mode) => `pawl ${mode}` as const);
export const PEERS = STRATEGIES.map((strategy) => `chat ${strategy}` as const);
export const TALKERS = [...PAWL, ...PEERS] as const;
export type Talker = (typeof TALKERS)[number];

export type Talk = { readonly said: readonly Said[]; readonly limitMs: number };

/** What became of everything that was said. */
export type Outcome = {
  /** Answers that somebody got. */
  readonly turns: number;
  /** Times that the model was asked. */
  readonly asked: number;
  /** Neither answered nor taken back by a stop. */
  readonly lost: readonly string[];
  /** Answered more than once. */
  readonly doubled: readonly string[];
  /** Taken back by a stop, or the stop itself. */
  readonly stopped: number;
  /** Milliseconds from a message to the answer to it. */
  readonly waits: readonly number[];
};

export interface TalkSystem {
  /** `url`: an empty database of its own. */
  open(url: string): Promise<void>;
  talk(talk: Talk): Promise<Outcome>;
  close(): Promise<void>;
}
