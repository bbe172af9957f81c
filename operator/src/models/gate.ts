/**
 * The waits that endpoints imposed, shared by every run of this process that uses the same credential there: one
 * refusal speaks for all of them. In memory; what other processes were told comes in from the ledger (`engine/waits.ts`).
 */
import { createHash } from "node:crypto";

/** Credentials remembered at a time: far above what one install uses; the oldest goes first. */
export const MAX_GATES = 1_000;

export class RateGate {
  readonly #until = new Map<string, number>();

  /** `nowMs` is monotonic. */
  close(credential: string, nowMs: number, waitMs: number): void {
    const until = Math.max(nowMs + waitMs, this.#until.get(credential) ?? 0);
    this.#until.delete(credential);
    this.#until.set(credential, until);
    const oldest = this.#until.keys().next().value;
    if (this.#until.size > MAX_GATES && oldest !== undefined) this.#until.delete(oldest);
  }

  /** Milliseconds until a request may be sent again; 0 when it may now. */
  remaining(credential: string, nowMs: number): number {
    const until = this.#until.get(credential);
    if (until === undefined) return 0;
    if (until > nowMs) return until - nowMs;
    this.#until.delete(credential);
    return 0;
  }
}

/** Names a credential without keeping it. */
export function credentialOf(baseURL: string, key: string | undefined): string {
  return createHash("sha256")
    .update(JSON.stringify([baseURL, key ?? null]))
    .digest("hex");
}
