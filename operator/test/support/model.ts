/**
 * What a ledger should hold after any sequence of operations, in memory: the oracle of `property.test.ts`.
 * It knows rows and rules, and no SQL.
 */
import { crossingVerdict } from "#rules/boundary.ts";
import type { CallRow } from "#ledger/steps.ts";
import type { RunStatus, TerminalStatus } from "#rules/run-machine.ts";

export type Message = { id: string; seq: number; author: string; state: string; run: Run | null; delivered: boolean };
export type Effect = {
  id: string;
  nonce: string;
  formerNonces: string[];
  target: string;
  keyed: boolean;
  attempt: number;
  overdue: boolean;
  state: "dispatched" | "confirmed" | "failed" | "unknown";
};
export type Call = { row: CallRow; effect: Effect | null; open: boolean };
export type Run = {
  id: string;
  conversation: Conversation;
  status: RunStatus;
  live: boolean;
  token: number;
  /** Of whoever holds the lease; null = due. */
  holder: number | null;
  lapsed: boolean;
  ordinal: number;
  calls: Call[];
  committed: boolean;
  replied: boolean;
  stopping: boolean;
};
export type Conversation = { key: string; seq: number; messages: Message[]; runs: Run[] };
export type Worker = { index: number; run: Run | null; token: number };

export const liveRun = (conversation: Conversation): Run | undefined => conversation.runs.find(({ live }) => live);

export const triggersOf = (run: Run): Message[] => run.conversation.messages.filter((message) => message.run === run);

export const openTools = (run: Run): Call[] => run.calls.filter(({ open, row }) => open && row.class !== "reply");

export function newRun(conversation: Conversation, id: string): Run {
  const run: Run = {
    id,
    conversation,
    status: "queued",
    live: true,
    token: 0,
    holder: null,
    lapsed: false,
    ordinal: 1,
    calls: [],
    committed: false,
    replied: false,
    stopping: false,
  };
  conversation.runs.push(run);
  return run;
}

/** fenced, ended, or null: the worker may write. */
export function refusal(worker: Worker, run: Run): "fenced" | "ended" | null {
  if (!run.live) return "ended";
  return run.holder === worker.index && run.token === worker.token && !run.lapsed ? null : "fenced";
}

export function ingestVerdict(conversation: Conversation): "new_run" | "folded" | "queued" {
  const run = liveRun(conversation);
  if (run === undefined) return "new_run";
  return run.status === "queued" ? "folded" : "queued";
}

export function claimable(conversations: readonly Conversation[]): { lapsed: Run[]; due: Run[] } {
  const live = conversations.flatMap((conversation) => liveRun(conversation) ?? []);
  return {
    lapsed: live.filter(({ holder, lapsed }) => holder !== null && lapsed),
    due: live.filter(({ holder }) => holder === null),
  };
}

export function crossVerdict(worker: Worker, run: Run, call: Call, target: string): string {
  const refused = refusal(worker, run);
  const crossing = call.row.class === "reply" ? "reply" : "tool";
  const boundary = run.replied ? "committed_by_reply" : run.committed ? "committed_by_tool" : "buffering";
  const verdict = crossingVerdict(
    {
      live: refused !== "ended",
      leaseHeld: refused === null,
      boundary,
      stopRequested: run.stopping,
      newerInput: false,
      held: false,
    },
    crossing,
  );
  if (verdict !== "crossed") return verdict;
  const inTheWay = run.calls.find(
    ({ effect }) => effect?.target === target && (effect.state === "dispatched" || effect.state === "unknown"),
  );
  if (inTheWay === undefined) return "crossed";
  return inTheWay.effect?.state === "dispatched" ? "busy" : "ambiguous";
}

export function redispatchVerdict(worker: Worker, run: Run, effect: Effect, maxAttempts: number): string {
  const refused = refusal(worker, run);
  if (refused !== null) return refused;
  const final = effect.state === "confirmed" || effect.state === "failed";
  if (final || !effect.keyed || effect.attempt >= maxAttempts || run.stopping) return "refused";
  return effect.overdue ? "crossed" : "too_early";
}

export function settleVerdict(effect: Effect, nonce: string, state: Effect["state"]): string {
  if (nonce !== effect.nonce) return "conflict";
  if (effect.state === state) return "already";
  return effect.state === "confirmed" || effect.state === "failed" ? "conflict" : "settled";
}

export function stopVerdict(message: Message): string {
  if (message.state === "pending") return "withdrawn";
  if (message.state === "withdrawn") return "already";
  const run = message.run;
  if (run === null || !run.live || run.replied) return "nothing_left";
  if (run.committed) return "stopping";
  return run.status === "queued" && triggersOf(run).length > 1 ? "withdrawn" : "cancelled";
}

/** Ends the run; returns the messages that the next one is made of, which is none when there is nothing left. */
export function endRun(run: Run, status: TerminalStatus, seen: number, takenBy: string | null): Message[] {
  const waiting: Message[] = [];
  for (const message of run.conversation.messages) {
    if (message.run === run && message.state === "in_turn") {
      if (message.delivered || message.seq <= seen) message.state = "accounted";
      else if (message.author === takenBy) Object.assign(message, { state: "withdrawn", run: null });
      else waiting.push(message);
    } else if (message.state === "pending") waiting.push(message);
  }
  for (const call of run.calls) call.open = false;
  Object.assign(run, { status, live: false, holder: null, lapsed: false });
  return waiting;
}

export function openNext(run: Run, waiting: readonly Message[], id: string): Run {
  const next = newRun(run.conversation, id);
  for (const message of waiting) Object.assign(message, { state: "in_turn", run: next, delivered: false });
  return next;
}
