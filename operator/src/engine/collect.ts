/**
 * The calls of a committed response, in order. Pure ones run; an effectful one crosses, is sent, and its outcome is
 * committed together with the next crossing, the last one together with the results: k effectful calls, k + 1 commits
 * with the response's own. After a crash the same code finds rows of effects instead of making them.
 */
import type { Runner } from "#ledger/database.ts";
import type { Crossed } from "#ledger/effects.ts";
import type { RecordedEffect } from "#ledger/reads.ts";
import { type CallResult, commitResults } from "#ledger/steps.ts";
import { EFFECTS, type EffectKind } from "#rules/effects.ts";
import { crossesAnew } from "#rules/journal.ts";
import { PawlError } from "#rules/errors.ts";
import { MAX_RESULT } from "#rules/limits.ts";
import type { State } from "#rules/state.ts";
import { bounded } from "#rules/text.ts";
import { type Action, actionOf } from "./action.ts";
import { gated } from "./approval.ts";
import type { EngineDeps } from "./deps.ts";
import { type Crossing, cross, type Dispatch, prepareCrossing, send, settle } from "./dispatch.ts";
import { asksPeople } from "./builtin/ask.ts";
import { readsOwnStore } from "./builtin/memory.ts";
import { isStoreVerb, OwnWrites, type StoreVerb } from "./own-store.ts";
import { handOver } from "./inheriting.ts";
import { NOT_RUN } from "./not-run.ts";
import type { Tool, ToolOutcome } from "./ports.ts";
import { Settler } from "./settle.ts";
import { restsOn, sourced } from "./provenance.ts";
import { ask, barredQuestion, behindQuestion, NOT_ASKED } from "./question.ts";
import { stateBefore, stateOf } from "./state.ts";
import { Left, type Turn, type TurnCall } from "./turn.ts";
import { undoing } from "./undo.ts";
import { UNDO } from "./undo-tool.ts";

/** A message that is still being classified holds an effect back for at most this long. */
export const MAX_HOLD_MS = 1_500;
const HOLD_LOOK_MS = 250;

const crosses = (call: TurnCall): boolean => EFFECTS[call.kind as EffectKind]?.crosses ?? true;
const done = (call: TurnCall, result: string): CallResult => ({
  id: call.id,
  outcome: "real",
  result: bounded(result, MAX_RESULT),
});

const noted = (result: CallResult, note: string | undefined): CallResult =>
  note === undefined || result.outcome !== "real" ? result : { ...result, result: `${result.result}\n${note}` };

class Collector {
  readonly deps: EngineDeps;
  readonly turn: Turn;
  readonly shutdown: AbortSignal;
  readonly settler: Settler;
  /** An outcome that is known and not committed yet: it goes with the next commit. */
  prior: { dispatch: Dispatch; outcome: ToolOutcome } | undefined;
  /** Of calls that are over, not committed yet. */
  results: CallResult[] = [];

  /** What is written together with the results. */
  readonly own = new OwnWrites();

  constructor(deps: EngineDeps, turn: Turn, shutdown: AbortSignal) {
    this.deps = deps;
    this.turn = turn;
    this.shutdown = shutdown;
    this.settler = new Settler(deps, turn, this);
  }

  async run(): Promise<void> {
    const open = this.turn.openCalls;
    this.results.push(...behindQuestion(this.turn));
    for (const call of open.slice(0, open.length - this.results.length)) {
      if (call.class === "reply") continue;
      if (this.own.waiting && readsOwnStore(this.turn.tools.get(call.tool))) await this.commitResults();
      const result = await this.one(call); // may have committed those before it
      this.results.push(result);
    }
    await this.commitResults();
  }

  async one(call: TurnCall): Promise<CallResult> {
    const known = this.turn.effects.find((effect) => effect.callId === call.id);
    const tool = this.turn.tools.get(call.tool);
    if (known !== undefined) return this.known(call, await this.settler.actionOfEffect(call), known);
    // What crossed is sent, whatever has come since: it is within its time, and a person can only be told of facts.
    const { crossed } = this.turn;
    if (crossed?.callId === call.id && tool !== undefined) {
      return this.sent(call, actionOf(call, tool), crossed.crossing.dispatch);
    }
    return this.begin(call);
  }

  /** A call of which nothing has left: everything that may stand in its way is looked at. */
  async begin(call: TurnCall): Promise<CallResult> {
    const tool = this.turn.tools.get(call.tool);
    if (this.stopping()) return { id: call.id, outcome: "cancelled", result: NOT_RUN.stopped };
    if (this.shutdown.aborted) throw new Left("shutdown");
    if (this.turn.work.isOver) return { id: call.id, outcome: "cancelled", result: NOT_RUN.late };
    if (tool === undefined) return { id: call.id, outcome: "rejected", result: NOT_RUN.gone };
    const refused = call.gate === "none" ? null : await this.gated(call);
    if (refused !== null) return refused;
    if (asksPeople(tool)) return this.question(call);
    if (call.tool === UNDO) return this.undo(call);
    if (isStoreVerb(tool)) return this.durable(call, tool);
    return crosses(call) ? this.effectful(call, actionOf(call, tool)) : this.pure(call, tool);
  }

