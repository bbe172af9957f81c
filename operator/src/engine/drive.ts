/**
 * One turn under one lease: read back, then decide at each point what is next — a reply that already crossed, a stop,
 * open calls, a budget, a model call — until the turn ends or has to wait without a lease.
 */
import type { Claim } from "#ledger/leases.ts";
import { readEffects, readRun } from "#ledger/reads.ts";
import { finishTurn } from "#ledger/turns.ts";
import { unknownNote } from "#rules/closing.ts";
import { isPawlError } from "#rules/errors.ts";
import { MAX_UNUSABLE_RESPONSES } from "#rules/limits.ts";
import { head, storable } from "#rules/text.ts";
import { readAgentSpec } from "./agent.ts";
import { collect } from "./collect.ts";
import { meetConsent } from "./consent.ts";
import type { EngineDeps } from "./deps.ts";
import { settle } from "./dispatch.ts";
import { exhaustedBudget } from "./budget.ts";
import { closeExhausted } from "./closing-call.ts";
import { closeWith, endingOf, fail, finish, joined } from "./ending.ts";
import { giveBack, type Wait } from "./giving-back.ts";
import { takeInNewer } from "./inbox.ts";
import { readClaimed } from "./inheriting.ts";
import { HeldLease } from "./lease.ts";
import type { ServerSessions } from "./ports.ts";
import { MAX_BARRED, timesBarred } from "./provenance.ts";
import { closeUnanswered, unanswered } from "./question.ts";
import { beginReconciling } from "./reconciling.ts";
import { sendReply } from "./record.ts";
import { think } from "./think.ts";
import { Left, Turn } from "./turn.ts";
import { turnTools } from "./turn-tools.ts";

/** Claims in a row that ended in an error of ours before the run is failed visibly instead of tried for ever. */
export const MAX_INTERNAL_ATTEMPTS = 5;
/** The longest wait between two of them. */
const MAX_INTERNAL_WAIT_MS = 30_000;
/** What a message keeps of an error's own words, so that the advice behind it is still read. */
const MAX_ERROR_WORDS = 600;

/**
 * Drives a claimed run until it ends, waits, or is no longer ours. Never throws. `askedAt`: monotonic milliseconds
 * before the claim was sent, from which on the lease may be counted.
 */
export async function driveRun(
  deps: EngineDeps,
  claim: Claim,
  shutdown: AbortSignal,
  askedAt = deps.clock.monotonic(),
): Promise<void> {
  const lease = new HeldLease(deps, claim.runId, claim.token, askedAt);
  let turn: Turn | undefined;
  let sessions: ServerSessions | null = null;
  try {
    const run = await readClaimed(deps, claim);
    const agent = readAgentSpec(run.spec, run.slice);
    if (run.suspended && run.steps.length === 0) return await giveBack(deps, lease, suspended(deps));
    if (agent.servers.length > 0) sessions = deps.servers.open(run.namespace);
    const tools = await turnTools(deps, sessions, { run, agent, lease, shutdown });
    if (tools.kind === "waiting") return await giveBack(deps, lease, tools.wait);
    turn = new Turn(run, agent, tools.toolset, lease, deps.clock);
    if (await meetConsent(deps, turn)) {
      turn.work.letGo();
      turn = new Turn(await readRun(deps.db, run.id), agent, tools.toolset, lease, deps.clock);
    }
    await beginReconciling(deps, turn);
    await loop(deps, turn, shutdown);
  } catch (error) {
    if (turn !== undefined) await abandon(deps, turn);
    if (!(error instanceof Left))
      return await recover(deps, { ...claim, attempts: turn?.attempts ?? claim.attempts }, lease, error, turn);
    deps.log.info({ run: claim.runId, why: error.message }, "let go of a run");
    if (shutdown.aborted) await giveBack(deps, lease, { delayMs: 0, reason: null, message: null, failed: false });
  } finally {
    lease.letGo();
    turn?.work.letGo();
    await sessions?.close();
  }
}

/** A suspended Agent begins no turn; one that has begun is finished. */
const suspended = (deps: EngineDeps): Wait => ({
  delayMs: deps.settings.waitForPersonMs,
  reason: "AgentSuspended",
  message: "the Agent is suspended: take its spec.suspend away and this Run goes on",
  failed: false,
});

