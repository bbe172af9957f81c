/**
 * What a step keeps of its request: a hash over the hashes of its messages and that of its tools. A run's requests are
 * nearly the same messages again and again, as the very same objects (`rules/transcript.ts`), so that each is read and
 * hashed once and not once per step.
 */
import { createHash } from "node:crypto";
import { canonicalHash } from "./canonical.ts";
import type { ModelRequest } from "./ports.ts";

/** Messages are never changed; what goes with a run's last request is collected with it. */
const known = new WeakMap<object, string>();

/** Of a message, or of a list of tools: one that is the same object is read once. */
export function hashOf(part: object): string {
  const found = known.get(part);
  if (found !== undefined) return found;
  const hash = canonicalHash(part);
  known.set(part, hash);
  return hash;
}

export function requestHash({ messages, tools }: Pick<ModelRequest, "messages" | "tools">): string {
  const parts = [...messages.map(hashOf), hashOf(tools)];
  return createHash("sha256").update(parts.join("\n")).digest("hex");
}
