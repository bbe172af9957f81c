/** How a turn ends: what is said last, and which status and reason that is. */
import { readEffects } from "#ledger/reads.ts";
import { finishTurn, MAX_MESSAGE } from "#ledger/turns.ts";
import { closing, type Closing, type DoneEffect, unknownNote } from "#rules/closing.ts";
import type { TerminalStatus } from "#rules/run-machine.ts";
import { head, storable } from "#rules/text.ts";
import type { StoredResponse } from "#rules/transcript.ts";
import type { EngineDeps } from "./deps.ts";
import type { ModelRequest } from "./ports.ts";
import { asked, record, sendReply, UNASKED } from "./record.ts";
import { replyCall, type Taken } from "./response.ts";
import { Left, type Turn } from "./turn.ts";

export type Ending = { readonly status: TerminalStatus; readonly reason: string; readonly message: string | null };

/** After the reply: read from rows, because the worker that sent it may have died before it could say. */
export function endingOf(turn: Turn): Ending {
  const said = turn.ownSteps.at(-1)?.response;
  if (said?.closing === "failed" && said.ending !== undefined) return said.ending;
  if (turn.stop) return { status: "cancelled", reason: "Stopped", message: null };
  return said?.ending ?? { status: "succeeded", reason: "Answered", message: null };
}

async function effectsOf(deps: EngineDeps, turn: Turn): Promise<DoneEffect[]> {
  if (turn.untouched) return [];
  return (await readEffects(deps.db, turn.run.id)).filter((effect) => effect.kind !== "reply");
}

/**
 * An end without an answer of the model's says so once, in a reply of its own. `spent`: a closing call that was made
 * and said nothing of use. `question`: the one that nobody answered.
 */
export async function closeWith(
  deps: EngineDeps,
  turn: Turn,
  why: Closing,
  ending?: StoredResponse["ending"],
  spent?: { request: ModelRequest; response: Taken },
  question?: string,
): Promise<void> {
  const text = closing(why, await effectsOf(deps, turn), question ?? ending?.reason);
  const call = replyCall(text, deps.newId);
  const stored: StoredResponse = {
    text,
    calls: [],
    truncated: false,
    closing: why,
    ...(ending === undefined ? {} : { ending }),
  };
  const facts =
    spent === undefined
      ? { request: { closing: why }, ...UNASKED }
      : asked(turn, spent.request, spent.response, "exhausted");
  await record(deps, turn, { ...facts, stored, calls: [call] });
  if (!turn.replied) await sendReply(deps, turn, call);
}

/** The person is told in plain words; the reason and its sentence are for those who run this. */
export async function fail(deps: EngineDeps, turn: Turn, reason: string, message: string): Promise<void> {
  const ending = { status: "failed", reason, message: deps.redaction.text(storable(message)) } as const;
  await closeWith(deps, turn, "failed", ending);
  await finish(deps, turn, ending);
}

/** Two sentences as one; the first gives way when both do not fit, because the second names what a person must do. */
export function joined(said: string | null, note: string | null): string | null {
  if (said === null || note === null) return said ?? note;
  return `${head(said.replace(/\.$/, ""), MAX_MESSAGE - note.length - 2)}; ${note}`;
}

/** However a turn ends, a write whose outcome nobody knows is named in its message. */
export async function finish(deps: EngineDeps, turn: Turn, ending: Ending): Promise<void> {
  const { status } = ending;
  const note = unknownNote(await effectsOf(deps, turn));
  const reason = note !== null && status === "succeeded" ? "EffectUnknown" : ending.reason;
  const message = joined(ending.message, note);
  turn.lease.letGo();
  const finished = await finishTurn(deps.db, {
    conversationId: turn.run.conversationId,
    runId: turn.run.id,
    token: turn.lease.token,
    nonce: deps.newId(),
    status,
    seenSeq: turn.shownSeq,
    reason,
    message: message === null ? null : deps.redaction.text(storable(message)),
  });
  if (finished.kind === "fenced" || finished.kind === "ended") throw new Left(finished.kind);
  deps.meter.ended(status, reason);
  deps.log.info({ run: turn.run.id, status, reason }, "a turn ended");
}