/** An effect that crossed and was not sent any more: only this process knows that, so it says so; its call crosses anew. */
async function abandon(deps: EngineDeps, turn: Turn): Promise<void> {
  const { crossed } = turn;
  if (crossed === undefined) return;
  const observation = "Nothing was sent: its worker had to let go of this run first.";
  await settle(deps.db, crossed.crossing.dispatch, { kind: "failed", observation, unsent: true }).catch(
    (error: Error) => {
      deps.log.warn({ run: turn.run.id, error: error.message }, "an effect that was not sent stays dispatched");
    },
  );
}

/** `claim.attempts` as on the row now: a response that was committed under this claim has set it back. */
async function recover(
  deps: EngineDeps,
  claim: Claim,
  lease: HeldLease,
  error: unknown,
  turn: Turn | undefined,
): Promise<void> {
  const said = deps.redaction.text(storable(error instanceof Error ? error.message : String(error)));
  const message = head(said, MAX_ERROR_WORDS);
  const reason = isPawlError(error) ? error.reason : "InternalError";
  deps.log.error(
    { run: claim.runId, reason, error: message, stack: error instanceof Error ? error.stack : undefined },
    "a turn was interrupted",
  );
  const ours = !isPawlError(error, "transient");
  if (ours && claim.attempts + 1 >= MAX_INTERNAL_ATTEMPTS) {
    await tell(deps, turn, reason, message);
    if (await failVisibly(deps, claim, lease, { reason, words: message, seenSeq: turn?.shownSeq })) return;
  }
  // Something else is away: it was tried for a while already, and this run is not the only one that waits for it.
  const delayMs = ours ? Math.min(MAX_INTERNAL_WAIT_MS, 500 * 2 ** claim.attempts) : deps.settings.waitForPersonMs;
  await giveBack(deps, lease, { delayMs, reason, message, failed: ours });
}

/** Tells the person what a fault of ours allows to be told: with calls still open no further step may stand (I6). */
async function tell(deps: EngineDeps, turn: Turn | undefined, reason: string, message: string): Promise<void> {
  if (turn === undefined || turn.replied || turn.openCalls.length > 0) return;
  await closeWith(deps, turn, "failed", { status: "failed", reason, message }).catch((error: Error) => {
    deps.log.warn({ run: turn.run.id, error: error.message }, "nobody could be told that a run failed");
  });
}

/** False: it could not be written; the run is tried again. */
async function failVisibly(
  deps: EngineDeps,
  claim: Claim,
  lease: HeldLease,
  { reason, words, seenSeq }: { reason: string; words: string; seenSeq: number | undefined },
): Promise<boolean> {
  try {
    const run = await readRun(deps.db, claim.runId);
    const note = unknownNote((await readEffects(deps.db, run.id)).filter((effect) => effect.kind !== "reply"));
    lease.letGo();
    await finishTurn(deps.db, {
      conversationId: run.conversationId,
      runId: run.id,
      token: claim.token,
      nonce: deps.newId(),
      status: "failed",
      seenSeq: seenSeq ?? Math.max(0, ...run.triggers.map((trigger) => trigger.seq)),
      reason,
      message: joined(`${words}; this is a fault of Pawl, see the worker's log`, note),
    });
    deps.meter.ended("failed", reason);
    return true;
  } catch (error) {
    deps.log.error({ run: claim.runId, error: (error as Error).message }, "a run could not be failed");
    return false;
  }
}

async function loop(deps: EngineDeps, turn: Turn, shutdown: AbortSignal): Promise<void> {
  for (;;) {
    if (turn.lease.lost.signal.aborted) throw new Left("lease lost");
    if (turn.replied) return finish(deps, turn, endingOf(turn));
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
    const needed = unanswered(turn);
    if (needed !== null) {
      await closeUnanswered(deps, turn, needed);
      continue;
    }
    await takeInNewer(deps, turn);
    if (exhaustedBudget(turn) !== null) {
      await closeExhausted(deps, turn, shutdown);
      continue;
    }
    if (timesBarred(turn) >= MAX_BARRED) {
      const message =
        "every answer was built on a source that may not be shown in this conversation; ask where it may be shown";
      return fail(deps, turn, "SourceWithheld", message);
    }
    if (unusable(turn) >= MAX_UNUSABLE_RESPONSES) {
      const message = `the model gave ${MAX_UNUSABLE_RESPONSES} responses in a row that nothing could be done with; try another model or simplify the tools`;
      return fail(deps, turn, "ModelUnusable", message);
    }
    if (shutdown.aborted) throw new Left("shutdown");
    if (!(await think(deps, turn, shutdown))) return;
  }
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
