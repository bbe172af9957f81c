/** What a call does: for every tool but `undo` what its row says; `undo` does what was declared for the write it names. */
import type { Tool } from "./ports.ts";

export type Action = {
  /** The tool that is sent; for `undo` the compensating one. */
  readonly tool: Tool;
  readonly args: Readonly<Record<string, unknown>>;
  readonly target: string;
  /** The effect that this one undoes. */
  readonly compensates?: string;
};

export const actionOf = (call: { tool: string; args: unknown; target: string | null }, tool: Tool): Action => ({
  tool,
  args: call.args as Action["args"],
  target: call.target ?? `tool:${call.tool}`,
});
