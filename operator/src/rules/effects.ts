/**
 * The closed catalogue of effects: everything a turn can do, classified by what cancelling or repeating it costs.
 * Anything nobody classified is `tool.effect`; only code can register an own-store verb (`internal_durable`).
 */
export const EFFECT_CLASSES = ["pure", "internal_durable", "coarse", "effectful", "reply", "additive"] as const;
export type EffectClass = (typeof EFFECT_CLASSES)[number];

export type EffectFacts = {
  readonly class: EffectClass;
  /** Does recording it move the run from `buffering` to `committed`? */
  readonly crosses: boolean;
  /** Does it occupy the reply slot of the logical request? */
  readonly replySlot: boolean;
  /** Is a repeat stopped by matching call and target in the journal? */
  readonly matchedByCall: boolean;
  readonly ifRepeated: string;
};

const facts = (
  effectClass: EffectClass,
  crosses: boolean,
  replySlot: boolean,
  matchedByCall: boolean,
  ifRepeated: string,
): EffectFacts => ({ class: effectClass, crosses, replySlot, matchedByCall, ifRepeated });

export const EFFECTS = {
  "model.inference": facts("pure", false, false, false, "costs tokens"),
  "tool.query": facts("pure", false, false, false, "nothing"),
  "store.verb": facts("internal_durable", false, false, false, "cannot happen: one transaction with its result"),
  "harness.call": facts("internal_durable", false, false, false, "cannot happen: one transaction with its result"),
  "tool.workspace": facts("coarse", true, false, false, "usually harmless: look first"),
  "tool.browser": facts("coarse", true, false, false, "usually harmless: look first"),
  "egress.mutation": facts("effectful", true, false, false, "may double: shown on resume"),
  "tool.effect": facts("effectful", true, false, true, "doubled, so refused"),
  compensation: facts("effectful", true, false, true, "doubled, so refused"),
  reply: facts("reply", true, true, false, "doubled, so never"),
  ack: facts("additive", false, false, false, "a stray notice at most"),
  "progress.notice": facts("additive", false, false, false, "a stray notice at most"),
  question: facts("additive", false, false, false, "a stray notice at most"),
  "approval.request": facts("additive", false, false, false, "a stray notice at most"),
  notice: facts("additive", false, false, false, "a stray notice at most"),
} as const satisfies Record<string, EffectFacts>;

export type EffectKind = keyof typeof EFFECTS;

/** The kinds that leave a row in the journal, in the order of the schema's CHECK. */
export const JOURNALED = [
  "tool.effect",
  "tool.workspace",
  "tool.browser",
  "egress.mutation",
  "compensation",
  "reply",
] as const satisfies readonly EffectKind[];
export type JournaledKind = (typeof JOURNALED)[number];

/**
 * The kind of a call, from the platform team's written word (which wins) and the tool's own. Outside there are two words:
 * one that reads and one that changes something. Any other, the catalogue's own names among them, counts as a change:
 * nobody can declare a reply, or a store verb that would not be journaled; nor can a store verb be made into anything else.
 */
export function effectKind(declared: string | undefined, own: EffectKind = "tool.effect"): EffectKind {
  if (declared === undefined || EFFECTS[own].class === "internal_durable") return own;
  return declared === "tool.query" ? "tool.query" : "tool.effect";
}
