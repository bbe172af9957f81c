/** The commits of a response: whole, before any of its calls runs, with the first crossing (or the reply) in it. */
import type { Runner } from "#ledger/database.ts";
import type { CrossRequest } from "#ledger/effects.ts";
import { type CallRow, commitResponse, commitResults, type Committed } from "#ledger/steps.ts";
import { EFFECTS, type EffectKind } from "#rules/effects.ts";
import type { StoredResponse } from "#rules/transcript.ts";
import { rememberToolset, requestFacts, type Toolset, unknownToolset } from "./request-facts.ts";
import { actionOf } from "./action.ts";
import { type Cost, costOf, NO_COST } from "./budget.ts";
import type { EngineDeps } from "./deps.ts";
import { cross, type Crossing, prepareCrossing } from "./dispatch.ts";
import { crossWhenKnown } from "./hold.ts";
import type { ModelRequest, ModelUsage } from "./ports.ts";
import { basis, stepOf, whyBarred } from "./provenance.ts";
import { planCalls, replyCall, type Response, storedCall, type Taken, takeIn } from "./response.ts";
import { keepsState } from "./state.ts";
import { Left, type Turn } from "./turn.ts";
import { UNDO } from "./undo-tool.ts";

/** Takes in a model's response and commits it. */
export async function commit(deps: EngineDeps, turn: Turn, request: ModelRequest, said: Response): Promise<void> {
  const response = takeIn(said, deps.redaction);
  const calls = await planCalls(response, {
    tools: turn.tools,
    withheld: (name) => turn.toolset.all.has(name),
    newId: deps.newId,
    requireApproval: turn.agent.requireApproval,
    run: turn.callRun,
    room: turn.agent.budgets.toolCalls - turn.toolCalls,
  });
  const stored: StoredResponse = {
    text: response.text,
    calls: response.calls.map(storedCall),
    truncated: response.truncated,
  };
  await record(deps, turn, { ...asked(turn, request, response), stored, calls });
}

/** What a step keeps of the model call that it stands for. */
export function asked(
  turn: Turn,
  request: ModelRequest,
  response: Taken,
  closing?: "exhausted",
): Pick<Recorded, "request" | "toolset" | "usage" | "cost" | "modelCall"> {
  const facts = requestFacts(turn, request, response.finishReason, closing);
  const answer = () => `${response.text ?? ""}${response.calls.map((call) => call.argumentsText).join("")}`;
  const { usage } = response;
  const toolset = { hash: facts.tools, tools: request.tools };
  return { request: facts, toolset, usage, cost: costOf(request, usage, answer), modelCall: true };
}

/** The step of a closing call that said something; null: it did not. */
export function closingStep(
  deps: EngineDeps,
  turn: Turn,
  request: ModelRequest,
  response: Taken,
  ending: NonNullable<StoredResponse["ending"]>,
): Recorded | null {
  const text = response.text?.trim() ?? "";
  if (text === "") return null;
  // No `closing`: these are the model's words, and may show no more than any answer of its.
  const stored: StoredResponse = { text, calls: [], truncated: response.truncated, ending };
  return { ...asked(turn, request, response, "exhausted"), stored, calls: [replyCall(text, deps.newId)] };
}

/** Of words of our own: no model was asked. */
export const UNASKED = { usage: null, cost: NO_COST, modelCall: false } as const;

export type Recorded = {
  readonly request: unknown;
  /** What the request offered. */
  readonly toolset?: Toolset;
  readonly stored: StoredResponse;
  readonly calls: CallRow[];
  readonly usage: ModelUsage | null;
  readonly cost: Cost;
  readonly modelCall: boolean;
};

