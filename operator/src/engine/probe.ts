/** One look for a write whose answer was lost: a read by the tool that the Agent declared, made from the write's own call. */
import { failpoint } from "#src/failpoints.ts";
import type { Seen } from "#rules/journal.ts";
import { seenIn } from "#rules/probe.ts";
import { fillArguments, fillText } from "#rules/template.ts";
import type { Action } from "./action.ts";
import type { EngineDeps } from "./deps.ts";
import type { ToolOutcome } from "./ports.ts";
import type { Turn } from "./turn.ts";

export type Look = {
  readonly seen: Seen;
  /** What a person and the model read of it. */
  readonly observation: string;
  /** The answer as JSON, where the tool gave one. */
  readonly result?: unknown;
};

const inconclusive = (why: string): Look => ({ seen: "inconclusive", observation: why });

/** Never throws for what the outside does. `signal`: nobody waits for the answer any more. */
export async function look(
  deps: Pick<EngineDeps, "log">,
  turn: Turn,
  effectId: string,
  action: Action,
  signal: AbortSignal,
): Promise<Look> {
  const { probe } = action.tool;
  const tool = turn.toolset.all.get(probe?.tool ?? "");
  if (probe === undefined || tool === undefined) return inconclusive("The tool that would look for it is gone.");
  const known = { args: action.args, effectId };
  const args = fillArguments(probe.arguments, known);
  const found = fillText(probe.found, known);
  for (const filled of [args, found]) {
    if (!filled.ok) return inconclusive(`It cannot be looked for: {${filled.missing}} is not known.`);
  }
  const parsed = tool.parse(args.ok ? args.value : {});
  if (!parsed.ok) return inconclusive(`It cannot be looked for with ${tool.name}. ${parsed.message}`);
  // The controller's word came from a template; this is the call itself.
  if (tool.effect(parsed.value) !== "tool.query") {
    return inconclusive(`It is not looked for with ${tool.name}: that call would change something.`);
  }
  failpoint("before:probe");
  let answer: ToolOutcome;
  try {
    answer = await tool.execute(parsed.value, { run: turn.callRun, signal, timeLimitMs: tool.timeLimitMs });
  } catch (error) {
    deps.log.error({ tool: tool.name, error: (error as Error).message }, "a tool threw");
    return inconclusive(`${tool.name} failed in an unexpected way.`);
  }
  failpoint("after:probe");
  const seen = seenIn(answer, found.ok ? found.value : "");
  const result = answer.kind === "confirmed" ? answer.receipt["result"] : undefined;
  return { seen, observation: answer.observation, ...(result === undefined ? {} : { result }) };
}
