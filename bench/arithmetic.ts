/** What the figures are made of: medians, quantiles and bars. Pure, so that a test can check it without a benchmark. */

export type Bar = {
  readonly name: string;
  readonly value: number;
  readonly limit: number;
  readonly ok: boolean;
};

/** The value below which the share `q` of the values lies; between two values it is interpolated. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  if (sorted.length === 0) return Number.NaN;
  const at = (sorted.length - 1) * q;
  const low = sorted[Math.floor(at)] ?? Number.NaN;
  const high = sorted[Math.ceil(at)] ?? Number.NaN;
  return low + (high - low) * (at - Math.floor(at));
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** Three digits that mean something: what a table shows and what a bar is compared by. */
export const rounded = (value: number): number => (Number.isFinite(value) ? Number(value.toPrecision(3)) : value);

/** A figure that was not measured (NaN) never meets its bar. */
export function atMost(name: string, value: number, limit: number): Bar {
  return { name, value: rounded(value), limit, ok: value <= limit };
}

/** The largest departure from the first value, as a share of it: 0.1 is ten per cent. */
export function unevenness(values: readonly number[]): number {
  const [first = Number.NaN, ...others] = values;
  return Math.max(0, ...others.map((value) => Math.abs(value - first) / first), first > 0 ? 0 : Number.NaN);
}

/** 0 … n−1 beginning at `first`: each round begins with another system, so that none always runs after the same one. */
export function rotated<T>(items: readonly T[], first: number): T[] {
  const at = items.length === 0 ? 0 : first % items.length;
  return [...items.slice(at), ...items.slice(0, at)];
}

/** `{"bench":…,"bars":[…]}`: the one line that a script reads. NaN is no JSON: it becomes null. */
export const lastLine = (bench: string, bars: readonly Bar[]): string => JSON.stringify({ bench, bars });
