/** One model call of a turn: asked for with its credential, committed, or given back with what it waits for. */
import { failpoint } from "#src/failpoints.ts";
import { MAX_WAIT_MS } from "#rules/retry.ts";
import { credentialFor } from "./credential.ts";
import type { EngineDeps } from "./deps.ts";
import { finish } from "./ending.ts";
import { giveBack } from "./giving-back.ts";
import type { ModelEndpoint, ModelOutcome, ModelRequest } from "./ports.ts";
import { commit } from "./record.ts";
import type { Turn } from "./turn.ts";

type Failed = Extract<ModelOutcome, { kind: "failed" }>;

/** False: the run ended here, or waits without a lease. */
export async function think(deps: EngineDeps, turn: Turn, shutdown: AbortSignal): Promise<boolean> {
  const endpoint = turn.agent.primary;
  if (endpoint === null) {
    // The turn keeps the Agent that it began with: what is mended there helps the next one.
    await finish(deps, turn, {
      status: "failed",
      reason: "ModelMissing",
      message: "neither the Agent nor the install names a model: set spec.models.primary, then ask again",
    });
    return false;
  }
  const credential = await credentialFor(deps, turn.run.namespace, endpoint);
  if (credential.kind === "waiting") {
    const { reason, message } = credential;
    await giveBack(deps, turn.lease, { delayMs: deps.settings.waitForPersonMs, reason, message, failed: false });
    return false;
  }
  if (credential.kind === "broken") {
    await finish(deps, turn, { status: "failed", reason: credential.reason, message: credential.message });
    return false;
  }
  const request = requestOf(turn, endpoint, credential.apiKey);
  failpoint("before:model");
  const signal = AbortSignal.any([turn.lease.lost.signal, turn.lease.stopRequested.signal, shutdown]);
  const outcome = await deps.model.complete(request, signal);
  failpoint("after:model");
  deps.meter.modelCall(outcome.kind === "response" ? "response" : outcome.reason);
  if (outcome.kind === "response") {
    await commit(deps, turn, request, outcome);
    return true;
  }
  if (outcome.class === "cancelled" && signal.aborted) {
    turn.stop ||= turn.lease.stopRequested.signal.aborted;
    return true; // the loop looks at why
  }
  await failed(deps, turn, outcome);
  return false;
}

const requestOf = (turn: Turn, endpoint: ModelEndpoint, apiKey: string | undefined): ModelRequest => ({
  endpoint,
  apiKey,
  messages: turn.messages(),
  tools: [...turn.tools.values()].map(({ name, description, parameters }) => ({ name, description, parameters })),
});

async function failed(deps: EngineDeps, turn: Turn, outcome: Failed): Promise<void> {
  const attempt = turn.run.attempts + 1;
  const decision = deps.retry({
    attempt,
    class: outcome.class,
    random: deps.random(),
    ...(outcome.retryAfterMs === undefined ? {} : { retryAfterMs: outcome.retryAfterMs }),
  });
  const { reason } = outcome;
  if (decision.kind === "wait") {
    const message = `${outcome.message} It is asked again in ${inWords(decision.ms)}.`;
    return giveBack(deps, turn.lease, { delayMs: decision.ms, reason, message, failed: true });
  }
  const message = `${outcome.message}${givenUp(decision.why, attempt, outcome)}`;
  await finish(deps, turn, { status: "failed", reason, message });
}

function givenUp(why: "not-retryable" | "attempts-used-up" | "wait-too-long", attempt: number, failed: Failed): string {
  switch (why) {
    case "not-retryable":
      return "";
    case "attempts-used-up":
      return ` Given up after ${attempt} attempts.`;
    case "wait-too-long":
      return ` It asked for a wait of ${inWords(failed.retryAfterMs ?? 0)}; a run waits ${inWords(MAX_WAIT_MS)} at most.`;
  }
}

const inWords = (ms: number): string => (ms < 120_000 ? `${Math.ceil(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`);
