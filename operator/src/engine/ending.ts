/** How a turn ends: what is said last, and which status and reason that is. */
import { readEffects } from "#ledger/reads.ts";
import { finishTurn, MAX_MESSAGE } from "#ledger/turns.ts";
import { closing, type Closing, type DoneEffect, unknownNote } from "#rules/closing.ts";
import type { TerminalStatus } from "#rules/run-machine.ts";
import { head, storable } from "#rules/text.ts";
import type { EngineDeps } from "./deps.ts";
import { record, sendReply } from "./record.ts";
import { replyCall } from "./response.ts";
import { Left, type Turn } from "./turn.ts";

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

/** The limit that this turn has used up, in words; null: it may go on. */
export function exhaustedBudget(turn: Turn): string | null {
  const { budgets } = turn.agent;
  if (turn.steps.length >= budgets.iterations) return counted(budgets.iterations, "iteration");
  if (turn.modelCalls >= budgets.modelCalls) return counted(budgets.modelCalls, "model call");
  // With its calls used up a turn may still answer; only one that asks for more is over (those calls were rejected).
  if (turn.toolCalls > budgets.toolCalls) return counted(budgets.toolCalls, "tool call");
  if (turn.inputTokens >= budgets.inputTokens) return counted(budgets.inputTokens, "input token");
  if (turn.outputTokens >= budgets.outputTokens) return counted(budgets.outputTokens, "output token");
  return null;
}

export type Ending = { readonly status: TerminalStatus; readonly reason: string; readonly message: string | null };

/** After the reply: read from rows, because the worker that sent it may have died before it could say. */
export function endingOf(turn: Turn): Ending {
  if (turn.stop) return { status: "cancelled", reason: "Stopped", message: null };
  if (turn.steps.at(-1)?.response.closing === "exhausted") {
    const message = `the budget of ${exhaustedBudget(turn) ?? "this run"} is used up`;
    return { status: "budget_exhausted", reason: "BudgetExhausted", message };
  }
  return { status: "succeeded", reason: "Answered", message: null };
}

async function effectsOf(deps: EngineDeps, turn: Turn): Promise<DoneEffect[]> {
  if (turn.untouched) return [];
  return (await readEffects(deps.db, turn.run.id)).filter((effect) => effect.kind !== "reply");
}

/** An end without an answer of the model's says so once, in a reply of its own. */
export async function closeWith(deps: EngineDeps, turn: Turn, why: Closing): Promise<void> {
  const text = closing(why, await effectsOf(deps, turn));
  const call = replyCall(text, deps.newId);
  const stored = { text, calls: [], truncated: false, closing: why };
  await record(deps, turn, { request: { closing: why }, stored, calls: [call], usage: null, modelCall: false });
  if (!turn.replied) await sendReply(deps, turn, call);
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
    seenSeq: turn.seenSeq,
    reason,
    message: message === null ? null : deps.redaction.text(storable(message)),
  });
  if (finished.kind === "fenced" || finished.kind === "ended") throw new Left(finished.kind);
  deps.meter.ended(status, reason);
  deps.log.info({ run: turn.run.id, status, reason }, "a turn ended");
}
