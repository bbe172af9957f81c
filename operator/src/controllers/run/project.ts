/**
 * What the ledger knows of a message, as the status of the Run that stands for it. Pure: rows in, status out, no text
 * of the conversation but the beginning of the answer. A Run stands for its message until that is answered, also when
 * the answer comes in the turn of another Run.
 */
import { createHash } from "node:crypto";
import type { RunPhase, RunStatus } from "@pawl/crds";
import type { Mirror } from "#ledger/mirrors.ts";
import { isTerminal, type RunStatus as LedgerStatus, type TerminalStatus } from "#rules/run-machine.ts";
import type { Install } from "../config.ts";
import { clip, instant, line, reasonWord, span } from "../text.ts";
import { type Conditions, said, type Said, withConditions } from "./conditions.ts";
import {
  joinedWords,
  ownOf,
  stoppedWords,
  unreadWords,
  waitingWords,
  WINDOW,
  withRestarts,
  type Words,
} from "./joined.ts";
import {
  fit,
  MAX_ACTORS,
  MAX_LAST_EFFECTS,
  MAX_MESSAGE_BYTES,
  MAX_NAME_BYTES,
  MAX_PREVIEW_BYTES,
  MAX_SHORT_BYTES,
  MAX_TARGET_BYTES,
  MAX_WORD_BYTES,
} from "./fit.ts";

/** A tool that outlasts this shows as a phase of its own; shorter waits are Running. */
export const AWAITING_TOOL_MS = 5_000;
const MAX_COUNT = 1_000_000;
/** Between two looks at the place of a run in its queue, for the first ones and for the others. */
export const QUEUE_NEAR_MS = 5_000;
export const QUEUE_FAR_MS = 60_000;
const NEAR = 20;

export type Shown = {
  readonly mirror: Mirror;
  readonly generation: number;
  /** Who says this, as admission recorded it. */
  readonly actor: string;
  readonly before: RunStatus | undefined;
  readonly install: Install;
  /** The Agent lets answers be shown. */
  readonly previews: boolean;
  /** Another object said this before; its name. */
  readonly replayOf?: string | undefined;
  /** The command that reads the whole answer. */
  readonly transcript: string;
  /** The install's ceiling of runs at work; 0 = none. */
  readonly maxRuns: number;
  readonly now: Date;
};

export type Projection = {
  readonly status: RunStatus;
  /** Time alone will change the picture then. */
  readonly recheckMs?: number;
};

const ENDED: Readonly<Record<TerminalStatus, RunPhase>> = {
  succeeded: "Succeeded",
  failed: "Failed",
  cancelled: "Cancelled",
  budget_exhausted: "BudgetExhausted",
};

/** A message that waits has no run, whatever turn it was once in; a withdrawn one shows the turn it was taken from. */
const hasRun = (mirror: Mirror): boolean =>
  mirror.run_id !== null && mirror.event_state !== "pending" && mirror.event_state !== "undecided";

const isFolded = (mirror: Mirror): boolean => hasRun(mirror) && mirror.opening_event !== mirror.event_id;

/** Null while the message may still be answered. */
function endOf(mirror: Mirror): TerminalStatus | null {
  if (mirror.event_state === "withdrawn" || mirror.event_state === "observed") return "cancelled";
  const status = mirror.status as LedgerStatus | null;
  if (!hasRun(mirror) || status === null || !isTerminal(status)) return null;
  // A stop is no question: it has done what it asked for once its turn is over.
  return isStop(mirror) ? "succeeded" : status;
}

const isStop = (mirror: Mirror): boolean => mirror.event_state === "applied";

/** It has not begun because more may be said; null: it is due, or at work. */
function windowMs(mirror: Mirror): number | null {
  if (!hasRun(mirror) || mirror.status !== "queued" || mirror.due_at === null) return null;
  const left = mirror.due_at.getTime() - mirror.now.getTime();
  return left > 0 ? left : null;
}

function openFor(mirror: Mirror): number | null {
  const works = mirror.status === "running" || mirror.status === "awaiting_tool";
  if (!works || mirror.open_since === null) return null;
  return mirror.now.getTime() - mirror.open_since.getTime();
}

export function phaseOf(mirror: Mirror): RunPhase {
  const end = endOf(mirror);
  if (end !== null) return ENDED[end];
  if (!hasRun(mirror)) return "Queued";
  if (isFolded(mirror)) return "Folded";
  if (mirror.status === "queued") return "Queued";
  if (mirror.status === "awaiting_input") return "AwaitingInput";
  if (mirror.waiting !== null) return "AwaitingTool";
  return (openFor(mirror) ?? 0) >= AWAITING_TOOL_MS ? "AwaitingTool" : "Running";
}

