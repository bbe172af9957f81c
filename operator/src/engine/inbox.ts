/**
 * The messages of a turn in the hands of its worker. What came in meanwhile is taken in at a decision point: before a
 * request is built, never between a response and its calls, so that a call is always judged by what its request contained.
 */
import { readTriggers, type TriggerRow } from "#ledger/reads.ts";
import type { EngineDeps } from "./deps.ts";
import type { Turn } from "./turn.ts";

type Delivering = { readonly ordinal: number; readonly edits: readonly (readonly [seq: number, edit: number])[] };

/** A message with the words that it had at this edit; undefined: they are gone. */
export function wordsAt(message: TriggerRow, edit: number | null): TriggerRow | undefined {
  const words = message.edits.find(({ seq }) => seq === (edit ?? 0));
  return words === undefined ? undefined : { ...message, text: words.text, edit };
}

/** What was read keeps the words in which it was read. */
export function asRead(messages: readonly TriggerRow[], steps: readonly Delivering[]): TriggerRow[] {
  return messages.map((message) => {
    const step = steps.find(({ ordinal }) => ordinal === message.deliveredOrdinal);
    if (step === undefined || message.edits.length === 1) return message;
    const edit = step.edits.find(([seq]) => seq === message.seq)?.[1] ?? null;
    return wordsAt(message, edit) ?? message;
  });
}

/** A decision point: what has been added to this turn stands in the next request. */
export async function takeInNewer(deps: EngineDeps, turn: Turn): Promise<void> {
  if (!turn.isBehind) return;
  const heard = turn.amendSeq;
  turn.hear(await readTriggers(deps.db, turn.run.id), heard);
}
