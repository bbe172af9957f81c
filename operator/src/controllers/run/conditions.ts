/** A Run's conditions, set together so that each speaks of the same generation. Pure. */
import { type Condition, type RunConditionType, type RunStatus, setCondition } from "@pawl/crds";
import { line, reasonWord } from "../text.ts";
import { MAX_MESSAGE_BYTES } from "./fit.ts";

export type Said = {
  readonly status: "True" | "False" | "Unknown";
  readonly reason: string;
  readonly message: string;
};
export type Conditions = Partial<Record<RunConditionType, Said>>;

export const said = (status: Said["status"], reason: string, message: string): Said => ({ status, reason, message });

/** What is not said keeps its verdict; all are stamped with the generation, or `kubectl wait` would wait for ever. */
export function withConditions(
  before: RunStatus | undefined,
  conditions: Conditions,
  generation: number,
  now: Date,
): Condition<RunConditionType>[] {
  let list = (before?.conditions ?? []) as Condition<RunConditionType>[];
  list = list.map((condition) => ({ ...condition, observedGeneration: generation }));
  for (const [type, { status, reason, message }] of Object.entries(conditions) as [RunConditionType, Said][]) {
    list = setCondition(
      list,
      {
        type,
        status,
        reason: reasonWord(reason, "Other"),
        message: line(message, MAX_MESSAGE_BYTES),
        observedGeneration: generation,
      },
      now,
    );
  }
  return list;
}

export const conditionOf = (status: RunStatus | undefined, type: RunConditionType) =>
  status?.conditions?.find((condition) => condition.type === type);

export const isFinished = (status: RunStatus | undefined): boolean =>
  conditionOf(status, "Finished")?.status === "True";
