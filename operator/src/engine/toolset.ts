/** The tools of one turn: what its Agent names of what there is, in the Agent's order (prompt caches like it). */
import type { AgentSpec } from "./agent.ts";
import { BUILT_IN, builtIn } from "./builtin/memory.ts";
import type { EngineDeps } from "./deps.ts";
import { isStoreVerb } from "./own-store.ts";
import type { Tool } from "./ports.ts";

type Offering = Pick<EngineDeps, "db" | "newId" | "tools" | "redaction" | "sensitivity" | "log">;

export function toolsetOf(deps: Offering, agent: AgentSpec): ReadonlyMap<string, Tool> {
  const own = builtIn(deps, agent);
  return new Map(
    agent.tools.flatMap((name) => {
      const tool = own.get(name) ?? deps.tools.get(name);
      if (tool === undefined) return [];
      // What a verb of the store writes are arguments, which were looked at before.
      return [[name, isStoreVerb(tool) ? tool : deps.redaction.covering(tool)] as const];
    }),
  );
}

/** Every name that an Agent may list. */
export const offered = (deps: Pick<EngineDeps, "tools">): string[] => [...deps.tools.keys(), ...BUILT_IN].sort();