  async undo(call: TurnCall): Promise<CallResult> {
    await this.flush();
    const effectId = String((call.args as { effect?: unknown }).effect);
    let found = await undoing(this.deps, this.turn, effectId);
    if (found.kind === "open" && (await this.lookOnce(found.effectId))) {
      found = await undoing(this.deps, this.turn, effectId);
    }
    switch (found.kind) {
      case "act":
        return noted(await this.effectful(call, found.action), found.note);
      case "done":
        return done(call, `${NOT_RUN.undone}\n${found.observation}`);
      case "open":
        return { id: call.id, outcome: "skipped", result: NOT_RUN.ambiguous };
      case "refused":
        return {
          id: call.id,
          outcome: "skipped",
          result: bounded(found.why, MAX_RESULT),
          ...(found.source === undefined ? {} : { source: found.source }),
        };
    }
  }

  /** Whoever waits for a person keeps nothing to himself that only he knows. */
  async gated(call: TurnCall): Promise<CallResult | null> {
    if (this.results.length > 0) await this.commitResults();
    return gated(this.deps, this.turn, call);
  }

  /** Comes back when nobody is asked, or nobody has answered. */
  async question(call: TurnCall): Promise<CallResult> {
    if (this.results.length > 0 || this.prior !== undefined) await this.commitResults();
    const why = barredQuestion(this.turn);
    if (why !== null) return { id: call.id, outcome: "skipped", result: why };
    for (let held = 0; ; held += HOLD_LOOK_MS) {
      const asked = await ask(this.deps, this.turn, call);
      switch (asked) {
        case "expired":
          return { id: call.id, outcome: "cancelled", result: NOT_ASKED.unanswered };
        case "stopping":
          this.turn.stop = true;
          return { id: call.id, outcome: "cancelled", result: NOT_RUN.stopped };
        case "newer_input":
          return { id: call.id, outcome: "skipped", result: NOT_RUN.newer };
        case "hold":
          if (held >= MAX_HOLD_MS) return { id: call.id, outcome: "skipped", result: NOT_RUN.newer };
          await this.wait(HOLD_LOOK_MS);
      }
    }
  }

  stopping(): boolean {
    if (this.turn.lease.lost.signal.aborted) throw new Left("lease lost");
    return this.turn.stop || this.turn.lease.stopRequested.signal.aborted;
  }

  async durable(call: TurnCall, verb: StoreVerb): Promise<CallResult> {
    const { callRun: run, evidence } = this.turn;
    const args = call.args as Readonly<Record<string, unknown>>;
    return this.own.add(call.id, await verb.prepare({ id: call.id, args, run, evidence }));
  }

  async pure(call: TurnCall, tool: Tool): Promise<CallResult> {
    await this.flush();
    const { lost, stopRequested } = this.turn.lease;
    const signal = AbortSignal.any([lost.signal, stopRequested.signal, this.turn.work.over, this.shutdown]);
    const outcome = await tool.execute(call.args as Readonly<Record<string, unknown>>, {
      run: this.turn.callRun,
      signal,
      timeLimitMs: tool.timeLimitMs,
    });
    const result = { ...done(call, outcome.observation), ...restsOn(outcome) };
    // It came to its end, whoever holds the run by now.
    if (lost.signal.aborted && outcome.kind === "confirmed") this.results.push(result);
    if (this.stopping()) return { id: call.id, outcome: "cancelled", result: NOT_RUN.stopped };
    if (this.shutdown.aborted) throw new Left("shutdown");
    const late = this.turn.work.isOver && outcome.kind !== "confirmed";
    if (late) return { id: call.id, outcome: "cancelled", result: NOT_RUN.late };
    return result;
  }

  /** What is finished and belongs to a run that is over: if it was superseded, its successor may have it. */
  async handOver(): Promise<void> {
    const finished = this.results.filter(({ id, outcome }) => outcome === "real" && this.isRead(id));
    const told = finished.map((result) => sourced(this.turn, result, this.deps.newId));
    this.results = [];
    await handOver(this.deps, this.turn.run.id, told);
  }

  isRead(id: string): boolean {
    return this.turn.calls.find((call) => call.id === id)?.class === "pure";
  }

