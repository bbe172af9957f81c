/**
 * What people say while an agent is at work, the same for every system: 50 conversations, 20 messages each, in four
 * shapes. All of it is said within eleven seconds, and an answer takes most of one: nearly every message meets a turn at work.
 */

export const SHAPES = ["bursts", "trickle", "cross-actor", "stop"] as const;
export type Shape = (typeof SHAPES)[number];

export type Said = {
  readonly id: string;
  readonly conversation: string;
  readonly shape: Shape;
  readonly actor: "alice" | "bob";
  readonly text: string;
  /** Milliseconds from the beginning. */
  readonly atMs: number;
  /** Says nothing but that the work shall stop. */
  readonly stops: boolean;
  /** The chat server delivers it a second time. */
  readonly twice: boolean;
};

export const CONVERSATIONS = 50;
export const MESSAGES = 20;
/** How long an answer takes, once all that it is about is there. */
export const THINK_MS = 800;
/** Every system that can wait for more waits so long. */
export const QUIET_MS = 300;

const SPACING: Readonly<Record<Shape, (index: number) => number>> = {
  // Five messages in a breath, then the person reads.
  bursts: (index) => Math.floor(index / 5) * 3_000 + (index % 5) * 100,
  trickle: (index) => index * 550,
  "cross-actor": (index) => index * 500,
  stop: (index) => index * 520,
};

const said = (conversation: number, index: number): Said => {
  const shape = SHAPES[conversation % SHAPES.length] ?? "bursts";
  const stops = shape === "stop" && index % 5 === 4;
  const id = `c${conversation}m${index}`;
  return {
    id,
    conversation: `c${conversation}`,
    shape,
    actor: shape === "cross-actor" && index % 2 === 1 ? "bob" : "alice",
    text: stops ? "stop" : `Please look into #${id}# as well.`,
    atMs: ((conversation * 37) % QUIET_MS) + SPACING[shape](index),
    stops,
    twice: (conversation + index) % 10 === 0,
  };
};

/** In the order in which it is said. */
export const schedule = (conversations = CONVERSATIONS, messages = MESSAGES): Said[] =>
  Array.from({ length: conversations }, (_, conversation) =>
    Array.from({ length: messages }, (__, index) => said(conversation, index)),
  )
    .flat()
    .toSorted((a, b) => a.atMs - b.atMs);

/** The messages that a text speaks of. */
export const spokenOf = (text: string): string[] => [...text.matchAll(/#(c\d+m\d+)#/g)].map(([, id]) => id ?? "");

/** How long after a message the chat server delivers it again. */
const AGAIN_MS = 60;

/** Says everything at its time; resolves when all of it was taken. `say` is not waited for before the next one is due. */
export async function deliver(what: readonly Said[], say: (one: Said) => Promise<void>): Promise<void> {
  const due = what.flatMap((one) => [
    { one, atMs: one.atMs },
    ...(one.twice ? [{ one, atMs: one.atMs + AGAIN_MS }] : []),
  ]);
  await Promise.all(
    due.map(async ({ one, atMs }) => {
      await new Promise((resolve) => setTimeout(resolve, atMs));
      await say(one);
    }),
  );
}
