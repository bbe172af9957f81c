/** A tool of a server as the engine's one contract of a tool. What it changes is said by hints and by the Agent, not here. */
import type { ListedTool, ServerSpec, ServerToolWords, Tool } from "#engine/ports.ts";
import { argumentCheck } from "./arguments.ts";
import { outcomeOf } from "./outcome.ts";
import type { McpSession } from "./session.ts";

type Schema = Readonly<Record<string, unknown>>;

/** The key is Pawl's to set: the model is not shown it, and what it says under that name is not looked at. */
export function withoutKey(schema: Schema, key: string | undefined): Schema {
  if (key === undefined) return schema;
  const properties = Object.entries((schema["properties"] ?? {}) as Schema).filter(([name]) => name !== key);
  const { required } = schema;
  return {
    ...schema,
    properties: Object.fromEntries(properties),
    ...(Array.isArray(required) ? { required: required.filter((name) => name !== key) } : {}),
  };
}

export function serverTool(
  server: ServerSpec,
  listed: ListedTool,
  name: string,
  { key, errorMeansNotApplied = false }: ServerToolWords,
  ports: { readonly session: () => Promise<McpSession | string>; readonly timeLimitMs: number },
): Tool {
  const parameters = withoutKey(listed.parameters, key);
  const check = argumentCheck(parameters);
  return {
    name,
    description: listed.description,
    parameters,
    quick: false,
    timeLimitMs: ports.timeLimitMs,
    parse: (args) => {
      if (key === undefined || typeof args !== "object" || args === null || Array.isArray(args)) return check(args);
      const { [key]: _, ...rest } = args as Record<string, unknown>;
      return check(rest);
    },
    lacks: (argument) =>
      listed.parameters["additionalProperties"] === false &&
      !Object.hasOwn(listed.parameters["properties"] ?? {}, argument),
    // Nobody has said that it only reads.
    effect: () => "tool.effect",
    target: () => `tool:${server.name}/${listed.name}`,
    source: () => `mcp:${server.name}`,
    ...(server.audience === undefined ? {} : { audience: server.audience }),
    execute: async (args, context) => {
      const isRead = context.effectId === undefined;
      const session = await ports.session();
      if (typeof session === "string") {
        return { kind: "failed", observation: `Nothing was sent. ${session}`, unsent: true };
      }
      const keyed = context.keyHeader === undefined || isRead ? {} : { [context.keyHeader]: context.effectId };
      const posted = await session.ask({
        method: "tools/call",
        params: { name: listed.name, arguments: { ...args, ...keyed } },
        isRead,
        signal: context.signal,
        ...(context.sendBy === undefined ? {} : { sendBy: context.sendBy }),
        timeLimitMs: context.timeLimitMs,
      });
      return outcomeOf(posted, { isRead, errorMeansNotApplied });
    },
  };
}
