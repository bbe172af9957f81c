/** The tools of one turn: what its Agent names of what there is, in the Agent's order (prompt caches like it). */
import type { AgentSpec } from "./agent.ts";
import { BUILT_IN, builtIn } from "./builtin/memory.ts";
import type { EngineDeps } from "./deps.ts";
import { ownReads } from "./own-reads.ts";
import { isStoreVerb } from "./own-store.ts";
import type { Tool } from "./ports.ts";

type Offering = Pick<EngineDeps, "db" | "newId" | "tools" | "redaction" | "sensitivity" | "log">;

export function toolsetOf(deps: Offering, agent: AgentSpec): ReadonlyMap<string, Tool> {
  const own = builtIn(deps, agent);
  const named = agent.tools.flatMap((name) => own.get(name) ?? deps.tools.get(name) ?? []);
  // Last, so that nothing of the same name stands in their place; always, so that the list never changes in a run.
  const reads = named.length === 0 ? [] : ownReads(deps.db, agent.contextTokens);
  return new Map(
    [...named, ...reads].map((tool) => [
      tool.name,
      // What a verb of the store writes are arguments, which were looked at before.
      isStoreVerb(tool) ? tool : deps.redaction.covering(tool),
    ]),
  );
}

/** Every name that an Agent may list. */
export const offered = (deps: Pick<EngineDeps, "tools">): string[] => [...deps.tools.keys(), ...BUILT_IN].sort();
