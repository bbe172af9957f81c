/** `pawl trace RUN [STEP]`: every request of a turn built again from rows, and held against the hash of what was sent. */
import { type Trace, type TracedStep, traceRun } from "#engine/trace.ts";
import type { Runner } from "#ledger/database.ts";
import { PawlError } from "#rules/errors.ts";
import { inline, plain } from "./plain.ts";
import { runIdOf, runUnknown } from "./run-id.ts";

export const TRACE_USAGE = "pawl trace RUN [STEP] [--json] [-n NAMESPACE]";

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

function stepLine(step: TracedStep): string {
  const head = `step ${step.ordinal}  ${step.at.toISOString()}  lease ${step.token}  `;
  switch (step.kind) {
    case "ok":
    case "differs": {
      const { model, messages, tools } = step.request;
      const what = `${inline(model)}, ${counted(messages.length, "message")}, ${counted(tools.length, "tool")}`;
      const verdict =
        step.kind === "ok" ? `hash ok  ${step.kept}` : `hash differs  sent ${step.kept}, rows now give ${step.built}`;
      return `${head}${what}  ${verdict}`;
    }
    case "unknown":
      return `${head}hash cannot be checked: ${inline(step.why)}`;
    case "closing":
      return `${head}no request: Pawl's own words (${inline(step.why)})`;
    default:
      return step satisfies never;
  }
}

/** Pure: what a person reads. */
export function renderTrace({ run, steps }: Trace): string {
  const lines = [`run ${run.id}  ${run.namespace}/${run.agentName}  ${run.status}`, ...steps.map(stepLine)];
  if (steps.length === 0) lines.push("It has no step yet.");
  return plain(lines.join("\n"));
}

/** Whether every request that can be checked is what was sent, and each can be checked. */
export const isProven = ({ steps }: Trace): boolean =>
  steps.every((step) => step.kind === "ok" || step.kind === "closing");

export function parseStep(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const step = Number(text);
  if (!/^\d{1,9}$/.test(text) || step < 1) throw new PawlError("terminal", "Usage", `STEP is a number: ${TRACE_USAGE}`);
  return step;
}

export async function traceOf(
  db: Runner,
  which: {
    readonly namespace: string;
    readonly name: string;
    readonly step: number | undefined;
    readonly json: boolean;
  },
): Promise<{ text: string; proven: boolean }> {
  const trace = await traceRun(db, await runIdOf(db, which.namespace, which.name), which.step);
  if (trace === null) throw runUnknown(which.namespace, which.name);
  const text = which.json ? JSON.stringify(trace.steps, null, 2) : renderTrace(trace);
  return { text, proven: isProven(trace) };
}
