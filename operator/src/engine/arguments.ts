/**
 * A call's arguments, from the text that a model wrote. They are never repaired: what cannot be stored and sent exactly
 * as it was written is refused with words that let the model write it again. Pure.
 */
import { createHash } from "node:crypto";
import { MAX_ARGUMENT_DEPTH, MAX_ARGUMENTS, MAX_TARGET_BYTES } from "#rules/limits.ts";
import { head, isStorable, storable } from "#rules/text.ts";

export type Arguments =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly refusal: string };

const refused = (why: string): Arguments => ({ ok: false, refusal: `Not run: ${why}` });

export function readArguments(text: string): Arguments {
  if (text.length > MAX_ARGUMENTS) {
    return refused(`the arguments are ${text.length} characters long, at most ${MAX_ARGUMENTS} are taken.`);
  }
  let value: unknown;
  try {
    value = text.trim() === "" ? {} : JSON.parse(text);
  } catch {
    return refused("the arguments are not valid JSON. Send the call again with complete arguments.");
  }
  const wrong = flaw(value, 0);
  return wrong === undefined ? { ok: true, value } : refused(`the arguments contain ${wrong}. Send them without.`);
}

/** What no ledger can keep and no hash can be made of, if there is any. */
function flaw(value: unknown, depth: number): string | undefined {
  if (typeof value === "string") return isStorable(value) ? undefined : "a NUL character or half of a character";
  if (typeof value === "number") return Number.isFinite(value) ? undefined : "a number that is too large";
  if (typeof value !== "object" || value === null) return undefined;
  if (depth >= MAX_ARGUMENT_DEPTH) return `more than ${MAX_ARGUMENT_DEPTH} levels of nesting`;
  for (const [key, inner] of Object.entries(value)) {
    const wrong = flaw(key, depth) ?? flaw(inner, depth + 1);
    if (wrong !== undefined) return wrong;
  }
  return undefined;
}

/** Long targets keep their beginning for people and a hash for the index. */
export function boundedTarget(target: string): string {
  const safe = storable(target);
  if (Buffer.byteLength(safe) <= MAX_TARGET_BYTES) return safe;
  const hash = createHash("sha256").update(safe).digest("hex");
  let kept = head(safe, MAX_TARGET_BYTES / 2);
  while (Buffer.byteLength(kept) > MAX_TARGET_BYTES / 2) kept = head(kept, Math.floor(kept.length * 0.8));
  return `${kept}…#sha256:${hash}`;
}