/**
 * The version shown: the run's, or that of the conversation's last ended run while there is none. It only grows, also
 * from one run to the next; a message that was taken out of a queued turn has no version any more and keeps its last.
 */
function seqOf({ mirror, before, install }: Shown): number {
  const shown = hasRun(mirror) ? (mirror.version ?? 0) : mirror.conversation_version;
  const last = before?.ledger?.epoch === install.epoch ? before.ledger.seq : 0;
  return mirror.event_state === "withdrawn" ? Math.max(shown, last) : shown;
}

/** Which ceiling a run that nobody works on yet waits under; null: none. */
function ceilingOf({ mirror, maxRuns }: Shown): { reason: string; message: string } | null {
  const { agent_held: held, agent_runs: allowed, install_held: all } = mirror;
  if (held === null || allowed === null || all === null) return null;
  if (held >= allowed) {
    const message = `${held} runs of this agent are at work, at most ${allowed} may be (spec.concurrency.maxRuns); it begins when one ends or waits`;
    return { reason: "AgentBusy", message };
  }
  if (maxRuns > 0 && all >= maxRuns) {
    const message = `${all} runs are at work in this install, at most ${maxRuns} may be (limits.maxRuns in the chart's values); it begins when one ends or waits`;
    return { reason: "InstallBusy", message };
  }
  return null;
}

/** Those before it in its mailbox, or in its agent's queue while a ceiling holds it there. */
function positionOf(shown: Shown): number | undefined {
  const { mirror } = shown;
  if (endOf(mirror) !== null) return undefined;
  if (mirror.position !== null) return count(mirror.position);
  return phaseOf(mirror) === "Queued" && ceilingOf(shown) !== null ? count(mirror.ahead) : undefined;
}

/** Why and what now, in one word and one sentence. */
function wording(shown: Shown, phase: RunPhase): Words {
  const { mirror, transcript } = shown;
  const said = mirror.message;
  switch (phase) {
    case "Succeeded": {
      if (isStop(mirror)) return stoppedWords(mirror);
      const read = `read it whole: ${transcript}`;
      return {
        reason: mirror.reason ?? "Answered",
        message: said ?? (mirror.reply === null ? "ended without an answer" : read),
      };
    }
    case "Failed":
      return { reason: mirror.reason ?? "Failed", message: said ?? `failed; the whole story: ${transcript}` };
    case "BudgetExhausted":
      return {
        reason: mirror.reason ?? "BudgetExhausted",
        message: said ?? `a budget was used up; what was done: ${transcript}`,
      };
    case "Cancelled":
      return hasRun(mirror) && mirror.event_state !== "withdrawn"
        ? { reason: mirror.reason ?? "Cancelled", message: said ?? "cancelled" }
        : unreadWords(mirror);
    case "Folded":
      return joinedWords(mirror);
    case "Queued":
      if (!hasRun(mirror)) return waitingWords(mirror);
      if (windowMs(mirror) !== null) return withRestarts(mirror, WINDOW);
      return ceilingOf(shown) ?? { reason: mirror.reason ?? "WaitingForWorker", message: said ?? "waits for a worker" };
    case "AwaitingInput":
      return { reason: mirror.reason ?? "Question", message: said ?? "waits for an answer" };
    case "Running":
    case "AwaitingTool":
      if (mirror.stop === true)
        return { reason: "Stopping", message: "was told to stop; the answer says what was done" };
      if (mirror.reason !== null) return { reason: mirror.reason, message: said ?? mirror.reason };
      return phase === "AwaitingTool"
        ? { reason: "ToolAtWork", message: `waits for ${mirror.open_tool ?? "a tool"}` }
        : withRestarts(mirror, { reason: "Working", message: "at work" });
    default:
      phase satisfies never;
      return { reason: "Working", message: "" };
  }
}

function succeeded(shown: Shown, phase: RunPhase, words: { reason: string; message: string }): Said {
  if (phase === "Succeeded") return said("True", words.reason, words.message);
  if (phase === "Cancelled") {
    return said("False", words.reason === "Withdrawn" ? "Withdrawn" : "Cancelled", words.message);
  }
  if (endOf(shown.mirror) !== null) return said("False", words.reason, words.message);
  return said("Unknown", "Working", words.message);
}

