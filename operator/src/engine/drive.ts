/**
 * One turn under one lease: read back, then decide at each point what is next — a reply that already crossed, a stop,
 * open calls, a budget, a model call — until the turn ends or has to wait without a lease.
 */
import { failpoint } from "#src/failpoints.ts";
import type { Runner } from "#ledger/database.ts";
import type { CrossRequest } from "#ledger/effects.ts";
import { releaseLease } from "#ledger/leases.ts";
import type { Claim } from "#ledger/leases.ts";
import { readEffects, readRun } from "#ledger/reads.ts";
import { type CallRow, commitResponse, commitResults, type Committed } from "#ledger/steps.ts";
import { finishTurn } from "#ledger/turns.ts";
import { closing, unknownNote } from "#rules/closing.ts";
import { EFFECTS, type EffectKind } from "#rules/effects.ts";
import { isPawlError } from "#rules/errors.ts";
import { MAX_UNUSABLE_RESPONSES } from "#rules/limits.ts";
import type { TerminalStatus } from "#rules/run-machine.ts";
import { BUILDER_VERSION, type StoredResponse } from "#rules/transcript.ts";
import { canonicalHash } from "./canonical.ts";
import { collect } from "./collect.ts";
import { credentialFor } from "./credential.ts";
import type { EngineDeps } from "./deps.ts";
import { cross, type Crossing, prepareCrossing } from "./dispatch.ts";
import { HeldLease } from "./lease.ts";
import type { ModelOutcome, ModelRequest } from "./ports.ts";
import { planCalls, replyCall, type Response } from "./response.ts";
import { Left, Turn } from "./turn.ts";

/** Claims in a row that ended in an error of ours before the run is failed visibly instead of tried for ever. */
export const MAX_INTERNAL_ATTEMPTS = 5;

/** Drives a claimed run until it ends, waits, or is no longer ours. Never throws. */
export async function driveRun(deps: EngineDeps, claim: Claim, shutdown: AbortSignal): Promise<void> {
  const lease = new HeldLease(deps, claim.runId, claim.token);
  try {
    const turn = new Turn(deps, await readRun(deps.db, claim.runId), lease);
    await loop(deps, turn, shutdown);
  } catch (error) {
    if (error instanceof Left) {
      if (shutdown.aborted) await release(deps, lease, { delayMs: 0, reason: null, message: null, failed: false });
    } else {
      await recover(deps, claim, lease, error);
    }
  } finally {
    await lease.release();
  }
}

type Wait = { delayMs: number; reason: string | null; message: string | null; failed: boolean };

async function release(deps: EngineDeps, lease: HeldLease, wait: Wait): Promise<void> {
  await releaseLease(deps.db, { runId: lease.runId, token: lease.token, ...wait }).catch((error: Error) => {
    // The lease lapses by itself; whoever claims next starts from the same rows.
    deps.log.warn({ run: lease.runId, error: error.message }, "a lease could not be given back");
  });
}

async function recover(deps: EngineDeps, claim: Claim, lease: HeldLease, error: unknown): Promise<void> {
  const message = error instanceof Error ? error.message : String(error);
  deps.log.error(
    { run: claim.runId, error: message, stack: error instanceof Error ? error.stack : undefined },
    "a turn was interrupted",
  );
  const ours = !isPawlError(error, "transient");
  if (ours && claim.attempts + 1 >= MAX_INTERNAL_ATTEMPTS) {
    const run = await readRun(deps.db, claim.runId).catch(() => null);
    if (run !== null) {
      await finishTurn(deps.db, {
        conversationId: run.conversationId,
        runId: run.id,
        token: claim.token,
        nonce: deps.newId(),
        status: "failed",
        seenSeq: Math.max(0, ...run.triggers.map((trigger) => trigger.seq)),
        reason: isPawlError(error) ? error.reason : "InternalError",
        message: `${message}; this is a fault of Pawl, see the worker's log`,
      }).catch(() => undefined);
      return;
    }
  }
  const delayMs = Math.min(30_000, 500 * 2 ** claim.attempts);
  await release(deps, lease, {
    delayMs,
    reason: isPawlError(error) ? error.reason : "InternalError",
    message,
    failed: ours,
  });
}

