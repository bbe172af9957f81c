/**
 * What becomes of an effect that left and whose outcome is not known: wait until nobody can be sending it any more, then
 * look for it, send it again, or say that it is not known. Which of these is `rules/journal.ts`'s decision.
 */
import { redispatchEffect, settleEffect } from "#ledger/effects.ts";
import { readEffect } from "#ledger/effect-record.ts";
import { readEffects, type RecordedEffect } from "#ledger/reads.ts";
import { PawlError } from "#rules/errors.ts";
import { MAX_EFFECT_ATTEMPTS, settling } from "#rules/journal.ts";
import { MAX_RESULT } from "#rules/limits.ts";
import type { State } from "#rules/state.ts";
import { bounded } from "#rules/text.ts";
import { type Action, actionOf } from "./action.ts";
import type { EngineDeps } from "./deps.ts";
import { type Dispatch, send, settle, withUndo } from "./dispatch.ts";
import { look, type Look } from "./probe.ts";
import { stateAfterwards } from "./state.ts";
import { Left, type Turn } from "./turn.ts";
import { undoing } from "./undo.ts";
import { UNDO } from "./undo-tool.ts";

export type Settled =
  /** `unsent`: how often its call was given up before its first byte; 0: this effect was not. */
  | { readonly kind: "done"; readonly observation: string; readonly unsent: number }
  | { readonly kind: "unknown"; readonly text: string };

export function unknownText(
  effect: Pick<RecordedEffect, "attempt" | "observation">,
  looks: readonly Look[] = [],
): string {
  const sends = effect.attempt > 1 ? `It was sent ${effect.attempt} times under one key.` : "It was not sent again.";
  const seen = effect.observation === null ? "" : `\nWhat was seen of it: ${effect.observation}`;
  const last = looks.at(-1);
  const looked =
    last === undefined
      ? ""
      : last.seen === "absent"
        ? "\nA look for it found nothing, which does not prove that it did not take place."
        : `\nIt was looked for ${looks.length === 1 ? "once" : `${looks.length} times`}, without an answer: ${last.observation}`;
  return `Outcome unknown: the write may or may not have taken place. ${sends} Look before you try anything like it, and say so if you cannot find out.${seen}${looked}`;
}

const NOT_APPLIED = "Not applied: its answer was lost, and a look at the place showed that nothing is there.";

/** What the waiting is for: a lease that is lost and a process that ends let go of it. */
export type Hands = {
  readonly shutdown: AbortSignal;
  wait(ms: number): Promise<void>;
  stopping(): boolean;
};

export class Settler {
  readonly deps: EngineDeps;
  readonly turn: Turn;
  readonly hands: Hands;

  constructor(deps: EngineDeps, turn: Turn, hands: Hands) {
    this.deps = deps;
    this.turn = turn;
    this.hands = hands;
  }

  async read(effectId: string): Promise<RecordedEffect> {
    const effect = (await readEffects(this.deps.db, this.turn.run.id)).find((row) => row.id === effectId);
    if (effect === undefined) throw new PawlError("invariant", "EffectGone", `the row of effect ${effectId} is gone`);
    return effect;
  }

  /** An effect that has left, here or in the hands of a worker that died. `action` undefined: its tool is gone. */
  async settle(effect: RecordedEffect, action: Action | undefined): Promise<Settled> {
    let refused = false;
    let looks: Look[] = [];
    for (let current = effect; ; current = await this.read(effect.id)) {
      const decision = settling({
        ...current,
        keyed: current.keyed && action !== undefined,
        stopping: this.hands.stopping() || refused,
        probe: action?.tool.probe ?? null,
        seen: looks.map(({ seen }) => seen),
      });
      switch (decision.kind) {
        case "done":
          return { kind: "done", observation: current.observation ?? "", unsent: current.unsent };
        case "wait":
          await this.hands.wait(decision.ms);
          break;
        case "probe":
          if (action !== undefined) looks.push(await this.look(current, action, looks.length > 0));
          break;
        case "landed":
          await this.landed(current, action, looks.at(-1));
          break;
        case "not_applied":
          await this.conclude(current, "failed", null, NOT_APPLIED);
          break;
        case "send_again": {
          if (this.hands.shutdown.aborted) throw new Left("shutdown");
          const absent = looks.at(-1)?.seen === "absent" && action?.tool.probe?.absenceIsConclusive === true;
          if (action !== undefined) refused = !(await this.sendAgain(current, action, absent));
          // What was seen before says nothing about the new send.
          if (!refused) looks = [];
          break;
        }
        case "give_up":
          if (current.state === "dispatched" && !(await this.declareUnknown(current))) break;
          return { kind: "unknown", text: bounded(unknownText(current, looks), MAX_RESULT) };
      }
    }
  }