export async function record(deps: EngineDeps, turn: Turn, step: Recorded): Promise<void> {
  // The ledger would refuse it soon; a worker that knows does not try its luck.
  if (turn.lease.lost.signal.aborted) throw new Left("lease lost");
  const ordinal = turn.nextOrdinal;
  const row = {
    ...turn.ids,
    // Words of our own show the model nothing: what it has not read goes to the next turn.
    seenSeq: step.modelCall ? turn.seenSeq : turn.shownSeq,
    nonce: deps.newId(),
    ordinal,
    request: step.request,
    toolset: step.toolset === undefined ? null : unknownToolset(deps.db, step.toolset),
    response: step.stored,
    usage: step.usage,
    calls: step.calls,
    modelCall: step.modelCall,
    ...step.cost,
  };
  const first = step.calls.find((call) => call.outcome === null);
  const crossing = first === undefined ? undefined : crossingWith(deps, turn, first, step.stored);
  let committed: Committed;
  let crossed = false;
  if (crossing === undefined) {
    committed = await commitResponse(deps.db, row);
  } else {
    [committed, crossed] = await deps.db.transaction(async (tx) => {
      const answer = await commitResponse(tx, row);
      const mayCross = answer.kind === "committed" || answer.kind === "already";
      return [answer, mayCross && (await passes(crossing, tx))] as const;
    });
  }
  turn.took(committed);
  if (step.toolset !== undefined) rememberToolset(deps.db, step.toolset);
  turn.nextOrdinal = ordinal + 1;
  turn.attempts = 0;
  turn.steps.push({ ordinal, response: step.stored, resumed: step.modelCall && turn.resuming });
  turn.delivered(ordinal, row.seenSeq);
  turn.interrupted = false;
  if (step.modelCall && turn.reconciling !== undefined) turn.reconciling = { ...turn.reconciling, isKept: true };
  turn.saw(step.calls);
  turn.calls.push(...step.calls.map((call) => ({ gate: "none" as const, ...call, ordinal })));
  turn.modelCalls += step.modelCall ? 1 : 0;
  turn.toolCalls += step.calls.filter((call) => call.class !== "reply").length;
  turn.inputTokens += step.usage?.inputTokens ?? 0;
  turn.outputTokens += step.usage?.outputTokens ?? 0;
  turn.spentMicros += step.cost.spentMicros;
  if (!crossed || first === undefined || crossing === undefined) return;
  if (first.class === "reply") turn.replied = true;
  else turn.crossed = { callId: first.id, crossing };
}

/** The crossing that shares the response's commit: the reply's, or that of a first call that changes something. */
function crossingWith(deps: EngineDeps, turn: Turn, first: CallRow, step: StoredResponse): Crossing | undefined {
  if (first.class === "reply")
    return whyBarred(turn, step) === null ? replyCrossing(deps, turn, first, step) : undefined;
  const tool = turn.tools.get(first.tool);
  if (tool === undefined || turn.stop || first.gate === "open" || !EFFECTS[first.kind as EffectKind].crosses)
    return undefined;
  // What an undo does is read from rows when its turn comes; and nothing is looked at before the response is recorded.
  if (first.tool === UNDO || keepsState(tool) !== undefined) return undefined;
  return prepareCrossing(deps, turn.ids, first, actionOf(first, tool));
}

/** A refusal here is found again, with its words, when the call's turn comes: nothing has left. */
async function passes(crossing: Crossing, tx: Runner): Promise<boolean> {
  const answer = await cross(tx, crossing);
  return answer.kind === "crossed" || answer.kind === "already";
}

/** For an applied Run the reply is a row: committing it is delivery, through the slot that chat uses too. */
function replyCrossing(
  deps: EngineDeps,
  turn: Turn,
  call: Pick<CallRow, "id" | "argsHash">,
  step: Pick<StoredResponse, "closing">,
): Crossing {
  const dispatch = { effectId: deps.newId(), nonce: deps.newId(), sendBy: 0, keyed: false };
  const { sendMs, settleSlackMs } = deps.settings;
  const request: CrossRequest = {
    ...turn.ids,
    ...dispatch,
    callId: call.id,
    kind: "reply",
    target: "reply",
    argsHash: call.argsHash,
    sendMs,
    settleMs: sendMs + settleSlackMs,
    receipt: { delivered: "ledger" },
    // Pawl's own last words are owed whatever has come since; that goes to the next turn.
    ...(step.closing === undefined ? {} : { seenSeq: Number.MAX_SAFE_INTEGER }),
    builtOn: basis(turn, step).map(({ id }) => id),
  };
  return { dispatch, request };
}

const WITHHELD = "not sent: there is newer input";

/** A reply that was committed and has not crossed: by a worker that died, or because it was refused a moment ago. */
export async function sendReply(deps: EngineDeps, turn: Turn, call: Pick<CallRow, "id" | "argsHash">): Promise<void> {
  const step = stepOf(turn, call.id);
  const why = whyBarred(turn, step);
  if (why !== null) return withhold(deps, turn, call.id, why);
  const answer = await crossWhenKnown(deps, turn, () => cross(deps.db, replyCrossing(deps, turn, call, step)));
  switch (answer.kind) {
    case "crossed":
    case "already":
      turn.replied = true;
      return;
    case "stale_input":
    case "hold":
      return withhold(deps, turn, call.id, WITHHELD, turn.agent.maxInterruptions);
    default:
      throw new Left(answer.kind);
  }
}

/**
 * The answer stays, as an unsent draft that the model is shown with the reason. One that newer input kept back is an
 * interruption, and only so many are one request's (C62).
 */
async function withhold(
  deps: EngineDeps,
  turn: Turn,
  callId: string,
  why: string,
  interruptedOf: number | null = null,
): Promise<void> {
  const results = [{ id: callId, outcome: "withheld", result: why }] as const;
  turn.took(await commitResults(deps.db, { ...turn.ids, nonce: deps.newId() }, results, interruptedOf));
  turn.close(results);
}
