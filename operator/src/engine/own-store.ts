/**
 * Verbs of Pawl's own store (`store.verb`): they do not cross, they are not journaled, and they are written in the
 * transaction that stores their result, so that neither can be there without the other. Only code makes one; what an
 * Agent declares about it changes nothing.
 */
import type { Runner } from "#ledger/database.ts";
import type { StoreCommit } from "#ledger/memory.ts";
import type { CallResult, Committed } from "#ledger/steps.ts";
import { EFFECTS, type EffectKind } from "#rules/effects.ts";
import { MAX_RESULT } from "#rules/limits.ts";
import type { Evidence } from "#rules/provenance.ts";
import { bounded } from "#rules/text.ts";
import { asksPeople } from "./builtin/ask.ts";
import type { CallRun, Tool } from "./ports.ts";
import { Left } from "./turn.ts";

export type StoreCall = {
  readonly id: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly run: CallRun;
  /** What the run had seen of the outside when it asked. */
  readonly evidence: readonly Evidence[];
};

export type Written =
  | { readonly kind: "written"; readonly observation: string }
  | { readonly kind: "already" | "fenced" | "ended" };

/** Runs statements only, all ids made before: it may run again when a reply was lost. */
export type StoreWrite = (tx: Runner, commit: StoreCommit) => Promise<Written>;

export interface StoreVerb extends Tool {
  /** Outside the transaction: here it may ask and wait. */
  prepare(call: StoreCall): Promise<StoreWrite>;
}

export const isStoreVerb = (tool: Tool): tool is StoreVerb => "prepare" in tool;

/** A tool's own word about a call. That it stays within Pawl's store is believed of verbs of that store and of questions only. */
export function ownKind(tool: Tool, args: Readonly<Record<string, unknown>>): EffectKind {
  if (isStoreVerb(tool)) return "store.verb";
  if (asksPeople(tool)) return "harness.call";
  const own = tool.effect(args);
  return EFFECTS[own].class === "internal_durable" ? "tool.effect" : own;
}

/** The writes that wait for the commit of their results. */
export class OwnWrites {
  readonly #waiting = new Map<string, StoreWrite>();
  /** Of the last try: what a commit stored whose reply was lost. */
  readonly #told = new Map<string, string>();

  get waiting(): boolean {
    return this.#waiting.size > 0;
  }

  add(callId: string, write: StoreWrite): CallResult {
    this.#waiting.set(callId, write);
    return { id: callId, outcome: "real", result: "" };
  }

  /** In the transaction of `commit`: the results with the words of those writes. */
  async write(tx: Runner, commit: StoreCommit, results: readonly CallResult[]): Promise<CallResult[]> {
    for (const [callId, write] of this.#waiting) {
      const written = await write(tx, commit);
      if (written.kind === "fenced" || written.kind === "ended") throw new Left(written.kind);
      if (written.kind === "written") this.#told.set(callId, bounded(written.observation, MAX_RESULT));
    }
    return results.map((result) => {
      const told = this.#waiting.has(result.id) ? this.#told.get(result.id) : undefined;
      return told === undefined ? result : { ...result, result: told };
    });
  }

  /** What was written and cannot keep its result is not kept either: thrown, so that the transaction is rolled back. */
  kept(committed: Committed): Committed {
    if (this.waiting && (committed.kind === "fenced" || committed.kind === "ended")) throw new Left(committed.kind);
    return committed;
  }

  done(): void {
    this.#waiting.clear();
    this.#told.clear();
  }
}