async function loop(deps: EngineDeps, turn: Turn, shutdown: AbortSignal): Promise<void> {
  for (;;) {
    if (turn.lease.lost.signal.aborted) throw new Left("lease lost");
    if (turn.replied)
      return finish(
        deps,
        turn,
        turn.stop ? "cancelled" : "succeeded",
        turn.stop ? "Stopped" : "Answered",
        await note(deps, turn),
      );
    if (turn.openCalls.some((call) => call.class !== "reply")) {
      await collect(deps, turn, shutdown);
      continue;
    }
    const draft = turn.openCalls.find((call) => call.class === "reply");
    if (draft !== undefined) {
      // Committed by a worker that died before it crossed: it crosses anew.
      await sendReply(deps, turn, draft);
      continue;
    }
    if (turn.stop) {
      await closeWith(deps, turn, "stopped");
      continue;
    }
    const exhausted = exhaustedBudget(turn);
    if (exhausted !== null) {
      await closeWith(deps, turn, "exhausted");
      return finish(deps, turn, "budget_exhausted", "BudgetExhausted", `the budget of ${exhausted} is used up`);
    }
    if (unusable(turn) >= MAX_UNUSABLE_RESPONSES) {
      return finish(
        deps,
        turn,
        "failed",
        "ModelUnusable",
        `the model gave ${MAX_UNUSABLE_RESPONSES} responses in a row that nothing could be done with; try another model or simplify the tools`,
      );
    }
    if (shutdown.aborted) throw new Left("shutdown");
    if (!(await think(deps, turn, shutdown))) return;
  }
}

function exhaustedBudget(turn: Turn): string | null {
  const { budgets } = turn.agent;
  if (turn.steps.length >= budgets.iterations) return `${budgets.iterations} iterations`;
  if (turn.modelCalls >= budgets.modelCalls) return `${budgets.modelCalls} model calls`;
  if (turn.toolCalls >= budgets.toolCalls) return `${budgets.toolCalls} tool calls`;
  if (turn.inputTokens >= budgets.inputTokens) return `${budgets.inputTokens} input tokens`;
  if (turn.outputTokens >= budgets.outputTokens) return `${budgets.outputTokens} output tokens`;
  return null;
}

/** Responses at the end of which every call was rejected, or that had neither text nor calls. */
function unusable(turn: Turn): number {
  let count = 0;
  for (const step of turn.steps.toReversed()) {
    const calls = turn.calls.filter((call) => call.ordinal === step.ordinal);
    if (calls.some((call) => call.outcome !== "rejected")) break;
    count += 1;
  }
  return count;
}

/** One model call and its commit. False: the run ended here, or waits without a lease. */
async function think(deps: EngineDeps, turn: Turn, shutdown: AbortSignal): Promise<boolean> {
  const endpoint = turn.agent.primary;
  if (endpoint === null) {
    await release(deps, turn.lease, {
      delayMs: deps.settings.waitForPersonMs,
      reason: "ModelMissing",
      message: "neither the Agent nor the install names a model: set spec.models.primary",
      failed: false,
    });
    return false;
  }
  const credential = await credentialFor(deps, turn.run.namespace, endpoint);
  if (credential.kind !== "ready") {
    await release(deps, turn.lease, {
      delayMs: deps.settings.waitForPersonMs,
      reason: credential.reason,
      message: credential.message,
      failed: false,
    });
    return false;
  }
  const request: ModelRequest = {
    endpoint,
    apiKey: credential.apiKey,
    messages: turn.messages(),
    tools: [...turn.tools.values()].map(({ name, description, parameters }) => ({ name, description, parameters })),
  };
  failpoint("before:model");
  const signal = AbortSignal.any([turn.lease.lost.signal, turn.lease.stopRequested.signal, shutdown]);
  const outcome = await deps.model.complete(request, signal);
  failpoint("after:model");
  deps.meter.modelCall(outcome.kind === "response" ? "response" : outcome.reason);
  if (outcome.kind === "failed") return failed(deps, turn, outcome);
  await commit(deps, turn, request, outcome);
  return true;
}

async function failed(
  deps: EngineDeps,
  turn: Turn,
  outcome: Extract<ModelOutcome, { kind: "failed" }>,
): Promise<boolean> {
  if (outcome.class === "cancelled") {
    turn.stop ||= turn.lease.stopRequested.signal.aborted;
    return true; // the loop looks at why
  }
  const attempt = turn.run.attempts + 1;
  const decision = deps.retry({
    attempt,
    class: outcome.class,
    random: deps.random(),
    ...(outcome.retryAfterMs === undefined ? {} : { retryAfterMs: outcome.retryAfterMs }),
  });
  if (decision.kind === "wait") {
    await release(deps, turn.lease, {
      delayMs: decision.ms,
      reason: outcome.reason,
      message: outcome.message,
      failed: true,
    });
    return false;
  }
  const tried = attempt === 1 ? "" : ` (tried ${attempt} times)`;
  await finish(deps, turn, "failed", outcome.reason, `${outcome.message}${tried}`);
  return false;
}

/** The response whole; with it the first crossing, or the reply. */
async function commit(deps: EngineDeps, turn: Turn, request: ModelRequest, response: Response): Promise<void> {
  const calls = await planCalls(response, { tools: turn.tools, effects: turn.agent.effects, newId: deps.newId });
  const stored: StoredResponse = {
    text: response.text,
    calls: response.calls.map((call) => ({ name: call.name, argumentsText: call.argumentsText })),
    truncated: response.truncated,
  };
  const facts = {
    hash: canonicalHash({ messages: request.messages, tools: request.tools }),
    model: request.endpoint.model,
    baseURL: request.endpoint.baseURL,
    tools: canonicalHash(request.tools),
    builder: BUILDER_VERSION,
    finishReason: response.finishReason,
  };
  await record(deps, turn, { request: facts, stored, calls, usage: response.usage, modelCall: true });
}

