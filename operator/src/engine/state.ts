/**
 * Looks at what a write changes, by the read that its Agent declares (`effects[].state`): before the write crosses, after
 * it is confirmed, and before an undo of it. A look that fails is no reason to hold a write back: then nothing is
 * recorded, and an undo cannot compare.
 */
import { failpoint } from "#src/failpoints.ts";
import { type State, stateIn } from "#rules/state.ts";
import { fillArguments, type Known } from "#rules/template.ts";
import type { Action } from "./action.ts";
import type { EngineDeps } from "./deps.ts";
import type { StateDeclaration, Tool, ToolOutcome } from "./ports.ts";
import type { Turn } from "./turn.ts";

/** Another second of an unrecorded outcome is another second in which a crash makes it unknown. */
export const MAX_STATE_MS = 5_000;

/** It is kept for an undo only. */
export const keepsState = (tool: Tool): StateDeclaration | undefined =>
  tool.compensate === undefined ? undefined : tool.state;

type Looking = Pick<Turn, "callRun" | "toolset" | "lease">;

/** The read as it is sent; null: it cannot be, with what is known. */
export type Reading = { readonly tool: Tool; readonly args: Readonly<Record<string, unknown>> };

export function readingOf(turn: Looking, state: StateDeclaration, known: Known): Reading | null {
  const tool = turn.toolset.all.get(state.tool);
  const filled = fillArguments(state.arguments, known);
  const parsed = tool !== undefined && filled.ok ? tool.parse(filled.value) : undefined;
  // What the controller was told of it came from a template; this is the call itself.
  if (tool === undefined || parsed?.ok !== true || tool.effect(parsed.value) !== "tool.query") return null;
  return { tool, args: parsed.value };
}

/** Null: it could not be seen. Never throws for what the outside does. */
export async function lookAtState(
  deps: Pick<EngineDeps, "log">,
  turn: Looking,
  reading: Reading | null,
  path: string | undefined,
): Promise<State | null> {
  if (reading === null) return null;
  const { tool, args } = reading;
  failpoint("before:state");
  let answer: ToolOutcome;
  try {
    const timeLimitMs = Math.min(tool.timeLimitMs, MAX_STATE_MS);
    answer = await tool.execute(args, { run: turn.callRun, signal: turn.lease.lost.signal, timeLimitMs });
  } catch (error) {
    deps.log.error({ tool: tool.name, error: (error as Error).message }, "a tool threw");
    return null;
  }
  failpoint("after:state");
  return stateIn(answer, path);
}

/** Before a write crosses; null for writes of which nobody wants to know. */
export async function stateBefore(deps: Pick<EngineDeps, "log">, turn: Looking, action: Action): Promise<State | null> {
  const state = stateOf(action);
  if (state === undefined) return null;
  return lookAtState(deps, turn, readingOf(turn, state, { args: action.args }), state.path);
}

/** After it is confirmed, before that is recorded: one commit tells both. */
export async function stateAfterwards(
  deps: Pick<EngineDeps, "log">,
  turn: Looking,
  action: Action,
  effectId: string,
  receipt: Readonly<Record<string, unknown>>,
): Promise<State | null> {
  const state = stateOf(action);
  if (state === undefined) return null;
  const known = writtenBy(action.args, effectId, receipt);
  return lookAtState(deps, turn, readingOf(turn, state, known), state.path);
}

/** What templates know of a write that took place. */
export const writtenBy = (
  args: Readonly<Record<string, unknown>>,
  effectId: string,
  receipt: Readonly<Record<string, unknown>> | null,
): Known => ({ args, effectId, result: receipt?.["result"] });

/** An undo itself is never undone. */
export const stateOf = ({ tool, compensates }: Action): StateDeclaration | undefined =>
  compensates === undefined ? keepsState(tool) : undefined;
