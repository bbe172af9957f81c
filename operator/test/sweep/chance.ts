/** mulberry32: the same choices for the same seed. 0 ≤ value < 1. */
export function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** `count` of the items (all, if there are fewer), each equally likely, in their own order. */
export function sample<T>(items: readonly T[], count: number, random: () => number): T[] {
  const drawn = items.map((item, index) => ({ item, index, at: random() }));
  const kept = drawn.sort((a, b) => a.at - b.at).slice(0, count);
  return kept.sort((a, b) => a.index - b.index).map(({ item }) => item);
}
