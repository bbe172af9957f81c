/**
 * One SQL statement as a value: its name, its text with `:named` parameters, the types of both sides. The registry of
 * these values is what the schema test runs, what the failpoint list is made from, and what `pawl` can print.
 *
 * Text is plain SQL: `:run` becomes `$1::uuid`, so with `\set run '…'` and `:'run'` it can be pasted into psql.
 */
export type PgTypes = {
  uuid: string;
  text: string;
  int4: number;
  int8: number;
  bool: boolean;
  jsonb: unknown;
  timestamptz: Date;
  "text[]": readonly string[];
  "uuid[]": readonly string[];
};
/** A type name, nullable with a trailing `?`. */
export type PgType = keyof PgTypes | `${keyof PgTypes}?`;
type Value<T extends PgType> = T extends `${infer Base extends keyof PgTypes}?`
  ? PgTypes[Base] | null
  : T extends keyof PgTypes
    ? PgTypes[T]
    : never;

export type Shape = Readonly<Record<string, PgType>>;
export type Values<S extends Shape> = { readonly [K in keyof S]: Value<S[K]> };

export type Statement<P extends Shape = Shape, C extends Shape = Shape> = {
  readonly name: string;
  /** A guarded statement begins with a CTE `locked`, decides in `verdict`, and every write chains from it. */
  readonly guarded: boolean;
  readonly params: P;
  readonly columns: C;
  readonly text: string;
  /** The text as the server gets it, with `$n`. */
  readonly compiled: string;
  readonly order: readonly string[];
};

const registry = new Map<string, Statement>();

/** Every statement there is, in order of definition. */
export function statements(): readonly Statement[] {
  return [...registry.values()];
}

function compile(name: string, text: string, params: Shape): { compiled: string; order: string[] } {
  const order: string[] = [];
  // Comments may say `:name` for people; what the server gets has none, which also keeps the log short.
  const bare = text.replaceAll(/--[^\n]*/g, "");
  const compiled = bare.replaceAll(/(?<![:\w]):([a-z_]+)\b/g, (_all, key: string) => {
    const type = params[key];
    if (type === undefined) throw new Error(`statement ${name} uses :${key}, which it does not declare`);
    if (!order.includes(key)) order.push(key);
    return `$${order.indexOf(key) + 1}::${type.replace("?", "")}`;
  });
  for (const key of Object.keys(params)) {
    if (!order.includes(key)) throw new Error(`statement ${name} declares :${key} and never uses it`);
  }
  return { compiled: compiled.replaceAll(/\s+/g, " ").trim(), order };
}

export function statement<const P extends Shape, const C extends Shape>(definition: {
  name: string;
  guarded?: boolean;
  params: P;
  columns: C;
  text: string;
}): Statement<P, C> {
  if (registry.has(definition.name)) throw new Error(`statement ${definition.name} is defined twice`);
  const value: Statement<P, C> = {
    name: definition.name,
    guarded: definition.guarded ?? false,
    params: definition.params,
    columns: definition.columns,
    text: definition.text,
    ...compile(definition.name, definition.text, definition.params),
  };
  registry.set(value.name, value);
  return value;
}
