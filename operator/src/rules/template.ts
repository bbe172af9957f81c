/**
 * The templates in which an Agent says what a call changes, how to look for it and how to undo it: text with
 * `{placeholders}` and nothing else, so that whoever reads the Agent sees what will be sent. Pure.
 *
 * `{a.b.0}` leads into JSON; `{{word}}` is `{word}` itself. Braces around anything that is no name stay as they are, so
 * that JSON can be written down.
 */
export type Known = {
  /** The arguments of the call. */
  readonly args: Readonly<Record<string, unknown>>;
  /** The id of the write; absent where there is none yet. */
  readonly effectId?: string;
  /** What the write was answered with. */
  readonly result?: unknown;
  /** What was there before the write. */
  readonly prior?: unknown;
};

export type Filled<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly missing: string };

/** Characters of one rendered text; what is longer was not meant to be inserted whole. */
export const MAX_RENDERED = 8_192;
/** Steps into JSON. */
const MAX_PATH = 8;

const NAME = "[A-Za-z_][A-Za-z0-9_-]*(?:\\.[A-Za-z0-9_-]+)*";
const PLACEHOLDER = new RegExp(`\\{\\{(${NAME})\\}\\}|\\{(${NAME})\\}`, "g");
const WHOLE = new RegExp(`^\\{(${NAME})\\}$`);

/** Whatever stands at the end of the path; undefined: nothing does. Own properties only. */
function at(root: unknown, steps: readonly string[]): unknown {
  let value = root;
  for (const step of steps) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<string, unknown>)[step];
  }
  return value;
}

function valueOf(path: string, known: Known): unknown {
  const steps = path.split(".");
  if (steps.length > MAX_PATH) return undefined;
  const [first = "", ...rest] = steps;
  if (first === "effect" && known.effectId !== undefined) return at({ id: known.effectId }, rest);
  if (first === "result" && Object.hasOwn(known, "result")) return at(known.result, rest);
  if (first === "prior" && Object.hasOwn(known, "prior")) return at(known.prior, rest);
  return at(known.args, steps);
}

/** Lists and objects have no one spelling, so they are never part of a text. */
function textOf(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  return typeof value === "number" || typeof value === "boolean" ? String(value) : undefined;
}

/** Dots alone would lead out of the path, encoded or not; and half a character has no encoding. */
const inAddress = (value: string): string | undefined =>
  /^\.{1,2}$/.test(value) || !value.isWellFormed() ? undefined : encodeURIComponent(value);

/** As text. `encode` is applied to every inserted value; undefined: it cannot stand there. */
export function fillText(
  template: string,
  known: Known,
  encode: (value: string) => string | undefined = (value) => value,
): Filled<string> {
  let missing: string | undefined;
  const value = template.replaceAll(PLACEHOLDER, (_all, plain: string | undefined, path: string | undefined) => {
    if (plain !== undefined) return `{${plain}}`;
    const found = textOf(valueOf(path ?? "", known));
    const shown = found === undefined ? undefined : encode(found);
    if (shown === undefined) missing ??= path;
    return shown ?? "";
  });
  if (missing !== undefined) return { ok: false, missing };
  if (value.length > MAX_RENDERED) return { ok: false, missing: `${template.slice(0, 40)} (its text is too long)` };
  return { ok: true, value };
}

/** As an argument: a template that is one placeholder keeps the value's type. */
function fillValue(name: string, template: string, known: Known): Filled<unknown> {
  const [, whole] = WHOLE.exec(template) ?? [];
  if (whole !== undefined && name !== "url") {
    const value = valueOf(whole, known);
    return value === undefined || value === null ? { ok: false, missing: whole } : { ok: true, value };
  }
  // What is put into an address must not become another part of it; an address that is inserted whole is one.
  const encode = name === "url" && whole === undefined ? inAddress : undefined;
  return fillText(template, known, encode);
}

/** Arguments of a call that Pawl makes itself, each from its template. */
export function fillArguments(
  templates: Readonly<Record<string, string>>,
  known: Known,
): Filled<Readonly<Record<string, unknown>>> {
  const entries: [string, unknown][] = [];
  for (const [name, template] of Object.entries(templates)) {
    const filled = fillValue(name, template, known);
    if (!filled.ok) return filled;
    entries.push([name, filled.value]);
  }
  return { ok: true, value: Object.fromEntries(entries) };
}

/** The names that a template uses. */
export const placeholders = (template: string): string[] =>
  [...template.matchAll(PLACEHOLDER)].flatMap(([, , path]) => (path === undefined ? [] : [path]));
