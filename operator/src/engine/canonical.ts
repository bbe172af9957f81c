/** Hashes of canonical JSON (RFC 8785): equal for equal values, whatever the order of their keys. */
import { hash } from "node:crypto";
import canonicalize from "canonicalize";

export function canonicalHash(value: unknown): string {
  const text = canonicalize(value);
  if (text === undefined) throw new TypeError("not a JSON value");
  return hash("sha256", text, "hex");
}
