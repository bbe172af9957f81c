/** The tools of one turn: what its Agent names of what the install offers, in the Agent's order (prompt caches like it). */
import { isAllowed, placeOf } from "#rules/place.ts";
import type { AgentSpec } from "./agent.ts";
import { declared } from "./declared.ts";
import type { EngineDeps } from "./deps.ts";
import type { Tool } from "./ports.ts";
import { UNDO, undoTool } from "./undo-tool.ts";

export type Toolset = {
  /** What the model is shown and may call. */
  readonly offered: ReadonlyMap<string, Tool>;
  /** Those too that may not be called in this place: Pawl itself may look with them. */
  readonly all: ReadonlyMap<string, Tool>;
};

const byName = (tools: readonly Tool[]): ReadonlyMap<string, Tool> => new Map(tools.map((tool) => [tool.name, tool]));

/** The built-in tools that the Agent names, as it declares them. */
export function builtinTools(deps: Pick<EngineDeps, "tools">, agent: AgentSpec): Tool[] {
  return agent.tools.flatMap((name) => {
    const tool = deps.tools.get(name);
    return tool === undefined
      ? []
      : [
          declared(
            tool,
            agent.effects.find((effect) => effect.tool === name),
          ),
        ];
  });
}

export function toolsetOf(
  deps: Pick<EngineDeps, "redaction">,
  declaredTools: readonly Tool[],
  agent: AgentSpec,
  connector: string,
): Toolset {
  const place = placeOf(connector);
  const tools = declaredTools.map((tool) => deps.redaction.covering(tool));
  const allowed = tools.filter((tool) => isAllowed(agent.places, place, tool.name));
  // The undoing tool has to be one that the model may call: `undo` is no way around a rule.
  const undoing = allowed.flatMap(({ compensate }) => allowed.filter((tool) => tool.name === compensate?.tool));
  const undoable = undoing.length > 0 && isAllowed(agent.places, place, UNDO);
  const offered = undoable ? [...allowed, undoTool(undoing.map((tool) => tool.name))] : allowed;
  return { offered: byName(offered), all: byName(tools) };
}
