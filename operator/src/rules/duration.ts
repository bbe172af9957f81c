/** Durations as people write them in manifests. Pure. */
const UNITS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** "1m30s" in milliseconds; undefined when it is no duration. */
export function durationMs(text: string): number | undefined {
  if (!/^(\d+(ms|s|m|h))+$/.test(text)) return undefined;
  return [...text.matchAll(/(\d+)(ms|s|m|h)/g)].reduce(
    (sum, [, n, unit]) => sum + Number(n) * (UNITS[unit ?? ""] ?? 0),
    0,
  );
}
