/** The tools of an install, by name. */
import type { Tool, ToolSchema } from "#engine/ports.ts";
import { PawlError } from "#rules/errors.ts";

/** What every provider accepts as a function name. */
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;

export type ToolRegistry = {
  /** Undefined: nobody registered it; the model is told so. */
  get(name: string): Tool | undefined;
  /** The schemas of the named tools (of all without argument), in the order of registration: prompt caches like it. */
  schemas(names?: readonly string[]): ToolSchema[];
  readonly names: readonly string[];
};

/** Throws PawlError(invariant) for a name that is taken or that a provider would refuse. */
export function toolRegistry(tools: readonly Tool[]): ToolRegistry {
  const byName = new Map<string, Tool>();
  for (const tool of tools) {
    if (!TOOL_NAME.test(tool.name)) throw new PawlError("invariant", "BadToolName", `bad tool name "${tool.name}"`);
    if (byName.has(tool.name)) throw new PawlError("invariant", "DuplicateTool", `two tools are named ${tool.name}`);
    byName.set(tool.name, tool);
  }
  return {
    get: (name) => byName.get(name),
    names: [...byName.keys()],
    schemas: (names) =>
      [...byName.values()]
        .filter((tool) => names === undefined || names.includes(tool.name))
        .map(({ name, description, parameters }) => ({ name, description, parameters })),
  };
}
