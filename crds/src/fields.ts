/**
 * The words that both kinds are written in: small constructors around zod that demand what a CRD must have (a bound on
 * every string, number and list, and a description that `kubectl explain` prints). `structural.ts` refuses what slips
 * past them.
 */
import { z } from "zod";

/** Kubernetes object names as this API uses them. A DNS subdomain may hold 253 characters. */
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;

/**
 * A maximum in characters as the API server counts them (code points). zod's own `max` counts UTF-16 units and would
 * refuse a text with emoji that the server has long accepted.
 */
function atMost(max: number): z.core.$ZodCheck<string> {
  const check: z.core.$ZodCheck<string> = new z.core.$ZodCheck({ check: "max_code_points" });
  check._zod.onattach.push((schema) => {
    schema._zod.bag["maximum"] = max;
  });
  check._zod.check = (payload) => {
    const { value } = payload;
    if (value.length <= max || Array.from(value).length <= max) return;
    payload.issues.push({
      code: "too_big",
      origin: "string",
      maximum: max,
      inclusive: true,
      input: value,
      inst: check,
    });
  };
  return check;
}

/** Free text of at most `max` characters; empty text is refused. */
export const text = (max: number, description: string) => z.string().min(1).check(atMost(max)).describe(description);

/** A string of at most `max` characters, possibly empty: for status fields, which must never fail to be written. */
export const note = (max: number, description: string) => z.string().check(atMost(max)).describe(description);

export const matching = (pattern: RegExp, max: number, description: string) =>
  z.string().regex(pattern).check(atMost(max)).describe(description);

/** The name of a Kubernetes object, or of the DNS-subdomain kind. */
export const objectName = (description: string) => matching(SUBDOMAIN, 253, description);

/** A DNS label: at most 63 of a-z, 0-9 and `-`. Keys of list-maps are labels, so that CEL stays affordable. */
export const label = (description: string) => matching(LABEL, 63, description);

/** A UUID in lower case. */
export const uuid = (description: string) =>
  matching(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/, 36, description);

/** An http or https URL without user, password, query and fragment. */
export const url = (description: string) =>
  matching(/^https?:\/\/[[\]A-Za-z0-9.:_-]+(\/[!-"$->@-~]*)?$/, 2048, description);

/** A span of time in whole numbers and units, as in `24h`, `90s`, `1h30m`, `250ms`. See `parseDuration`. */
export const duration = (description: string) => matching(/^([0-9]{1,9}(ms|s|m|h))+$/, 32, description);

/** A glob over names: `*` stands for any run of characters, everything else for itself. */
export const glob = (description: string) => matching(/^[!-~]+$/, 128, description);

/** A Kubernetes quantity, always written as a string (`"2"`, `500m`, `4Gi`). */
export const quantity = (description: string) =>
  matching(/^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$/, 32, description);

export const int = (min: number, max: number, description: string) =>
  z
    .int()
    .min(min)
    .max(max)
    .meta({ description, format: max > 2147483647 ? "int64" : "int32" });

/** A counter of the ledger: a whole number, exact in JavaScript. */
export const count = (description: string) => int(0, Number.MAX_SAFE_INTEGER, description);

export const decimal = (max: number, description: string) => z.number().min(0).max(max).describe(description);

export const flag = (description: string) => z.boolean().describe(description);

export const oneOf = <const T extends readonly [string, ...string[]]>(values: T, description: string) =>
  z.enum(values).describe(description);

/** An instant in RFC 3339. */
export const time = (description: string) =>
  z
    .string()
    .regex(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/)
    .check(atMost(40))
    .meta({ description, format: "date-time" });

/** A list whose order matters, or that is always written whole. */
export const list = <T extends z.ZodType>(item: T, max: number, description: string) =>
  z.array(item).max(max).describe(description);

/** A list of different strings, which several appliers may share. */
export const set = <T extends z.ZodType<string>>(item: T, max: number, description: string) =>
  z.array(item).max(max).meta({ description, "x-kubernetes-list-type": "set" });

/** A list of objects with different keys, which several appliers may share. */
export const listMap = <T extends z.ZodObject>(
  item: T,
  keys: readonly (keyof z.infer<T> & string)[],
  max: number,
  description: string,
) =>
  z
    .array(item)
    .max(max)
    .meta({ description, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [...keys] });

/** Names of the author's own choosing, each with a text; at most `max` of them. */
export const texts = (max: number, longest: number, description: string) =>
  z.record(z.string(), text(longest, "The text under this name.")).meta({ description, maxProperties: max });

export const object = <T extends z.core.$ZodLooseShape>(description: string, shape: T) =>
  z.object(shape).describe(description);

/** The sentence that marks a field which this version stores and shows, but does not act upon. */
export const NOT_YET = "Accepted, but not acted upon yet.";

/** The sentence that marks a field whose neglect would let an agent do more than its author wrote. */
export const REFUSED_YET = "Not supported yet: whoever sets it is not accepted (Accepted=False, NotSupportedYet).";

export const secretRef = (description: string) =>
  object(description, {
    name: objectName("The Secret, in the Agent's own namespace."),
    key: matching(/^[-._a-zA-Z0-9]+$/, 253, "The key inside the Secret."),
  });

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** Milliseconds of a duration that its schema has accepted. Throws a RangeError for other text. */
export function parseDuration(value: string): number {
  if (!/^([0-9]{1,9}(ms|s|m|h))+$/.test(value)) throw new RangeError(`"${value}" is not a duration like 90s or 1h30m`);
  let sum = 0;
  for (const [, digits, unit] of value.matchAll(/([0-9]+)(ms|s|m|h)/g))
    sum += Number(digits) * (UNITS[unit ?? ""] ?? 0);
  return sum;
}
