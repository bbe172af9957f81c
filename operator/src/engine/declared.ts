/** A tool as the Agent's words make it: what the platform team wrote about a tool wins over what the tool says itself. */
import { effectKind } from "#rules/effects.ts";
import { fillText } from "#rules/template.ts";
import type { EffectDeclaration, Tool } from "./ports.ts";

export function declared(tool: Tool, said: EffectDeclaration | undefined): Tool {
  if (said === undefined) return tool;
  const { target } = said;
  return {
    ...tool,
    effect: (args) => effectKind(said.effect, tool.effect(args)),
    target: (args) => {
      // A call that leaves the argument out still changes something: then it is whatever the tool itself says.
      const filled = target === undefined ? undefined : fillText(target, { args });
      return filled?.ok === true ? filled.value : tool.target(args);
    },
    ...(said.key === undefined ? {} : { key: said.key }),
    ...(said.probe === undefined ? {} : { probe: said.probe }),
    ...(said.compensate === undefined ? {} : { compensate: said.compensate }),
    ...(said.state === undefined ? {} : { state: said.state }),
  };
}
