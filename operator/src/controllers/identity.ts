/** Which ledger speaks: two installs in one cluster have two, and serve two sets of Agents. */
import { createHash } from "node:crypto";
import type { Install } from "./config.ts";

/** As a UUID, for `Agent.status.installation`. Another after `pawl adopt-ledger`. */
export function installationId({ kubeSystemUid, bornAt, epoch }: Install): string {
  const digest = createHash("sha256").update(`${kubeSystemUid}/${bornAt.toISOString()}/${epoch}`).digest("hex");
  // Version 8: the rest is ours to define (RFC 9562).
  const hex = `${digest.slice(0, 12)}8${digest.slice(13, 16)}8${digest.slice(17, 32)}`;
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
