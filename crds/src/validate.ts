/**
 * Manifests checked without an API server, with the same verdicts: types and bounds by zod; unknown fields, repeated
 * list entries and rules between fields by a walk over the same schemas.
 */
import { z } from "zod";
import type { AgentSpec } from "./agent.ts";
import { NOT_YET, REFUSED_YET } from "./fields.ts";
import { AGENT, API_VERSION, DECISION, type Kind, RUN } from "./kinds.ts";
import type { DecisionSpec } from "./decision.ts";
import type { RunSpec } from "./run.ts";
import { rulesOf, same } from "./rules.ts";

type Plain = Readonly<Record<string, unknown>>;
export type Problem = { readonly path: string; readonly message: string };
export type Checked<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problems: readonly Problem[] };

type Def = {
  type: string;
  innerType?: z.core.$ZodType;
  element?: z.core.$ZodType;
  valueType?: z.core.$ZodType;
  shape?: Record<string, z.core.$ZodType>;
};
const defOf = (schema: z.core.$ZodType): Def => schema._zod.def;

function unwrap(schema: z.core.$ZodType): z.core.$ZodType {
  const { innerType } = defOf(schema);
  return innerType === undefined ? schema : unwrap(innerType);
}

const isPlain = (value: unknown): value is Plain =>
  typeof value === "object" && value !== null && !Array.isArray(value);

type Visit = (schema: z.core.$ZodType, value: unknown, old: unknown, path: string) => void;

/** Calls `visit` for every value that has a schema, parents first. Values in lists have no `old`. */
function walk(outer: z.core.$ZodType, value: unknown, old: unknown, path: string, visit: Visit): void {
  const schema = unwrap(outer);
  visit(schema, value, old, path);
  const { shape, element } = defOf(schema);
  if (element !== undefined && Array.isArray(value)) {
    for (const [i, item] of value.entries()) walk(element, item, undefined, `${path}[${i}]`, visit);
  }
  if (shape === undefined || !isPlain(value)) return;
  for (const [name, field] of Object.entries(shape)) {
    if (value[name] !== undefined)
      walk(field, value[name], isPlain(old) ? old[name] : undefined, `${path}.${name}`, visit);
  }
}

function repeated(schema: z.core.$ZodType, items: readonly unknown[], path: string): Problem[] {
  const meta = z.globalRegistry.get(schema);
  const listType = meta?.["x-kubernetes-list-type"];
  if (listType !== "set" && listType !== "map") return [];
  const keys = (meta?.["x-kubernetes-list-map-keys"] ?? []) as string[];
  const identity = (item: unknown): unknown =>
    listType === "set" || !isPlain(item) ? item : keys.map((key) => item[key]);
  return items.flatMap((item, i) =>
    items.findIndex((other) => same(identity(other), identity(item))) < i
      ? [{ path: `${path}[${i}]`, message: `Duplicate value: ${JSON.stringify(identity(item))}` }]
      : [],
  );
}

function problemsOf(schema: z.ZodObject, value: unknown, old: unknown, path: string): Problem[] {
  const parsed = schema.safeParse(value);
  if (!parsed.success) {
    return parsed.error.issues.map((issue) => ({
      path: issue.path.reduce<string>(
        (at, key) => (typeof key === "number" ? `${at}[${key}]` : `${at}.${String(key)}`),
        path,
      ),
      message: issue.message,
    }));
  }
  const problems: Problem[] = [];
  walk(schema, parsed.data, old, path, (at, now, before, where) => {
    if (Array.isArray(now)) problems.push(...repeated(at, now, where));
    if (!isPlain(now)) return;
    for (const rule of rulesOf(at)) {
      if (!rule.holds(now, isPlain(before) ? before : undefined)) problems.push({ path: where, message: rule.message });
    }
  });
  return problems;
}

