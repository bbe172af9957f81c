/** Whether what an Agent writes about its tools can be meant: found out by a worker, told in `ResolvedRefs`. Pure. */
import { placeholders } from "#rules/template.ts";
import type { EffectDeclaration, ProbeDeclaration, Tool } from "./ports.ts";

export type Problem = { readonly reason: string; readonly message: string };

/** `tools`: those of the agent as it declares them. `find`: by the model's name or by the server's own spelling. */
export function declarationProblem(
  effects: readonly EffectDeclaration[],
  find: (name: string) => Tool | undefined,
): Problem | null {
  for (const effect of effects) {
    const at = `tools.effects[${effect.tool}]`;
    if (find(effect.tool) === undefined) {
      return { reason: "ToolUnknown", message: `${at}: this agent has no such tool, so nothing is said about any` };
    }
    const key = keyProblem(effect, find(effect.tool), at);
    if (key !== null) return key;
    const compensating = effect.compensate?.tool;
    if (compensating !== undefined && find(compensating) === undefined) {
      return { reason: "ToolUnknown", message: `${at}.compensate.tool: this agent has no tool ${compensating}` };
    }
    const problem = effect.probe === undefined ? null : probeProblem(effect.probe, find, `${at}.probe`);
    if (problem !== null) return problem;
    const state = stateProblem(effect, find, `${at}.state`);
    if (state !== null) return state;
  }
  return null;
}

/** A header is taken by whoever does not know it; an argument is not. */
function keyProblem({ key }: EffectDeclaration, tool: Tool | undefined, at: string): Problem | null {
  if (key === undefined || tool?.lacks?.(key) !== true) return null;
  return { reason: "KeyUnknown", message: `${at}.key: ${tool.name} takes no argument ${key}` };
}

function probeProblem(probe: ProbeDeclaration, find: (name: string) => Tool | undefined, at: string): Problem | null {
  const tool = find(probe.tool);
  if (tool === undefined) {
    return { reason: "ToolUnknown", message: `${at}.tool: this agent has no tool ${probe.tool}` };
  }
  if (placeholders(probe.found).length === 0) {
    return {
      reason: "ProbeFindsAnything",
      message: `${at}.found: name the write in it, with {effect.id} or {argument}`,
    };
  }
  if (kindOf(tool, probe.arguments) !== "tool.query") {
    const message = `${at}.tool: ${probe.tool} may change something, and a probe must not: declare its effect tool.query if it only reads`;
    return { reason: "ProbeNotQuery", message };
  }
  return null;
}

/** It is looked at for an undo alone. */
function stateProblem(effect: EffectDeclaration, find: (name: string) => Tool | undefined, at: string): Problem | null {
  const { state } = effect;
  if (state === undefined) return null;
  const tool = find(state.tool);
  if (tool === undefined) {
    return { reason: "ToolUnknown", message: `${at}.tool: this agent has no tool ${state.tool}` };
  }
  if (kindOf(tool, state.arguments) !== "tool.query") {
    const message = `${at}.tool: ${state.tool} may change something, and a look must not: declare its effect tool.query if it only reads`;
    return { reason: "StateNotQuery", message };
  }
  if (effect.compensate !== undefined) return null;
  return { reason: "StateUnused", message: `${at}: it is looked at for an undo only: declare compensate, too` };
}

/** Some tools are a read or a write by their arguments; those that stand in the Agent are known now. */
function kindOf(tool: Tool, templates: Readonly<Record<string, string>>): string {
  const args = Object.fromEntries(
    Object.entries(templates).map(([name, text]) => [name, text.replaceAll(/[{}]/g, "")]),
  );
  const parsed = tool.parse(args);
  try {
    return tool.effect(parsed.ok ? parsed.value : args);
  } catch {
    return "tool.effect";
  }
}
