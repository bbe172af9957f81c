/** A turn in the hands of one worker: the rows read back, kept in step with every commit that this worker makes. */
import { evidenceIn, type Provenance } from "#ledger/evidence.ts";
import type { EarlierTurn, RecordedEffect, RunRecord, TriggerRow } from "#ledger/reads.ts";
import type { CallGate, CallResult, CallRow, Committed } from "#ledger/steps.ts";
import type { CompactionLevel } from "#rules/compaction.ts";
import type { Evidence } from "#rules/provenance.ts";
import { type StoredResponse, transcript, type TranscriptInput, type TranscriptMessage } from "#rules/transcript.ts";
import type { AgentSpec } from "./agent.ts";
import type { Crossing } from "./dispatch.ts";
import type { HeldLease } from "./lease.ts";
import type { CallRun, Clock, Tool } from "./ports.ts";
import type { Toolset } from "./toolset.ts";
import { WorkClock } from "./work-clock.ts";

/** The worker lets go of this run: it ended, somebody else holds it, or the process shuts down. Nothing is written. */
export class Left extends Error {}

/** Classes of calls that leave nothing on its way outside. */
const WITHIN: ReadonlySet<string> = new Set(["pure", "internal_durable", "reply"]);

export type TurnCall = CallRow & { readonly ordinal: number; readonly gate: CallGate };

/** The messages of a request: the one way from rows to them, for a turn that runs and for whoever rebuilds one. */
export function requestMessages(
  rows: Omit<TranscriptInput, "instructions" | "contextTokens" | "triggers"> & {
    readonly agent: AgentSpec;
    readonly triggers: readonly Pick<TriggerRow, "actor" | "text" | "role">[];
  },
): TranscriptMessage[] {
  const { agent, ...rest } = rows;
  // The answer to a question is the result of that call already.
  const triggers = rows.triggers.filter(({ role }) => role !== "answer");
  return transcript({ ...rest, triggers, instructions: agent.instructions, contextTokens: agent.contextTokens });
}

export class Turn {
  readonly run: RunRecord;
  /** The note about the earlier turn that this one puts right; kept: a recorded step says it. */
  reconciling: { readonly text: string; readonly isKept: boolean } | undefined;
  readonly agent: AgentSpec;
  readonly toolset: Toolset;
  /** Those that the model may call. */
  readonly tools: ReadonlyMap<string, Tool>;
  readonly lease: HeldLease;
  readonly seenSeq: number;
  readonly earlier: readonly EarlierTurn[];
  steps: { ordinal: number; response: StoredResponse; resumed: boolean }[];
  /** Another worker lost this turn: the next request says so, once. */
  interrupted: boolean;
  /** Stays once a step recorded it: a request that had to be shortened would be too long again. */
  compaction: CompactionLevel;
  calls: TurnCall[];
  effects: RecordedEffect[];
  nextOrdinal: number;
  /** Releases since the last committed response, as on the row. */
  attempts: number;
  modelCalls: number;
  toolCalls: number;
  inputTokens: number;
  outputTokens: number;
  spentMicros: number;
  readonly work: WorkClock;
  stop: boolean;
  replied: boolean;
  /** What its requests contain of the outside, by id. */
  readonly #evidence: Map<string, Evidence>;
  /** Crossed in the response's own commit, not sent yet. */
  crossed: { callId: string; crossing: Crossing } | undefined;

  constructor(run: RunRecord, agent: AgentSpec, toolset: Toolset, lease: HeldLease, clock: Clock) {
    this.run = run;
    this.lease = lease;
    this.agent = agent;
    this.toolset = toolset;
    this.tools = toolset.offered;
    this.seenSeq = Math.max(0, ...run.triggers.map((trigger) => trigger.seq));
    this.earlier = run.earlier;
    this.steps = run.steps.map((step) => ({
      ordinal: step.ordinal,
      response: step.response as StoredResponse,
      resumed: step.resumed,
    }));
    this.interrupted = run.interrupted;
    this.compaction = run.steps.some((step) => step.compaction > 0) ? 1 : 0;
    this.calls = run.calls.map((call) => ({
      ...call,
      providerId: null,
      gate: call.gate as CallGate,
      outcome: call.outcome as CallRow["outcome"],
    }));
    this.effects = [...run.effects];
    this.nextOrdinal = run.nextOrdinal;
    this.attempts = run.attempts;
    this.modelCalls = run.modelCalls;
    this.toolCalls = run.toolCalls;
    this.inputTokens = run.inputTokens;
    this.outputTokens = run.outputTokens;
    this.spentMicros = run.spentMicros;
    this.work = new WorkClock(clock, run.workedMs, agent.budgets.wallClockMs);
    this.stop = run.stopRequested;
    this.replied = run.replied;
    this.#evidence = new Map(run.evidence.map((evidence) => [evidence.id, evidence]));
  }

  get ids(): { runId: string; token: number; seenSeq: number } {
    return { runId: this.run.id, token: this.lease.token, seenSeq: this.seenSeq };
  }

  get callRun(): CallRun {
    const { id, agentId, conversationId, namespace } = this.run;
    return { runId: id, agentId, conversationId, namespace };
  }

  get evidence(): Evidence[] {
    return [...this.#evidence.values()];
  }

  /** What was committed is shown to the model from here on. */
  saw(results: readonly Provenance[]): void {
    for (const evidence of evidenceIn(results)) this.#evidence.set(evidence.id, evidence);
  }

  get openCalls(): TurnCall[] {
    return this.calls.filter((call) => call.outcome === null);
  }

  /** Nothing is on its way outside, nor was it ever. */
  get untouched(): boolean {
    return this.effects.length === 0 && this.calls.every((call) => WITHIN.has(call.class));
  }

  /** There is something to go on from. */
  get resuming(): boolean {
    return this.interrupted && this.steps.length > 0;
  }

  messages(closing?: "exhausted"): TranscriptMessage[] {
    return requestMessages({
      agentName: this.run.agentName,
      agent: this.agent,
      compaction: this.compaction,
      toolsOffered: this.tools.size > 0 && closing === undefined,
      closing,
      reconciling: this.reconciling?.text,
      earlier: this.earlier,
      triggers: this.run.triggers,
      steps: this.steps,
      resuming: this.resuming,
      calls: this.calls,
    });
  }

  /** Takes in what a commit answered; leaves when it was refused. */
  took(committed: Committed): void {
    if (committed.kind === "fenced" || committed.kind === "ended") throw new Left(committed.kind);
    this.stop ||= committed.stop;
    this.lease.noteStop(committed.stop);
  }

  close(results: readonly CallResult[]): void {
    this.saw(results);
    const byId = new Map(results.map((result) => [result.id, result]));
    this.calls = this.calls.map((call) => {
      const result = byId.get(call.id);
      return result === undefined ? call : { ...call, outcome: result.outcome, result: result.result };
    });
  }
}