/** Fields that no schema knows; kubectl refuses them, so that a slip of the pen is not a silent default. */
function unknownFields(schema: z.core.$ZodType, value: unknown, path: string): Problem[] {
  const problems: Problem[] = [];
  walk(schema, value, undefined, path, (at, now, _old, where) => {
    const { shape } = defOf(at);
    if (shape === undefined || !isPlain(now)) return;
    for (const name of Object.keys(now)) {
      if (!Object.hasOwn(shape, name))
        problems.push({ path: `${where}.${name}`, message: `unknown field "${where}.${name}"` });
    }
  });
  return problems;
}

function check<T>(kind: Kind, manifest: unknown, old: unknown): Checked<T> {
  if (!isPlain(manifest)) return { ok: false, problems: [{ path: "", message: "a manifest is an object" }] };
  const problems: Problem[] = [];
  if (manifest["apiVersion"] !== API_VERSION || manifest["kind"] !== kind.kind) {
    problems.push({ path: "kind", message: `expected apiVersion: ${API_VERSION} and kind: ${kind.kind}` });
  }
  for (const name of Object.keys(manifest)) {
    if (!["apiVersion", "kind", "metadata", "spec", "status"].includes(name))
      problems.push({ path: name, message: `unknown field "${name}"` });
  }
  if (manifest["spec"] === undefined) problems.push({ path: "spec", message: "Required value" });
  else {
    problems.push(...unknownFields(kind.spec, manifest["spec"], "spec"));
    problems.push(...problemsOf(kind.spec, manifest["spec"], isPlain(old) ? old["spec"] : undefined, "spec"));
  }
  if (manifest["status"] !== undefined) {
    problems.push(...problemsOf(kind.status, manifest["status"], isPlain(old) ? old["status"] : undefined, "status"));
  }
  for (const rule of kind.rootRules) {
    if (!rule.holds(manifest, isPlain(old) ? old : undefined)) problems.push({ path: "", message: rule.message });
  }
  return problems.length > 0 ? { ok: false, problems } : { ok: true, value: kind.spec.parse(manifest["spec"]) as T };
}

/** Checks a whole Agent manifest; the value is its spec. With `old`, also what may not change. */
export const checkAgent = (manifest: unknown, old?: unknown): Checked<AgentSpec> => check(AGENT, manifest, old);

/** Checks a whole Run manifest; the value is its spec. With `old`, also what may not change. */
export const checkRun = (manifest: unknown, old?: unknown): Checked<RunSpec> => check(RUN, manifest, old);

/** Checks a whole Decision manifest; the value is its spec. With `old`, also what may not change. */
export const checkDecision = (manifest: unknown, old?: unknown): Checked<DecisionSpec> =>
  check(DECISION, manifest, old);

export type NotActedUpon = {
  /** Ignoring these would let the agent do more than was written: do not accept the object. */
  readonly refused: readonly string[];
  /** Stored and shown, without effect in this version: say so. */
  readonly ignored: readonly string[];
};

/** Paths of fields that a spec sets and this version does not act upon, read off the schema's own descriptions. */
export function notActedUpon(kind: Kind, spec: unknown): NotActedUpon {
  const found = { refused: [] as string[], ignored: [] as string[] };
  const visit = (outer: z.core.$ZodType, value: unknown, path: string): void => {
    const text = [outer, unwrap(outer)].map((schema) => z.globalRegistry.get(schema)?.description ?? "").join(" ");
    if (text.includes(REFUSED_YET)) found.refused.push(path);
    else if (text.includes(NOT_YET)) found.ignored.push(path);
    else descend(unwrap(outer), value, path);
  };
  const descend = (schema: z.core.$ZodType, value: unknown, path: string): void => {
    const { shape, element } = defOf(schema);
    if (element !== undefined && Array.isArray(value))
      for (const [i, item] of value.entries()) visit(element, item, `${path}[${i}]`);
    if (shape === undefined || !isPlain(value)) return;
    for (const [name, field] of Object.entries(shape))
      if (value[name] !== undefined) visit(field, value[name], `${path}.${name}`);
  };
  descend(kind.spec, spec, "spec");
  return found;
}
