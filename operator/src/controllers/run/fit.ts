/**
 * Keeps a status small whatever it shows. Every field is cut to its own bound where it is made; past the bound of the
 * whole, text goes in an order of what is missed least: preview, actors, last effects, messages. Counts, ids and
 * conditions never go.
 */
import type { RunStatus } from "@pawl/crds";
import { clip, jsonBytes } from "../text.ts";

/** Thousands of Runs sit in the caches of everybody who watches them. */
export const MAX_STATUS_BYTES = 4_096;
export const MAX_PREVIEW_BYTES = 1_024;
/** As the schema: one sentence or two. */
export const MAX_MESSAGE_BYTES = 256;
export const MAX_NAME_BYTES = 253;
export const MAX_TARGET_BYTES = 128;
export const MAX_WORD_BYTES = 64;
export const MAX_SHORT_BYTES = 32;
export const MAX_ACTORS = 5;
export const MAX_LAST_EFFECTS = 3;
/** A beginning shorter than this says nothing. */
const MIN_PREVIEW_BYTES = 32;
/** What messages are cut to, one step after the other. */
const MESSAGE_STEPS = [128, 64, 0] as const;

export const statusBytes = (status: RunStatus): number => Buffer.byteLength(JSON.stringify(status));

type Shrink = (status: RunStatus, over: number) => RunStatus;

const preview: Shrink = (status, over) => {
  if (status.answer?.preview === undefined) return status;
  const { preview: text, ...answer } = status.answer;
  const room = jsonBytes(text) - over;
  return { ...status, answer: room < MIN_PREVIEW_BYTES ? answer : { ...answer, preview: clip(text, room) } };
};

const oneActor: Shrink = (status) => {
  const actors = status.triggers?.actors ?? [];
  return actors.length === 0 ? status : { ...status, triggers: { ...status.triggers, actors: actors.slice(0, -1) } };
};

const oneEffect: Shrink = (status) => {
  const last = status.effects?.last ?? [];
  return last.length === 0 ? status : { ...status, effects: { ...status.effects, last: last.slice(0, -1) } };
};

const messages =
  (max: number): Shrink =>
  (status) => ({
    ...status,
    ...(status.message === undefined ? {} : { message: clip(status.message, max) }),
    conditions: status.conditions?.map((condition) => ({ ...condition, message: clip(condition.message, max) })),
  });

const ORDER: readonly Shrink[] = [
  preview,
  ...Array.from({ length: MAX_ACTORS }, () => oneActor),
  ...Array.from({ length: MAX_LAST_EFFECTS }, () => oneEffect),
  ...MESSAGE_STEPS.map(messages),
];

export function fit(status: RunStatus, max = MAX_STATUS_BYTES): RunStatus {
  let fitted = status;
  for (const shrink of ORDER) {
    const over = statusBytes(fitted) - max;
    if (over <= 0) break;
    fitted = shrink(fitted, over);
  }
  return fitted;
}