  /** One more look at an effect of unknown outcome that stands in the way. True: its outcome is known now. */
  async lookOnce(effectId: string): Promise<boolean> {
    const effect = await readEffect(this.deps.db, { effect: effectId, conversation: this.turn.run.conversationId });
    if (effect === null) return false;
    if (effect.state === "confirmed" || effect.state === "failed") return true;
    const action = await this.actionOfEffect(effect);
    const probe = action?.tool.probe;
    if (action === undefined || probe === undefined) return false;
    if (effect.waitMs > 0) await this.hands.wait(effect.waitMs);
    const found = await this.look(effect, action, false);
    if (found.seen === "landed") await this.landed(effect, action, found);
    else if (found.seen === "absent" && probe.absenceIsConclusive) {
      await this.conclude(effect, "failed", null, NOT_APPLIED);
    } else return false;
    return true;
  }

  /** What was sent, from the row of its call; undefined: it cannot be told any more. */
  async actionOfEffect(call: { tool: string; args: unknown; target: string | null }): Promise<Action | undefined> {
    if (call.tool === UNDO) {
      const undo = await undoing(this.deps, this.turn, String((call.args as { effect?: unknown }).effect), true);
      return undo.kind === "act" ? undo.action : undefined;
    }
    const tool = this.turn.toolset.all.get(call.tool);
    return tool === undefined ? undefined : actionOf(call, tool);
  }

  async look(effect: RecordedEffect, action: Action, again: boolean): Promise<Look> {
    if (again) await this.hands.wait(this.deps.settings.settleSlackMs);
    const signal = AbortSignal.any([this.turn.lease.lost.signal, this.hands.shutdown]);
    const found = await look(this.deps, this.turn, effect.id, action, signal);
    if (this.turn.lease.lost.signal.aborted) throw new Left("lease lost");
    if (this.hands.shutdown.aborted) throw new Left("shutdown");
    return found;
  }

  async landed(effect: RecordedEffect, action: Action | undefined, found: Look | undefined): Promise<void> {
    const probe = action?.tool.probe?.tool ?? "";
    const result = found?.result === undefined ? {} : { result: found.result };
    const words = `Its answer was lost; ${probe} found that it took place:\n${found?.observation ?? ""}`;
    const observation = withUndo(words, action?.tool, effect.id, this.turn.tools.has(UNDO));
    const receipt = { probe, ...result };
    const post = action === undefined ? null : await stateAfterwards(this.deps, this.turn, action, effect.id, receipt);
    await this.conclude(effect, "confirmed", receipt, observation, post);
  }

  /** Whoever writes first is right: a sender that tells its outcome in the meantime saw it with its own eyes. */
  async conclude(
    effect: RecordedEffect,
    state: "confirmed" | "failed",
    receipt: Readonly<Record<string, unknown>> | null,
    observation: string,
    post: State | null = null,
  ): Promise<void> {
    await settleEffect(this.deps.db, {
      effectId: effect.id,
      nonce: effect.nonce,
      state,
      receipt,
      observation: bounded(observation, MAX_RESULT),
      resolvedBy: "probe",
      post,
    });
    this.deps.meter.effect(state);
  }

  /** False: its own sender told the outcome in the meantime. */
  async declareUnknown(effect: RecordedEffect): Promise<boolean> {
    const settled = await settleEffect(this.deps.db, {
      effectId: effect.id,
      nonce: effect.nonce,
      state: "unknown",
      receipt: null,
      observation: "The worker that sent it recorded no answer.",
      resolvedBy: "takeover",
    });
    return settled !== "conflict";
  }

  /** False: the ledger lets it not be sent again (a stop that this worker has not heard of yet, or it is settled). */
  async sendAgain(effect: RecordedEffect, action: Action, absent: boolean): Promise<boolean> {
    const { sendMs, settleSlackMs } = this.deps.settings;
    const dispatch: Dispatch = {
      effectId: effect.id,
      nonce: this.deps.newId(),
      sendBy: this.deps.clock.monotonic() + sendMs,
      keyed: effect.keyed,
    };
    const answer = await redispatchEffect(this.deps.db, {
      runId: this.turn.run.id,
      token: this.turn.lease.token,
      effectId: effect.id,
      nonce: dispatch.nonce,
      sendMs,
      settleMs: sendMs + action.tool.timeLimitMs + settleSlackMs,
      maxAttempts: MAX_EFFECT_ATTEMPTS,
      absent,
    });
    switch (answer.kind) {
      case "crossed":
      case "already": {
        const outcome = await send(this.deps, this.turn, action, dispatch);
        // Where nothing of the sends before is there, what the newest one says is said of the effect.
        await settle(this.deps.db, dispatch, outcome, absent ? 1 : answer.attempt);
        return true;
      }
      case "too_early":
        await this.hands.wait(answer.waitMs);
        return true;
      case "refused":
        return false;
      case "fenced":
      case "ended":
        throw new Left(answer.kind);
    }
  }
}
