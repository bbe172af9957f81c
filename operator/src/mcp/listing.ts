/** What a server lists, taken in with care: bounded, storable, and one bad tool does not hide the others. Pure. */
import { z } from "zod";
import type { ListedTool } from "#engine/ports.ts";
import { bounded, isStorable, storable } from "#rules/text.ts";
import { MAX_DESCRIPTION, MAX_SCHEMA, MAX_TOOL_NAME } from "./limits.ts";

const hints = z.object({ readOnlyHint: z.boolean().optional(), destructiveHint: z.boolean().optional() });
const tool = z.object({
  name: z.string().min(1),
  description: z.string().optional(),
  inputSchema: z.record(z.string(), z.unknown()),
  annotations: hints.optional().catch(undefined),
});

export type Taken = { readonly ok: true; readonly tool: ListedTool } | { readonly ok: false; readonly why: string };

/** `why` names the tool: it is told to the people of the Agent. */
export function takeTool(listed: unknown): Taken {
  const called = (listed as { name?: unknown } | null)?.name;
  const label = typeof called === "string" ? storable(called).slice(0, 80) : "a tool without a name";
  const refused = (why: string): Taken => ({ ok: false, why: `${label} (${why})` });
  const parsed = tool.safeParse(listed);
  if (!parsed.success) return refused("its schema is no schema of an object");
  const { name, description = "", inputSchema, annotations } = parsed.data;
  if (name.length > MAX_TOOL_NAME || !isStorable(name))
    return refused(`its name has more than ${MAX_TOOL_NAME} characters`);
  if (inputSchema["type"] !== "object") return refused("its schema is no schema of an object");
  const text = JSON.stringify(inputSchema);
  if (Buffer.byteLength(text) > MAX_SCHEMA) return refused(`its schema has more than ${MAX_SCHEMA} bytes`);
  if (/\\u0000|\\ud[89a-f]/i.test(text)) return refused("its schema holds characters that cannot be stored");
  return {
    ok: true,
    tool: {
      name,
      description: bounded(description, MAX_DESCRIPTION),
      parameters: inputSchema,
      readOnly: annotations?.readOnlyHint === true,
      destructive: annotations?.destructiveHint === true,
    },
  };
}
