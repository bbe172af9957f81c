/** Conditions as `kubectl wait` reads them. Pure: the caller brings the instant. */
import { matching, note, object, oneOf, int, time } from "./fields.ts";
import { z } from "zod";

export const conditionList = (types: readonly [string, ...string[]], messageMax: number, what: string) =>
  z
    .array(
      object("One aspect of the object, with why and since when.", {
        type: oneOf(types, "Which aspect this is about."),
        status: oneOf(["True", "False", "Unknown"], "Whether it holds."),
        observedGeneration: int(0, Number.MAX_SAFE_INTEGER, "The metadata.generation this was decided for.").optional(),
        lastTransitionTime: time("When `status` last changed."),
        reason: matching(/^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$/, 64, "One CamelCase word that says why."),
        message: note(messageMax, "What happened and what to do about it, for a person."),
      }),
    )
    .max(types.length)
    .meta({ description: what, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"] });

export type Condition<T extends string = string, R extends string = string> = {
  type: T;
  status: "True" | "False" | "Unknown";
  observedGeneration?: number | undefined;
  lastTransitionTime: string;
  reason: R;
  message: string;
};

/**
 * The list with one condition set. `lastTransitionTime` moves only when `status` does; generation, reason and message
 * always follow. Order of existing conditions is kept, so that an unchanged set serialises to the same bytes.
 */
export function setCondition<T extends string>(
  conditions: readonly Condition<T>[],
  next: Omit<Condition<T>, "lastTransitionTime">,
  now: Date,
): Condition<T>[] {
  const before = conditions.find(({ type }) => type === next.type);
  const stamp = `${now.toISOString().slice(0, 19)}Z`;
  const made = {
    ...next,
    lastTransitionTime: before?.status === next.status ? before.lastTransitionTime : stamp,
  };
  return before === undefined
    ? [...conditions, made]
    : conditions.map((condition) => (condition.type === next.type ? made : condition));
}
