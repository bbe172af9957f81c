/**
 * One effect from its dispatched row to its settled row. The clock that `send_by` is checked against starts before the
 * row is written, so that it can only be early. Settling needs no lease: it is a fact, first writer wins.
 */
import { failpoint } from "#src/failpoints.ts";
import type { Runner } from "#ledger/database.ts";
import { crossEffect, type Crossed, type CrossRequest, settleEffect, type Settlement } from "#ledger/effects.ts";
import type { CallRow } from "#ledger/steps.ts";
import { JOURNALED, type JournaledKind } from "#rules/effects.ts";
import { stateAfter } from "#rules/journal.ts";
import { MAX_RESULT } from "#rules/limits.ts";
import type { State } from "#rules/state.ts";
import { bounded } from "#rules/text.ts";
import type { Action } from "./action.ts";
import type { EngineDeps } from "./deps.ts";
import type { Tool, ToolOutcome } from "./ports.ts";
import { stateAfterwards } from "./state.ts";
import type { Turn } from "./turn.ts";
import { UNDO } from "./undo-tool.ts";

export type Call = Pick<CallRow, "id" | "tool" | "class" | "kind" | "args" | "argsHash" | "target">;

export type Dispatch = {
  readonly effectId: string;
  readonly nonce: string;
  /** Monotonic milliseconds. */
  readonly sendBy: number;
  readonly keyed: boolean;
};

export type Crossing = { readonly request: CrossRequest; readonly dispatch: Dispatch };

const journaled = (kind: string): JournaledKind =>
  (JOURNALED as readonly string[]).includes(kind) ? (kind as JournaledKind) : "tool.effect";

/** A crossing with all its ids, made before it is sent: sending it again after a lost reply changes nothing. */
export function prepareCrossing(
  deps: EngineDeps,
  run: { runId: string; token: number; seenSeq: number },
  call: Call,
  action: Action,
  prior: State | null = null,
): Crossing {
  const keyed = action.tool.key !== undefined;
  const dispatch: Dispatch = {
    effectId: deps.newId(),
    nonce: deps.newId(),
    sendBy: deps.clock.monotonic() + deps.settings.sendMs,
    keyed,
  };
  return {
    dispatch,
    request: {
      runId: run.runId,
      token: run.token,
      nonce: dispatch.nonce,
      effectId: dispatch.effectId,
      callId: call.id,
      kind: journaled(call.kind),
      target: action.target,
      argsHash: call.argsHash,
      keyed,
      sendMs: deps.settings.sendMs,
      settleMs: deps.settings.sendMs + action.tool.timeLimitMs + deps.settings.settleSlackMs,
      seenSeq: run.seenSeq,
      ...(action.compensates === undefined ? {} : { compensates: action.compensates }),
      prior,
    },
  };
}

export function cross(db: Runner, crossing: Crossing): Promise<Crossed> {
  return crossEffect(db, crossing.request);
}

/** A write that can be undone says so, and by what name: the model has no other way to know. */
export function withUndo(observation: string, tool: Tool | undefined, effectId: string, offered: boolean): string {
  if (tool?.compensate === undefined || !offered) return observation;
  return `${observation}\n(This write is effect ${effectId}; the tool ${UNDO} takes it back.)`;
}

/** Sends. Never throws for what the outside does; an effect that left is awaited, whatever else happens. */
export async function send(
  deps: EngineDeps,
  turn: Pick<Turn, "callRun" | "tools" | "toolset" | "lease">,
  action: Action,
  dispatch: Dispatch,
): Promise<ToolOutcome> {
  const { tool } = action;
  failpoint(`before:tool.${tool.name}`);
  let outcome: ToolOutcome;
  try {
    outcome = await tool.execute(action.args, {
      run: turn.callRun,
      signal: new AbortController().signal,
      effectId: dispatch.effectId,
      ...(tool.key === undefined ? {} : { keyHeader: tool.key }),
      sendBy: dispatch.sendBy,
      timeLimitMs: tool.timeLimitMs,
    });
  } catch (error) {
    // A tool that throws is a bug; whether its bytes left is not known, so the honest word is unknown.
    deps.log.error({ tool: tool.name, error: (error as Error).message }, "a tool threw");
    outcome = {
      kind: "unknown",
      observation: "The tool failed in an unexpected way; whether it took effect is not known.",
    };
  }
  failpoint(`after:tool.${tool.name}`);
  deps.meter.effect(outcome.kind);
  if (outcome.kind === "failed") return { ...outcome, unsent: givenUp(outcome, deps.clock.monotonic(), dispatch) };
  if (outcome.kind !== "confirmed" || action.compensates !== undefined) return outcome;
  const post = await stateAfterwards(deps, turn, action, dispatch.effectId, outcome.receipt);
  return {
    ...outcome,
    post,
    observation: withUndo(outcome.observation, tool, dispatch.effectId, turn.tools.has(UNDO)),
  };
}

/**
 * Nothing left because its time was over: this worker, or its ledger, was away for too long. A place that cannot be
 * reached says so sooner, and that is for the model to hear.
 */
const givenUp = (outcome: { readonly unsent?: boolean }, now: number, dispatch: Pick<Dispatch, "sendBy">): boolean =>
  outcome.unsent === true && now >= dispatch.sendBy;

type Sender = Pick<Dispatch, "effectId" | "nonce">;

/** `attempt`: which send of this effect the outcome speaks of. */
export function settlement(dispatch: Sender, outcome: ToolOutcome, attempt = 1): Settlement {
  const state = stateAfter(outcome.kind, attempt);
  return {
    effectId: dispatch.effectId,
    nonce: dispatch.nonce,
    state,
    receipt: outcome.kind === "confirmed" ? outcome.receipt : null,
    observation: bounded(outcome.observation, MAX_RESULT),
    post: outcome.kind === "confirmed" ? (outcome.post ?? null) : null,
    unsent: state === "failed" && outcome.kind === "failed" && outcome.unsent === true,
  };
}

export function settle(db: Runner, dispatch: Sender, outcome: ToolOutcome, attempt = 1) {
  return settleEffect(db, settlement(dispatch, outcome, attempt));
}
