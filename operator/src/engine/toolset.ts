/** The tools of one turn: what its Agent names of what the install offers, in the Agent's order (prompt caches like it). */
import type { AgentSpec } from "./agent.ts";
import type { EngineDeps } from "./deps.ts";
import type { Tool } from "./ports.ts";

export function toolsetOf(deps: Pick<EngineDeps, "tools" | "redaction">, agent: AgentSpec): ReadonlyMap<string, Tool> {
  return new Map(
    agent.tools.flatMap((name) => {
      const tool = deps.tools.get(name);
      return tool === undefined ? [] : [[name, deps.redaction.covering(tool)] as const];
    }),
  );
}
