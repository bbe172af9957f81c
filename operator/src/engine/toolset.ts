/** The tools of one turn: what its Agent names of what there is, in the Agent's order (prompt caches like it). */
import { isAllowed, placeOf } from "#rules/place.ts";
import type { AgentSpec } from "./agent.ts";
import { BUILT_IN, builtIn } from "./builtin/all.ts";
import { asksPeople } from "./builtin/ask.ts";
import { declared } from "./declared.ts";
import type { EngineDeps } from "./deps.ts";
import { OWN_READS, ownReads } from "./own-reads.ts";
import { isStoreVerb } from "./own-store.ts";
import type { Tool } from "./ports.ts";
import { UNDO, undoTool } from "./undo-tool.ts";

export type Offering = Pick<EngineDeps, "db" | "newId" | "tools" | "redaction" | "sensitivity" | "log">;

export type Toolset = {
  /** What the model is shown and may call. */
  readonly offered: ReadonlyMap<string, Tool>;
  /** Those too that may not be called in this place: Pawl itself may look with them. */
  readonly all: ReadonlyMap<string, Tool>;
};

const byName = (tools: readonly Tool[]): ReadonlyMap<string, Tool> => new Map(tools.map((tool) => [tool.name, tool]));

/** The built-in tools that the Agent names, as it declares them. What it says about a verb of the store or a question changes nothing. */
export function builtinTools(deps: Offering, agent: AgentSpec): Tool[] {
  const own = builtIn(deps, agent);
  return agent.tools.flatMap((name) => {
    const tool = own.get(name) ?? deps.tools.get(name);
    if (tool === undefined || isStoreVerb(tool) || asksPeople(tool)) return tool ?? [];
    const said = agent.effects.find((effect) => effect.tool === name);
    return [declared(tool, said)];
  });
}

export function toolsetOf(
  deps: Pick<EngineDeps, "redaction" | "db">,
  declaredTools: readonly Tool[],
  agent: AgentSpec,
  connector: string,
): Toolset {
  const place = placeOf(connector);
  // What a verb of the store writes or a question asks are arguments, which were looked at before.
  const tools = declaredTools.map((tool) =>
    isStoreVerb(tool) || asksPeople(tool) ? tool : deps.redaction.covering(tool),
  );
  const allowed = tools.filter((tool) => isAllowed(agent.places, place, tool.name));
  // The undoing tool has to be one that the model may call: `undo` is no way around a rule.
  const undoing = allowed.flatMap(({ compensate }) => allowed.filter((tool) => tool.name === compensate?.tool));
  const undoable = undoing.length > 0 && isAllowed(agent.places, place, UNDO);
  const own = [
    ...(undoable ? [undoTool(undoing.map((tool) => tool.name))] : []),
    // Wherever there are tools, so that the list never changes in a run: they read what its own request leaves out.
    ...(allowed.length === 0
      ? []
      : ownReads(deps.db, agent.contextTokens).map((tool) => deps.redaction.covering(tool))),
  ];
  // Last, so that nothing of the same name stands in their place.
  const offeredTools = [...allowed, ...own];
  return { offered: byName(offeredTools), all: byName(tools) };
}

/** Names of tools that a turn has besides those that its Agent lists. */
export const RESERVED: readonly string[] = [UNDO, ...OWN_READS];

/** Every name that an Agent may list. */
export const offered = (deps: Pick<EngineDeps, "tools">): string[] => [...deps.tools.keys(), ...BUILT_IN].sort();
