/** Turns a zod schema into the two things a tool owes: JSON Schema for the model, and a check with a readable message. */
import { z } from "zod";
import type { ParsedArguments } from "#engine/ports.ts";

/** Issues told to a model at once: enough to mend the call, not enough to fill its context. */
const MAX_ISSUES = 5;

export function jsonSchema(schema: z.ZodType): Readonly<Record<string, unknown>> {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io: "input", reused: "inline" });
  return rest;
}

export function parseArguments(schema: z.ZodType<Record<string, unknown>>, args: unknown): ParsedArguments {
  const parsed = schema.safeParse(args);
  if (parsed.success) return { ok: true, value: parsed.data };
  const issues = parsed.error.issues.slice(0, MAX_ISSUES).map((issue) => {
    const where = issue.path.join(".");
    return where === "" ? issue.message : `${where}: ${issue.message}`;
  });
  return { ok: false, message: `The arguments were not accepted. ${issues.join("; ")}` };
}
