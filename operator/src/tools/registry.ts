/** The tools of an install, by name, in the order of registration: prompt caches like it. */
import type { Tool } from "#engine/ports.ts";
import { PawlError } from "#rules/errors.ts";

/** What every provider accepts as a function name. */
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;

/** Throws PawlError(invariant) for a name that is taken or that a provider would refuse. */
export function toolRegistry(tools: readonly Tool[]): ReadonlyMap<string, Tool> {
  const byName = new Map<string, Tool>();
  for (const tool of tools) {
    if (!TOOL_NAME.test(tool.name)) throw new PawlError("invariant", "BadToolName", `bad tool name "${tool.name}"`);
    if (byName.has(tool.name)) throw new PawlError("invariant", "DuplicateTool", `two tools are named ${tool.name}`);
    byName.set(tool.name, tool);
  }
  return byName;
}
