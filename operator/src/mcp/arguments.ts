/** Checks a model's arguments against the schema of a server, so that what cannot be meant is said before it is sent. */
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import type { ParsedArguments } from "#engine/ports.ts";

/** Issues told to a model at once: enough to mend the call, not enough to fill its context. */
const MAX_ISSUES = 5;

/** Dialects before 2019 wrote some things in another way; without a word it is today's. */
const OLDER = /draft-0[4-7]/;
/** The server's own affair: a hostile one could keep this process busy for minutes with them. */
const NOT_CHECKED = ["pattern", "patternProperties", "format"] as const;

function compile(schema: Readonly<Record<string, unknown>>): ValidateFunction | undefined {
  const { $schema: dialect, $id: _, id: __, ...rest } = schema;
  const Engine = typeof dialect === "string" && OLDER.test(dialect) ? Ajv : Ajv2020;
  // One for each schema: names in it must not meet those of another server.
  const ajv = new Engine({
    strict: false,
    allErrors: true,
    validateFormats: false,
    logger: false,
    ownProperties: true,
  });
  try {
    for (const keyword of NOT_CHECKED) ajv.removeKeyword(keyword);
    return rest["$async"] === undefined ? ajv.compile(rest) : undefined;
  } catch {
    return undefined;
  }
}

/** A schema that cannot be made sense of lets every object pass: then the server checks alone. */
export function argumentCheck(schema: Readonly<Record<string, unknown>>): (args: unknown) => ParsedArguments {
  let validate: { made: ValidateFunction | undefined } | undefined;
  return (args) => {
    if (typeof args !== "object" || args === null || Array.isArray(args)) {
      return { ok: false, message: "The arguments were not accepted. They must be an object." };
    }
    validate ??= { made: compile(schema) };
    const { made } = validate;
    if (made === undefined || made(args)) return { ok: true, value: args as Record<string, unknown> };
    const issues = [...new Set((made.errors ?? []).map(wordsOf))].slice(0, MAX_ISSUES);
    return { ok: false, message: `The arguments were not accepted. ${issues.join("; ")}` };
  };
}

function wordsOf({ instancePath, keyword, params, message }: ErrorObject): string {
  const where = instancePath.slice(1).replaceAll("/", ".");
  const at = where === "" ? "" : `${where}: `;
  const named = (params as Readonly<Record<string, unknown>>)["additionalProperty"];
  if (keyword === "additionalProperties") return `${at}there is no argument "${String(named).slice(0, 100)}"`;
  const { allowedValues } = params as { allowedValues?: readonly unknown[] };
  const values = allowedValues === undefined ? "" : `: ${JSON.stringify(allowedValues).slice(0, 300)}`;
  return `${at}${message ?? keyword}${values}`;
}
