/** The tools of one turn: what its Agent names of what the install offers, in the Agent's order (prompt caches like it). */
import type { AgentSpec } from "./agent.ts";
import type { EngineDeps } from "./deps.ts";
import { ownReads } from "./own-reads.ts";
import type { Tool } from "./ports.ts";

export function toolsetOf(
  deps: Pick<EngineDeps, "tools" | "redaction" | "db">,
  agent: AgentSpec,
): ReadonlyMap<string, Tool> {
  const named = agent.tools.flatMap((name) => deps.tools.get(name) ?? []);
  // Last, so that nothing of the same name stands in their place; always, so that the list never changes in a run.
  const own = named.length === 0 ? [] : ownReads(deps.db, agent.contextTokens);
  return new Map([...named, ...own].map((tool) => [tool.name, deps.redaction.covering(tool)] as const));
}
