/** A turn in the hands of one worker: the rows read back, kept in step with every commit that this worker makes. */
import { evidenceIn, type Provenance } from "#ledger/evidence.ts";
import type { EarlierTurn, RecordedEffect, RunRecord, TriggerRow } from "#ledger/reads.ts";
import type { CallGate, CallResult, CallRow, Committed } from "#ledger/steps.ts";
import type { CompactionLevel } from "#rules/compaction.ts";
import type { Evidence } from "#rules/provenance.ts";
import { type StoredResponse, transcript, type TranscriptInput, type TranscriptMessage } from "#rules/transcript.ts";
import type { AgentSpec } from "./agent.ts";
import type { Crossing } from "./dispatch.ts";
import { asRead } from "./inbox.ts";
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
  rows: Omit<TranscriptInput, "instructions" | "contextTokens"> & { readonly agent: AgentSpec },
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
  /** All that people said to it, as this worker has read it. */
  triggers: readonly TriggerRow[];
  /** The newest message that the request contained which led to what is open now, or that the next one will contain. */
  seenSeq: number;
  /** The newest one that a request of this worker contained: what Pawl says by itself shows the model nothing. */
  shownSeq: number;
  /** The newest one that was added to this turn, as the ledger said last. */
  amendSeq: number;
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
    this.triggers = asRead(run.triggers, run.steps);
    this.amendSeq = run.amendSeq;
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
    const newest = Math.max(0, run.amendSeq, ...run.triggers.map((trigger) => trigger.seq));
    // Calls that are open were asked for by a request that contained no more than its step says.
    this.seenSeq = this.openCalls.length === 0 ? newest : (run.steps.at(-1)?.seenSeq ?? newest);
    this.shownSeq = this.seenSeq;
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

  /** Something was added to this turn that no request contains yet. */
  get isBehind(): boolean {
    return this.amendSeq > this.seenSeq;
  }

  /** All messages of this turn, read after the ledger had named `through` as the newest. */
  hear(messages: readonly TriggerRow[], through: number): void {
    const read = new Map(this.triggers.map((message) => [message.eventId, message]));
    this.triggers = messages.map((message) => {
      const known = read.get(message.eventId);
      return known?.deliveredOrdinal == null ? message : known;
    });
    this.seenSeq = Math.max(this.seenSeq, through, ...messages.map(({ seq }) => seq));
  }

  /** A step was committed: its request contained what had not been read before. */
  delivered(ordinal: number, seenSeq: number): void {
    this.triggers = this.triggers.map((message) =>
      message.deliveredOrdinal === null && message.seq <= seenSeq ? { ...message, deliveredOrdinal: ordinal } : message,
    );
  }

  get openCalls(): TurnCall[] {
    return this.calls.filter((call) => call.outcome === null);
  }

  /** Nothing is on its way outside, nor was it ever. */
  get untouched(): boolean {
    return this.effects.length === 0 && this.calls.every((call) => WITHIN.has(call.class));
  }

  /** Of its own request: what an earlier one did that it goes on with counts against no limit of this one. */
  get ownSteps(): Turn["steps"] {
    return this.steps.filter(({ ordinal }) => ordinal > this.run.continuedThrough);
  }

  /** There is something to go on from. */
  get resuming(): boolean {
    return this.interrupted && this.steps.length > 0;
  }

  messages(closing?: "exhausted"): TranscriptMessage[] {
    this.shownSeq = this.seenSeq;
    return requestMessages({
      agentName: this.run.agentName,
      agent: this.agent,
      compaction: this.compaction,
      toolsOffered: this.tools.size > 0 && closing === undefined,
      closing,
      reconciling: this.reconciling?.text,
      earlier: this.earlier,
      triggers: this.triggers,
      steps: this.steps,
      resuming: this.resuming,
      calls: this.calls,
    });
  }

  /** Takes in what a commit answered; leaves when it was refused. */
  took(committed: Committed): void {
    if (committed.kind === "fenced" || committed.kind === "ended") throw new Left(committed.kind);
    this.stop ||= committed.stop;
    this.amendSeq = Math.max(this.amendSeq, committed.amendSeq);
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