  async effectful(call: TurnCall, action: Action): Promise<CallResult> {
    let waited = false;
    let looked = false;
    let before = await this.stateBefore(action);
    for (let held = 0; ; ) {
      const crossing = prepareCrossing(this.deps, this.turn.ids, call, action, before);
      const crossed = await this.cross(crossing);
      switch (crossed.kind) {
        case "crossed":
        case "already":
          return this.sent(call, action, crossing.dispatch);
        case "replayed":
          return done(call, `(Not sent again: this is the recorded result of the same call.)\n${crossed.observation}`);
        case "busy":
        case "ambiguous":
          // Its sender may be alive until settle_at; once that has passed it is like any other unknown one.
          if (crossed.kind === "busy" && !waited) {
            waited = true;
            await this.wait(crossed.waitMs);
            before = await this.stateBefore(action);
            continue;
          }
          if (looked || !(await this.lookOnce(crossed.effectId))) {
            return { id: call.id, outcome: "skipped", result: NOT_RUN.ambiguous };
          }
          looked = true;
          before = await this.stateBefore(action);
          continue;
        case "stopping":
          this.turn.stop = true;
          return { id: call.id, outcome: "cancelled", result: NOT_RUN.stopped };
        case "stale_input":
          return { id: call.id, outcome: "skipped", result: NOT_RUN.newer };
        case "hold":
          if (held >= MAX_HOLD_MS) return { id: call.id, outcome: "skipped", result: NOT_RUN.newer };
          held += HOLD_LOOK_MS;
          await this.wait(HOLD_LOOK_MS);
          continue;
        case "approval":
          // Asked for a moment ago, and no decision is ever taken back.
          throw new PawlError(
            "invariant",
            "ApprovalMissing",
            `call ${call.id} was about to leave without its approval`,
          );
        case "fenced":
        case "ended":
        case "reply_sent":
          throw new Left(crossed.kind);
      }
    }
  }

  async stateBefore(action: Action): Promise<State | null> {
    if (stateOf(action) === undefined) return null;
    await this.flush();
    return stateBefore(this.deps, this.turn, action);
  }

  /** True: what stood in the way is known by now. */
  async lookOnce(effectId: string): Promise<boolean> {
    await this.flush();
    return this.settler.lookOnce(effectId);
  }

  async sent(call: TurnCall, action: Action, dispatch: Dispatch): Promise<CallResult> {
    this.turn.crossed = undefined;
    const outcome = await send(this.deps, this.turn, action, dispatch);
    this.prior = { dispatch, outcome };
    if (outcome.kind !== "unknown" && !(outcome.kind === "failed" && outcome.unsent === true)) {
      return done(call, outcome.observation);
    }
    await this.flush();
    return this.known(call, action, await this.settler.read(dispatch.effectId));
  }

  async known(call: TurnCall, action: Action | undefined, effect: RecordedEffect): Promise<CallResult> {
    const settled = await this.settler.settle(effect, action);
    if (settled.kind === "unknown") return { id: call.id, outcome: "unknown", result: settled.text };
    return crossesAnew(settled.unsent) ? this.begin(call) : done(call, settled.observation);
  }

  async wait(ms: number): Promise<void> {
    await this.flush();
    await this.deps.clock.sleep(ms, AbortSignal.any([this.turn.lease.lost.signal, this.shutdown]));
    if (this.turn.lease.lost.signal.aborted) throw new Left("lease lost");
    if (this.shutdown.aborted) throw new Left("shutdown");
  }

  async settlePrior(db: Runner): Promise<void> {
    if (this.prior !== undefined) await settle(db, this.prior.dispatch, this.prior.outcome);
  }

  /** Commits an outcome that nothing else is going to carry. */
  async flush(): Promise<void> {
    await this.settlePrior(this.deps.db);
    this.prior = undefined;
  }

  async cross(crossing: Crossing): Promise<Crossed> {
    if (this.prior === undefined) return cross(this.deps.db, crossing);
    const crossed = await this.deps.db.transaction(async (tx) => {
      await this.settlePrior(tx);
      return cross(tx, crossing);
    });
    this.prior = undefined;
    return crossed;
  }

  async commitResults(): Promise<void> {
    const { results } = this;
    const run = { ...this.turn.ids, nonce: this.deps.newId() };
    const told = results.map((result) => sourced(this.turn, result, this.deps.newId));
    let stored: readonly CallResult[] = told;
    const write = async (db: Runner) => {
      stored = await this.own.write(db, run, told);
      return this.own.kept(await commitResults(db, run, stored));
    };
    const committed =
      this.prior === undefined && !this.own.waiting
        ? await write(this.deps.db)
        : await this.deps.db.transaction(async (tx) => {
            await this.settlePrior(tx);
            return write(tx);
          });
    this.prior = undefined;
    this.own.done();
    this.turn.took(committed);
    this.turn.close(stored);
    this.results = [];
  }
}

/** Runs every open call but the reply and commits the results. Throws `Left` when this worker has to let go. */
export async function collect(deps: EngineDeps, turn: Turn, shutdown: AbortSignal): Promise<void> {
  const collector = new Collector(deps, turn, shutdown);
  try {
    await collector.run();
  } catch (error) {
    // What this process alone knows is written down even when the run is no longer its own.
    await collector.flush().catch((reason: Error) => {
      deps.log.warn(
        { run: turn.run.id, error: reason.message },
        "an outcome could not be recorded; it stays dispatched",
      );
    });
    if (error instanceof Left && (error.message === "ended" || turn.lease.lost.signal.aborted)) {
      await collector.handOver().catch((reason: Error) => {
        deps.log.warn({ run: turn.run.id, error: reason.message }, "a finished result could not be handed over");
      });
    }
    throw error;
  }
}