function conditionsOf(shown: Shown, phase: RunPhase, words: { reason: string; message: string }): Conditions {
  const { mirror, replayOf } = shown;
  const ended = endOf(mirror) !== null;
  const committed = hasRun(mirror) && mirror.committed_at !== null;
  const cause = mirror.committed_kind === "reply" ? "the answer" : (mirror.committed_tool ?? "a tool");
  return {
    Accepted:
      replayOf === undefined
        ? said("True", "Accepted", "its message is in the ledger")
        : said(
            "True",
            "Replayed",
            `the same message was asked before (Run ${clip(replayOf, 64)}) and is not asked again; for a new answer use another name, generateName or idempotencyKey`,
          ),
    Committed: committed
      ? said(
          "True",
          "EffectCommitted",
          `${cause} crossed in step ${mirror.committed_step ?? 0}: not restarted from here on`,
        )
      : said("False", "NothingCommitted", "nothing outside has been changed"),
    WaitingForHuman:
      phase === "AwaitingInput" || waits(mirror, phase)
        ? said("True", phase === "AwaitingInput" ? "Question" : "Approval", words.message)
        : said("False", "NotWaiting", "no person is waited for"),
    Finished: ended ? said("True", "Finished", words.message) : said("False", "Working", words.message),
    Succeeded: succeeded(shown, phase, words),
  };
}

const waits = (mirror: Mirror, phase: RunPhase): boolean => phase === "AwaitingTool" && mirror.waiting !== null;

function activityOf(mirror: Mirror, phase: RunPhase): string | undefined {
  if (phase !== "Running" && phase !== "AwaitingTool" && phase !== "Folded") return undefined;
  if (waits(mirror, phase)) return "waits for an approval";
  if (mirror.status === "queued" || mirror.lease_owner === null) return "waits for a worker";
  if (mirror.open_tool !== null) return clip(`runs ${mirror.open_tool}`, MAX_WORD_BYTES);
  const streamed = mirror.streamed ?? 0;
  return streamed === 0 ? "asks the model" : `hears the model answer: ${streamed} characters so far`;
}

/** What a person must repeat to decide or answer, and what it is about. */
function waitingOf(mirror: Mirror, phase: RunPhase): RunStatus["waiting"] {
  if (mirror.waiting === null || (phase !== "AwaitingInput" && !waits(mirror, phase))) return undefined;
  const row = mirror.waiting as Loose;
  if (phase === "AwaitingInput") {
    return {
      request: word(row["request"], MAX_WORD_BYTES),
      kind: "Question",
      since: instant(new Date(String(row["since"]))),
      text: word(row["text"], MAX_MESSAGE_BYTES),
    };
  }
  return {
    request: word(row["request"], MAX_WORD_BYTES),
    kind: "Approval",
    hash: word(row["hash"], MAX_WORD_BYTES),
    since: instant(new Date(String(row["since"]))),
    tool: word(row["tool"], MAX_WORD_BYTES),
    target: word(row["target"], MAX_TARGET_BYTES),
  };
}

const count = (value: number | null): number => Math.min(Math.max(value ?? 0, 0), MAX_COUNT);

type Loose = Readonly<Record<string, unknown>>;
const word = (value: unknown, max: number): string | undefined =>
  typeof value === "string" ? line(value, max) : undefined;

const EFFECT_STATES = {
  dispatched: "Dispatched",
  confirmed: "Confirmed",
  failed: "Failed",
  unknown: "Unknown",
} as const;

function effectsOf(mirror: Mirror): NonNullable<RunStatus["effects"]> {
  const rows = Array.isArray(mirror.last_effects) ? (mirror.last_effects as Loose[]) : [];
  const last = rows.slice(0, MAX_LAST_EFFECTS).map((row) => ({
    name: word(row["name"], MAX_WORD_BYTES) ?? "",
    target: word(row["target"], MAX_TARGET_BYTES),
    state: EFFECT_STATES[row["state"] as keyof typeof EFFECT_STATES] ?? "Unknown",
  }));
  return { total: count(mirror.effects_total), unknown: count(mirror.effects_unknown), last };
}

function answerOf({ mirror, previews }: Shown): RunStatus["answer"] {
  const text = mirror.reply;
  // Text without a crossing was withheld; nobody was given it.
  if (text === null || mirror.replied !== true) return undefined;
  return {
    bytes: Buffer.byteLength(text),
    sha256: createHash("sha256").update(text).digest("hex"),
    preview: previews ? clip(text, MAX_PREVIEW_BYTES) : undefined,
  };
}

function boundaryOf(mirror: Mirror): RunStatus["boundary"] {
  const committed = mirror.committed_at !== null;
  const by = mirror.committed_kind === "reply" ? "reply" : (mirror.committed_tool ?? mirror.committed_kind ?? "");
  return {
    state: committed ? "Committed" : "Buffering",
    restartable: committed ? "No" : "Yes",
    rule: "Coarse",
    why: "no sandbox proves what a tool leaves unchanged",
    committedAt: mirror.committed_at === null ? undefined : instant(mirror.committed_at),
    by: committed ? line(by, MAX_TARGET_BYTES) : undefined,
    step: mirror.committed_step ?? undefined,
  };
}

