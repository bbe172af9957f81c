/** One model call of a turn: asked for with its credential, committed, or given back with what it waits for. */
import { isDeepStrictEqual } from "node:util";
import { failpoint } from "#src/failpoints.ts";
import { MAX_WAIT_MS } from "#rules/retry.ts";
import { credentialFor } from "./credential.ts";
import type { EngineDeps } from "./deps.ts";
import { fail } from "./ending.ts";
import { giveBack } from "./giving-back.ts";
import type { ModelEndpoint, ModelOutcome, ModelRequest, ToolSchema } from "./ports.ts";
import { commit } from "./record.ts";
import type { Turn } from "./turn.ts";

type Failed = Extract<ModelOutcome, { kind: "failed" }>;

/** False: the run ended here, or waits without a lease. */
export async function think(deps: EngineDeps, turn: Turn, shutdown: AbortSignal): Promise<boolean> {
  const endpoint = turn.agent.primary;
  if (endpoint === null) {
    // The turn keeps the Agent that it began with: what is mended there helps the next one.
    const message = "neither the Agent nor the install names a model: set spec.models.primary, then ask again";
    await fail(deps, turn, "ModelMissing", message);
    return false;
  }
  if (Number.isFinite(turn.agent.budgets.costMicros) && endpoint.prices === undefined) {
    const message =
      "budgets.maxCostUSD needs prices: set pricesUSDPerMTok in the Agent's spec.models.primary (or in defaults.models.primary of the chart's values), or take maxCostUSD away, then ask again";
    await fail(deps, turn, "PricesMissing", message);
    return false;
  }
  const credential = await credentialFor(deps, turn.run.namespace, endpoint);
  if (credential.kind === "waiting") {
    const { reason, message } = credential;
    await giveBack(deps, turn.lease, { delayMs: deps.settings.waitForPersonMs, reason, message, failed: false });
    return false;
  }
  if (credential.kind === "broken") {
    await fail(deps, turn, credential.reason, credential.message);
    return false;
  }
  const { lost, stopRequested } = turn.lease;
  const signal = AbortSignal.any([lost.signal, stopRequested.signal, turn.work.over, shutdown]);
  const { request, outcome } = await askToFit(deps, turn, () => requestOf(turn, endpoint, credential.apiKey), signal);
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

/**
 * A request that was too long is asked once more with tool results shortened harder. The level is kept by the step of
 * the response; a worker that dies before that commit leaves nothing, and the next one takes the same way again.
 */
async function askToFit(
  deps: EngineDeps,
  turn: Turn,
  build: () => ModelRequest,
  signal: AbortSignal,
): Promise<{ request: ModelRequest; outcome: ModelOutcome }> {
  const request = build();
  const outcome = await ask(deps, turn, request, signal);
  if (outcome.kind === "response" || outcome.class !== "overflow" || turn.compaction > 0) return { request, outcome };
  turn.compaction = 1;
  const shorter = build();
  // The very same request would be too long again.
  if (isDeepStrictEqual(shorter.messages, request.messages)) return { request, outcome };
  return { request: shorter, outcome: await ask(deps, turn, shorter, signal) };
}

async function ask(deps: EngineDeps, turn: Turn, request: ModelRequest, signal: AbortSignal): Promise<ModelOutcome> {
  failpoint("before:model");
  const answered = await deps.model.complete(request, signal, (characters) => {
    turn.lease.streamed = characters;
  });
  turn.lease.streamed = 0;
  failpoint("after:model");
  // A response is taken in as a whole; a failure becomes a message here and there.
  const outcome =
    answered.kind === "failed" ? { ...answered, message: deps.redaction.text(answered.message) } : answered;
  deps.meter.modelCall(outcome.kind === "response" ? "response" : outcome.reason);
  return outcome;
}

const requestOf = (turn: Turn, endpoint: ModelEndpoint, apiKey: string | undefined): ModelRequest => ({
  endpoint,
  apiKey,
  messages: turn.messages(),
  tools: schemasOf(turn.tools),
});

/** The same list for all requests of a turn, so that it is hashed once. */
const schemas = new WeakMap<Turn["tools"], readonly ToolSchema[]>();

function schemasOf(tools: Turn["tools"]): readonly ToolSchema[] {
  const known = schemas.get(tools);
  if (known !== undefined) return known;
  const made = [...tools.values()].map(({ name, description, parameters }) => ({ name, description, parameters }));
  schemas.set(tools, made);
  return made;
}

async function failed(deps: EngineDeps, turn: Turn, outcome: Failed): Promise<void> {
  const attempt = turn.attempts + 1;
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
  await fail(deps, turn, reason, message);
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
