/**
 * What a step keeps of its request: a hash over the hashes of its messages and that of its tools. A run's requests are
 * nearly the same messages again and again, as the very same objects (`rules/transcript.ts`), so that each is read and
 * hashed once and not once per step; nor are the hashes of the earlier ones gone through again.
 */
import { createHash, type Hash } from "node:crypto";
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

type Begun = { readonly messages: readonly object[]; readonly parts: readonly string[]; readonly hash: Hash };

/** By list of tools, which is one object for all requests of a turn: what its last request began with. */
const begun = new WeakMap<object, Begun>();

/** The hash so far, over a line for each message; of a request that only goes on from the last one, over what is new. */
function over(messages: readonly object[], tools: object): Hash {
  const last = begun.get(tools);
  const parts = messages.map((message, index) =>
    message === last?.messages[index] ? (last.parts[index] ?? hashOf(message)) : hashOf(message),
  );
  const goesOn = last !== undefined && last.parts.every((part, index) => part === parts[index]);
  const hash = goesOn ? last.hash : createHash("sha256");
  for (let index = goesOn ? last.parts.length : 0; index < parts.length; index += 1) hash.update(`${parts[index]}\n`);
  begun.set(tools, { messages, parts, hash });
  return hash;
}

export function requestHash({ messages, tools }: Pick<ModelRequest, "messages" | "tools">): string {
  return over(messages, tools).copy().update(hashOf(tools)).digest("hex");
}
