/**
 * Rules between fields, each said twice in one place: as CEL for the API server and as a function for everything that
 * reads manifests without one. The table of manifests in `test/` holds the two to the same verdict.
 */
import type { z } from "zod";

type Plain = Readonly<Record<string, unknown>>;

export type Rule = {
  readonly cel: string;
  /** What a person reads when the rule fails: what is wrong and what to write instead. */
  readonly message: string;
  /** Field the message is about, relative to the object that carries the rule, as in `.mirror`. */
  readonly fieldPath?: string;
  /** The same verdict in JavaScript. `old` is undefined on create; a rule about changes must then hold. */
  readonly holds: (self: Plain, old: Plain | undefined) => boolean;
};

const RULES = new WeakMap<z.core.$ZodType, readonly Rule[]>();

/** Attaches rules to an object schema. The result, not the argument, carries them. */
export function withRules<T extends z.ZodObject>(schema: T, rules: readonly Rule[]): T {
  const kept = schema.meta({
    ...schema.meta(),
    "x-kubernetes-validations": rules.map(({ cel, message, fieldPath }) => ({
      rule: cel,
      message,
      ...(fieldPath === undefined ? {} : { fieldPath }),
    })),
  });
  RULES.set(kept, rules);
  return kept;
}

export const rulesOf = (schema: z.core.$ZodType): readonly Rule[] => RULES.get(schema) ?? [];

/** Equality as CEL sees it: by value, whatever the order of keys. */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, i) => same(item, b[i]));
  }
  const [left, right] = [a as Plain, b as Plain];
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => key in right && same(left[key], right[key]));
}

/** One field that never changes, is never added and never taken away. */
export function immutable(field: string, optional: boolean, message: string): Rule {
  return {
    cel: optional
      ? `has(self.${field}) == has(oldSelf.${field}) && (!has(self.${field}) || self.${field} == oldSelf.${field})`
      : `self.${field} == oldSelf.${field}`,
    message,
    fieldPath: `.${field}`,
    holds: (self, old) => old === undefined || same(self[field], old[field]),
  };
}

/** One field that may be added later, once, and never changes from then on. */
export function setOnce(field: string, message: string): Rule {
  return {
    cel: `!has(oldSelf.${field}) || (has(self.${field}) && self.${field} == oldSelf.${field})`,
    message,
    fieldPath: `.${field}`,
    holds: (self, old) => old?.[field] === undefined || same(self[field], old[field]),
  };
}
