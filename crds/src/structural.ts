/**
 * zod → the structural schema of a CRD. Whatever the schema language cannot say makes this fail; nothing may vanish on
 * the way, because a check that is only in TypeScript is a check that kubectl users never meet.
 */
import { z } from "zod";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Schema = { [key: string]: Json };

export class NotStructural extends Error {}

type Internals = { readonly def: Record<string, unknown> & { type: string; checks?: readonly unknown[] } };
type CheckDef = { check: string; format?: string; pattern?: RegExp };

/** Kinds of zod schema that say the same in a CRD. Everything else is refused, unknown ones included. */
const SAYABLE = new Set([
  "object",
  "string",
  "number",
  "boolean",
  "array",
  "enum",
  "literal",
  "optional",
  "default",
  "nullable",
  "record",
]);

/** Checks that become keywords; the others exist in JavaScript only. */
const SAYABLE_CHECKS = new Set([
  "min_length",
  "max_length",
  "max_code_points",
  "length_equals",
  "greater_than",
  "less_than",
  "multiple_of",
  "number_format",
  "string_format",
]);

const KEYWORDS = new Set([
  "type",
  "description",
  "format",
  "properties",
  "required",
  "items",
  "additionalProperties",
  "enum",
  "default",
  "nullable",
  "pattern",
  "minLength",
  "maxLength",
  "minItems",
  "maxItems",
  "minimum",
  "maximum",
  "exclusiveMinimum",
  "exclusiveMaximum",
  "multipleOf",
  "minProperties",
  "maxProperties",
  "x-kubernetes-list-type",
  "x-kubernetes-list-map-keys",
  "x-kubernetes-map-type",
  "x-kubernetes-validations",
]);

function refuseUnsayable(schema: z.core.$ZodType, where: string): void {
  const { def } = (schema as unknown as { _zod: Internals })._zod;
  if (!SAYABLE.has(def.type)) throw new NotStructural(`${where}: a CRD has no word for zod's "${def.type}"`);
  if (def["coerce"] === true) throw new NotStructural(`${where}: coercion would vanish`);
  if (def.type === "object" && def["catchall"] !== undefined) {
    throw new NotStructural(`${where}: strict, loose and catchall objects are not structural`);
  }
  if (def.type === "record") {
    const key = (def["keyType"] as { _zod: Internals })._zod.def;
    if (key.type !== "string" || (key.checks?.length ?? 0) > 0)
      throw new NotStructural(`${where}: rules for keys would vanish`);
  }
  for (const check of def.checks ?? []) refuseCheck(check, where);
  // A bare format (`z.email()`) is its own check.
  if (def["check"] !== undefined) refuseCheck({ _zod: { def } }, where);
}

function refuseCheck(check: unknown, where: string): void {
  const def = (check as { _zod: { def: CheckDef } })._zod.def;
  if (!SAYABLE_CHECKS.has(def.check)) throw new NotStructural(`${where}: the check "${def.check}" would vanish`);
  if (def.check !== "string_format") return;
  if (def.format !== "regex")
    throw new NotStructural(`${where}: the format "${def.format}" is checked differently by Kubernetes; use a pattern`);
  const { pattern } = def;
  if (pattern !== undefined && pattern.flags !== "")
    throw new NotStructural(`${where}: flags of ${pattern} would vanish`);
  if (pattern !== undefined && /\(\?[=!<]|\\[1-9]|\\[pP]/.test(pattern.source)) {
    throw new NotStructural(`${where}: Kubernetes has no look-around, back references or \\p in ${pattern}`);
  }
  if (pattern !== undefined && /\\[sSbB]/.test(pattern.source)) {
    throw new NotStructural(
      `${where}: what ${pattern} calls a space is ASCII only in Kubernetes; write the characters`,
    );
  }
}

const isSchema = (value: Json | undefined): value is Schema =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Checks the finished schema, keyword by keyword, and drops what only repeats the type. */
function finish(schema: Schema, where: string): Schema {
  for (const key of Object.keys(schema)) {
    if (!KEYWORDS.has(key)) throw new NotStructural(`${where}: the keyword "${key}" is not structural`);
  }
  const { type, description } = schema;
  if (typeof type !== "string") throw new NotStructural(`${where}: every field needs one type`);
  if (typeof description !== "string" || description.length < 2)
    throw new NotStructural(`${where}: has no description`);
  if (description.includes("{{")) throw new NotStructural(`${where}: "{{" in a description would be read by Helm`);
  const out: Schema = { ...schema };
  if (type === "string" && schema["enum"] === undefined && schema["maxLength"] === undefined) {
    throw new NotStructural(`${where}: a string needs a maximum length`);
  }
  if (type === "integer" || type === "number") {
    if (schema["minimum"] === undefined || schema["maximum"] === undefined)
      throw new NotStructural(`${where}: a number needs bounds`);
  }
  if (type === "array") finishArray(out, where);
  if (type === "object") finishObject(out, where);
  return out;
}

function finishArray(out: Schema, where: string): void {
  if (out["maxItems"] === undefined) throw new NotStructural(`${where}: a list needs a maximum length`);
  if (!isSchema(out["items"])) throw new NotStructural(`${where}: a list needs items`);
  const items = finish(out["items"], `${where}[]`);
  out["items"] = items;
  if (out["x-kubernetes-list-type"] === "set" && items["type"] !== "string") {
    throw new NotStructural(`${where}: sets are of strings`);
  }
  if (out["x-kubernetes-list-type"] !== "map") return;
  const required = (items["required"] ?? []) as string[];
  for (const key of (out["x-kubernetes-list-map-keys"] ?? []) as string[]) {
    const field = isSchema(items["properties"]) ? items["properties"][key] : undefined;
    if (!isSchema(field)) throw new NotStructural(`${where}: its key "${key}" is not a field`);
    if (!required.includes(key) && field["default"] === undefined) {
      throw new NotStructural(`${where}: its key "${key}" needs to be required or to have a default`);
    }
  }
}

function finishObject(out: Schema, where: string): void {
  const { properties, additionalProperties } = out;
  if (isSchema(additionalProperties)) {
    if (out["maxProperties"] === undefined) throw new NotStructural(`${where}: a map needs a maximum size`);
    out["additionalProperties"] = finish(additionalProperties, `${where}{}`);
    return;
  }
  if (additionalProperties !== undefined)
    throw new NotStructural(`${where}: additionalProperties is not structural here`);
  if (!isSchema(properties)) throw new NotStructural(`${where}: an object needs fields`);
  out["properties"] = Object.fromEntries(
    Object.entries(properties).map(([name, field]) => [name, finish(field as Schema, `${where}.${name}`)]),
  );
  if (Object.keys(properties).length === 0) delete out["properties"];
}

/** The structural schema of `schema`. Throws NotStructural with the path of what a CRD cannot say. */
export function structural(schema: z.ZodType, where: string): Schema {
  const made = z.toJSONSchema(schema, {
    target: "openapi-3.0",
    io: "input",
    reused: "inline",
    cycles: "throw",
    override: ({ zodSchema, path }) => refuseUnsayable(zodSchema, [where, ...path].join(".")),
  });
  const { $schema: _, ...rest } = made as unknown as Schema;
  return finish(rest, where);
}
