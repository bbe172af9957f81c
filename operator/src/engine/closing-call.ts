/**
 * The one model call that is held back: what was done and what is open, in the words of the task. It has no tools, and
 * where it fails, comes late or cannot be paid for, words of our own take its place. One reply either way (I8).
 */
import { failpoint } from "#src/failpoints.ts";
import { CLOSING_MS } from "#rules/limits.ts";
import { exhaustedBudget, pays } from "./budget.ts";
import { credentialFor } from "./credential.ts";
import type { EngineDeps } from "./deps.ts";
import { closeWith } from "./ending.ts";
import type { ModelRequest } from "./ports.ts";
import { whyBarred } from "./provenance.ts";
import { closingStep, record, sendReply } from "./record.ts";
import { type Taken, takeIn } from "./response.ts";
import { Left, type Turn } from "./turn.ts";

/** Says the last words of a turn that has used up what it may use. A stop that comes meanwhile is for the loop. */
export async function closeExhausted(deps: EngineDeps, turn: Turn, shutdown: AbortSignal): Promise<void> {
  const ending = {
    status: "budget_exhausted",
    reason: "BudgetExhausted",
    message: `the budget of ${exhaustedBudget(turn) ?? "this run"} is used up`,
  } as const;
  const asked = await lastWords(deps, turn, shutdown);
  if (asked === "stopped") return;
  if (asked === null) return closeWith(deps, turn, "exhausted", ending);
  const { request, response } = asked;
  // A call without a usable word was made all the same: it is counted with the step that carries our own.
  const step = closingStep(deps, turn, request, response, ending);
  if (step === null) return closeWith(deps, turn, "exhausted", ending, { request, response });
  await record(deps, turn, step);
  const [reply] = step.calls;
  if (!turn.replied && reply !== undefined) await sendReply(deps, turn, reply);
}

async function lastWords(
  deps: EngineDeps,
  turn: Turn,
  shutdown: AbortSignal,
): Promise<{ request: ModelRequest; response: Taken } | "stopped" | null> {
  const endpoint = turn.agent.primary;
  // Whatever it would say could not be shown; or it was said, and there was newer input: once is enough.
  if (endpoint === null || whyBarred(turn, {}) !== null || turn.ownSteps.at(-1)?.response.ending !== undefined)
    return null;
  const outline = { endpoint, apiKey: undefined, messages: turn.messages("exhausted"), tools: [] };
  if (!pays(turn, outline)) return null;
  const credential = await credentialFor(deps, turn.run.namespace, endpoint);
  if (credential.kind !== "ready") return null;
  const left = turn.agent.budgets.outputTokens - turn.outputTokens;
  const maxOutputTokens = Math.min(endpoint.maxOutputTokens ?? Number.POSITIVE_INFINITY, left);
  const request: ModelRequest = {
    ...outline,
    endpoint: Number.isFinite(maxOutputTokens) ? { ...endpoint, maxOutputTokens } : endpoint,
    apiKey: credential.apiKey,
  };
  const { lost, stopRequested } = turn.lease;
  const late = AbortSignal.timeout(deps.settings.closingMs ?? CLOSING_MS);
  const signal = AbortSignal.any([lost.signal, stopRequested.signal, shutdown, late]);
  failpoint("before:model");
  const outcome = await deps.model.complete(request, signal);
  failpoint("after:model");
  deps.meter.modelCall(outcome.kind === "response" ? "response" : outcome.reason);
  if (outcome.kind === "response") return { request, response: takeIn(outcome, deps.redaction) };
  if (lost.signal.aborted) throw new Left("lease lost");
  if (stopRequested.signal.aborted) {
    turn.stop = true;
    return "stopped";
  }
  if (shutdown.aborted) throw new Left("shutdown");
  return null;
}