/** The message's own decision, or the newest about a message that its turn met. */
function interruptsOf(mirror: Mirror): RunStatus["interrupts"] {
  const last = (ownOf(mirror) ?? mirror.last_interrupt) as Loose | null;
  if (last === null && !hasRun(mirror)) return undefined;
  return {
    total: hasRun(mirror) ? count(mirror.interrupts_total) : 1,
    last:
      last === null
        ? undefined
        : {
            relation: word(last["relation"], MAX_SHORT_BYTES),
            asked: word(last["asked"], MAX_SHORT_BYTES),
            done: word(last["done"], MAX_SHORT_BYTES),
            reason: word(last["reason"], MAX_WORD_BYTES),
          },
  };
}

function ofTheRun(shown: Shown): RunStatus {
  const { mirror } = shown;
  const tokens = [mirror.input_tokens ?? 0, mirror.output_tokens ?? 0] as const;
  return {
    runID: mirror.run_id ?? undefined,
    requestID: mirror.request_id ?? undefined,
    shape: mirror.shape === "graph" ? "Graph" : "Loop",
    boundary: boundaryOf(mirror),
    triggers: {
      total: count(mirror.triggers),
      actors: (mirror.actors ?? []).slice(0, MAX_ACTORS).map((actor) => line(actor, MAX_NAME_BYTES)),
    },
    answeredBy: isFolded(mirror)
      ? { name: word(mirror.answered_by, MAX_NAME_BYTES), runID: mirror.run_id ?? undefined }
      : undefined,
    supersededBy: word(mirror.superseded_by, MAX_NAME_BYTES),
    effects: effectsOf(mirror),
    answer: answerOf(shown),
    usage: {
      steps: mirror.steps ?? 0,
      modelCalls: mirror.model_calls ?? 0,
      toolCalls: mirror.tool_calls ?? 0,
      inputTokens: tokens[0],
      outputTokens: tokens[1],
      tokens: tokens[0] + tokens[1],
      // Before the first step nothing was used, which is no cost of nothing.
      costUSD: mirror.cost_micros === null || (mirror.steps ?? 0) === 0 ? undefined : mirror.cost_micros / 1_000_000,
    },
    startedAt: mirror.started_at === null ? undefined : instant(mirror.started_at),
    finishedAt: mirror.ended_at === null ? undefined : instant(mirror.ended_at),
    took:
      mirror.started_at === null || mirror.ended_at === null
        ? undefined
        : span(mirror.ended_at.getTime() - mirror.started_at.getTime()),
  };
}

/** Without the fields that are undefined: as the API server stores and returns it. */
export const plain = (status: RunStatus): RunStatus => JSON.parse(JSON.stringify(status)) as RunStatus;

/** Nothing about a run that waits changes while its place does: it is looked at, the sooner the nearer it is. */
function queueLookMs(mirror: Mirror, phase: RunPhase): number | undefined {
  if (phase !== "Queued") return undefined;
  const before = mirror.ahead ?? mirror.position;
  if (before === null) return undefined;
  const look = before < NEAR ? QUEUE_NEAR_MS : QUEUE_FAR_MS;
  return Math.min(windowMs(mirror) ?? look, look);
}

export function project(shown: Shown): Projection {
  const { mirror, generation, install, before, now } = shown;
  const phase = phaseOf(mirror);
  const words = wording(shown, phase);
  const status: RunStatus = {
    observedGeneration: generation,
    ledger: { epoch: install.epoch, seq: seqOf(shown) },
    phase,
    reason: reasonWord(words.reason, "Other"),
    message: line(words.message, MAX_MESSAGE_BYTES),
    origin: "Applied",
    actor: line(shown.actor, MAX_NAME_BYTES),
    ...(hasRun(mirror) ? ofTheRun(shown) : {}),
    interrupts: interruptsOf(mirror),
    replayOf: word(shown.replayOf, MAX_NAME_BYTES),
    activity: activityOf(mirror, phase),
    waiting: waitingOf(mirror, phase),
    queuePosition: positionOf(shown),
    queuedAt: instant(mirror.queued_at),
    conditions: withConditions(before, conditionsOf(shown, phase, words), generation, now),
  };
  const open = openFor(mirror);
  const recheckMs =
    phase === "Running" && open !== null ? Math.max(AWAITING_TOOL_MS - open, 0) : queueLookMs(mirror, phase);
  return { status: fit(plain(status)), ...(recheckMs === undefined ? {} : { recheckMs }) };
}
