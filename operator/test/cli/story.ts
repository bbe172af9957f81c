/** A story as rows tell it, with everything at its quietest. */
import type { Story, StoryCall, StoryEffect, StoryInterrupt, StoryMessage, StoryStep } from "#ledger/story.ts";

export const at = (second: number): Date => new Date(Date.UTC(2026, 0, 2, 9, 0, second));
export const LINE = 110;

export const message = (changes: Partial<StoryMessage> = {}): StoryMessage => ({
  event: "event-1",
  actor: "alice",
  text: "Order tea.",
  at: at(0),
  state: "accounted",
  object: "order-1",
  step: 1,
  role: "trigger",
  ...changes,
});

/** Alice asks to stop. */
export const interrupt = (changes: Partial<StoryInterrupt> = {}): StoryInterrupt => ({
  event: "event-2",
  kind: "stop",
  actor: "alice",
  text: null,
  said: at(14),
  object: null,
  relation: "cancels",
  asked: "cancel",
  done: "cancelled",
  reason: "Buffering",
  source: "policy",
  at: at(14),
  state: "applied",
  now: null,
  ...changes,
});

export const story = (changes: Partial<Story>): Story => ({
  id: "run-1",
  namespace: "shop",
  agent: "clerk",
  generation: 3,
  status: "succeeded",
  live: false,
  reason: null,
  message: null,
  leaseToken: 1,
  leaseOwner: null,
  leaseUntil: null,
  dueAt: null,
  queuedAt: at(0),
  startedAt: at(1),
  endedAt: at(30),
  stopRequestedAt: null,
  committedAt: null,
  messages: [message()],
  steps: [],
  calls: [],
  effects: [],
  interrupts: [],
  approvals: [],
  questions: [],
  inherits: [],
  runs: [],
  reconciles: null,
  reconciledBy: [],
  ...changes,
});

export const step = (ordinal: number, changes: Partial<StoryStep> = {}): StoryStep => ({
  ordinal,
  token: 1,
  at: at(ordinal * 10),
  text: null,
  run: "run-1",
  ...changes,
});

export const write: StoryCall = {
  id: "call-1",
  ordinal: 1,
  tool: "http_request",
  class: "effectful",
  args: { method: "POST" },
  outcome: "real",
  result: "HTTP 201",
  at: at(13),
};

export const effect = (changes: Partial<StoryEffect> = {}): StoryEffect => ({
  id: "effect-1",
  run: "run-1",
  call: "call-1",
  kind: "tool.effect",
  target: "https://shop.example/orders",
  state: "confirmed",
  attempt: 1,
  unsent: false,
  keyed: true,
  token: 1,
  dispatchedAt: at(11),
  settleAt: at(15),
  settledAt: at(12),
  observation: "HTTP 201",
  resolvedBy: null,
  sources: [],
  compensates: null,
  ...changes,
});

export const reply = (ordinal: number, changes: Partial<StoryCall> = {}): StoryCall => ({
  ...write,
  id: `reply-${ordinal}`,
  ordinal,
  tool: "reply",
  class: "reply",
  result: "delivered",
  ...changes,
});
export const replied = (ordinal: number, second: number): StoryEffect =>
  effect({
    id: "effect-r",
    call: `reply-${ordinal}`,
    kind: "reply",
    target: "reply",
    dispatchedAt: at(second),
    settledAt: at(second),
  });