type Recorded = {
  request: unknown;
  stored: StoredResponse;
  calls: CallRow[];
  usage: { inputTokens: number; outputTokens: number } | null;
  modelCall: boolean;
};

async function record(deps: EngineDeps, turn: Turn, step: Recorded): Promise<void> {
  const ordinal = turn.nextOrdinal;
  const row = {
    ...turn.ids,
    nonce: deps.newId(),
    ordinal,
    request: step.request,
    response: step.stored,
    usage: step.usage,
    calls: step.calls,
    modelCall: step.modelCall,
  };
  const first = step.calls.find((call) => call.outcome === null);
  const crossing = first === undefined ? undefined : crossingWith(deps, turn, first);
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
  turn.nextOrdinal = ordinal + 1;
  turn.steps.push({ ordinal, response: step.stored });
  turn.calls.push(...step.calls.map((call) => ({ ...call, ordinal })));
  turn.modelCalls += step.modelCall ? 1 : 0;
  turn.toolCalls += step.calls.filter((call) => call.class !== "reply").length;
  turn.inputTokens += step.usage?.inputTokens ?? 0;
  turn.outputTokens += step.usage?.outputTokens ?? 0;
  if (!crossed || first === undefined || crossing === undefined) return;
  if (first.class === "reply") turn.replied = true;
  else turn.crossed = { callId: first.id, crossing };
}

/** The crossing that shares the response's commit: the reply's, or that of a first call that changes something. */
function crossingWith(deps: EngineDeps, turn: Turn, first: CallRow): Crossing | undefined {
  if (first.class === "reply") return replyCrossing(deps, turn, first);
  const tool = turn.tools.get(first.tool);
  if (tool === undefined || turn.stop || !EFFECTS[first.kind as EffectKind].crosses) return undefined;
  return prepareCrossing(deps, turn.ids, first, tool, turn.agent.effects);
}

/** A refusal here is found again, with its words, when the call's turn comes: nothing has left. */
async function passes(crossing: Crossing, tx: Runner): Promise<boolean> {
  const answer = await cross(tx, crossing);
  return answer.kind === "crossed" || answer.kind === "already";
}

/** For an applied Run the reply is a row: committing it is delivery, through the slot that chat uses too. */
function replyCrossing(deps: EngineDeps, turn: Turn, call: Pick<CallRow, "id" | "argsHash">): Crossing {
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
  };
  return { dispatch, request };
}

/** A reply that was committed and has not crossed: by a worker that died, or because it was refused a moment ago. */
async function sendReply(deps: EngineDeps, turn: Turn, call: Pick<CallRow, "id" | "argsHash">): Promise<void> {
  const answer = await cross(deps.db, replyCrossing(deps, turn, call));
  switch (answer.kind) {
    case "crossed":
    case "already":
      turn.replied = true;
      return;
    case "stale_input":
    case "hold":
      turn.took(
        await commitResults(deps.db, { ...turn.ids, nonce: deps.newId() }, [
          { id: call.id, outcome: "withheld", result: "not sent: there is newer input" },
        ]),
      );
      turn.close([{ id: call.id, outcome: "withheld", result: "not sent: there is newer input" }]);
      return;
    default:
      throw new Left(answer.kind);
  }
}

/** An end without an answer of the model's says so once, in a reply of its own. */
async function closeWith(deps: EngineDeps, turn: Turn, why: "stopped" | "exhausted"): Promise<void> {
  const effects = (await readEffects(deps.db, turn.run.id)).filter((effect) => effect.kind !== "reply");
  const text = closing(why, effects);
  const call = replyCall(text, deps.newId);
  const stored: StoredResponse = { text, calls: [], truncated: false };
  await record(deps, turn, { request: { closing: why }, stored, calls: [call], usage: null, modelCall: false });
  if (!turn.replied) await sendReply(deps, turn, call);
}

async function note(deps: EngineDeps, turn: Turn): Promise<string | null> {
  return unknownNote((await readEffects(deps.db, turn.run.id)).filter((effect) => effect.kind !== "reply"));
}

async function finish(
  deps: EngineDeps,
  turn: Turn,
  status: TerminalStatus,
  reason: string,
  message: string | null,
): Promise<void> {
  const finished = await finishTurn(deps.db, {
    conversationId: turn.run.conversationId,
    runId: turn.run.id,
    token: turn.lease.token,
    nonce: deps.newId(),
    status,
    seenSeq: turn.seenSeq,
    reason: message !== null && status === "succeeded" ? "EffectUnknown" : reason,
    message,
  });
  if (finished.kind === "fenced" || finished.kind === "ended") throw new Left(finished.kind);
  deps.meter.ended(status, reason);
  deps.log.info({ run: turn.run.id, status, reason }, "a turn ended");
}
