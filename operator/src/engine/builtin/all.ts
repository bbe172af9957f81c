/** The built-in tools that are part of the engine: the agent's own store, and the question to people. */
import type { AgentSpec } from "../agent.ts";
import type { Tool } from "../ports.ts";
import { ASK_USER, askUserTool } from "./ask.ts";
import { MEMORY_VERBS, type MemoryDeps, memoryTools } from "./memory.ts";

/** In alphabetical order of their names, as they are listed to people. */
export const BUILT_IN: readonly string[] = [ASK_USER, ...MEMORY_VERBS];

export function builtIn(
  deps: MemoryDeps,
  agent: Pick<AgentSpec, "memoryAudience" | "fast">,
): ReadonlyMap<string, Tool> {
  return new Map([askUserTool, ...memoryTools(deps, agent)].map((tool) => [tool.name, tool]));
}
