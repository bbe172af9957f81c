/**
 * Money in millionths of a US dollar. A price is dollars per million tokens, so tokens times price is just that. Pure.
 * What is not known is null, never zero; a limit counts an estimate then, because it has to end somewhere.
 */
import { CHARS_PER_TOKEN } from "./limits.ts";

export type Prices = { readonly input: number; readonly cachedInput?: number | undefined; readonly output: number };
export type Used = {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Part of the input that the endpoint had cached. */
  readonly cachedInputTokens?: number | undefined;
};

/** Rounded up to a whole unit, so that no step that cost something counts as nothing. */
export function costMicros(used: Used | null, prices: Prices | undefined): number | null {
  if (used === null || prices === undefined) return null;
  const cached = Math.min(used.cachedInputTokens ?? 0, used.inputTokens);
  const input = (used.inputTokens - cached) * prices.input + cached * (prices.cachedInput ?? prices.input);
  // Binary fractions: 3 × 0.1 is a little more than 0.3, and must not become another unit.
  return Math.ceil(Number((input + used.outputTokens * prices.output).toPrecision(12)));
}

/** Tokens of a text, more rather than fewer. */
export const estimatedTokens = (characters: number): number => Math.ceil(characters / CHARS_PER_TOKEN);

export const toMicros = (usd: number): number => Math.round(usd * 1_000_000);
