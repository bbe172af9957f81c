/** What is drawn: the operations of a sequence, how often each, and the policy of its agent. */
import fc from "fast-check";
import { AFTER_COMMIT, MID_TURN, WHO } from "#rules/interrupt.ts";

export const WORKERS = 2;

const WEIGHTS = {
  deliver: 7,
  duplicate: 1,
  classify: 6,
  takeBack: 1,
  claim: 5,
  ask: 3,
  say: 5,
  cross: 5,
  close: 3,
  finish: 4,
  lapse: 1,
  time: 2,
  race: 10,
} as const;
export type Kind = keyof typeof WEIGHTS;
/** What can happen at the same moment in one conversation. */
const RACERS = ["deliver", "classify", "takeBack", "say", "cross", "close", "finish"] as const satisfies Kind[];
const weighted = fc.oneof(
  ...Object.entries(WEIGHTS).map(([kind, weight]) => ({ weight, arbitrary: fc.constant(kind as Kind) })),
);
const step = fc.record({
  kind: weighted,
  with: fc.tuple(fc.constantFrom(...RACERS), fc.constantFrom(...RACERS)),
  conversation: fc.constantFrom(0, 0, 0, 1),
  worker: fc.nat(WORKERS - 1),
  pick: fc.nat(10_000),
});
export type MailStep = typeof step extends fc.Arbitrary<infer T> ? T : never;
export const mailSequence = fc.record({
  who: fc.constantFrom(...WHO),
  midTurn: fc.constantFrom(...MID_TURN, "preempt", "amend"),
  afterCommit: fc.constantFrom(...AFTER_COMMIT),
  quiet: fc.boolean(),
  maxCount: fc.constantFrom(2, 20),
  maxSupersessions: fc.constantFrom(1, 3),
  steps: fc.array(step, { minLength: 8, maxLength: 18, size: "max" }),
});
export type MailSequence = typeof mailSequence extends fc.Arbitrary<infer T> ? T : never;
