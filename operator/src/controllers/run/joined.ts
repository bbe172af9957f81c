/**
 * What became of a message that met a turn: it began one together with others, joined, restarted or stopped it, or waits
 * for the next. Words for a person, each from the decision that the ledger recorded. Pure.
 */
import type { Mirror } from "#ledger/mirrors.ts";
import { type Changed, downgradeWords } from "#rules/downgrade.ts";

/** The decision about a message, as its row says. */
export type Own = {
  readonly relation: string;
  /** The agent's mode when it was taken in; `cancel` where somebody took a message back. */
  readonly asked: string;
  readonly done: string;
  readonly reason: string;
  /** It was about the turn that the message is in now. */
  readonly here: boolean;
  /** What the turn that it met had changed, where that is the reason. */
  readonly changed: readonly Changed[];
};

export type Words = { readonly reason: string; readonly message: string };

const text = (value: unknown): string => (typeof value === "string" ? value : "");

export function ownOf({ own_interrupt: row }: Pick<Mirror, "own_interrupt">): Own | null {
  if (typeof row !== "object" || row === null) return null;
  const { relation, asked, done, reason, here, changed } = row as Readonly<Record<string, unknown>>;
  const words = { relation: text(relation), asked: text(asked), done: text(done), reason: text(reason) };
  return { ...words, here: here === true, changed: Array.isArray(changed) ? (changed as Changed[]) : [] };
}

const NEXT = "waits for the next turn";
/** By the reason of the decision that it waits. */
const WAITS: Readonly<Record<string, string>> = {
  AskingModel: "it is being found out what it means to the turn at work",
  Enqueue: `${NEXT}: its agent takes nothing into one at work (spec.interrupt.midTurn: Enqueue)`,
  NoModel: `${NEXT}: no model tells what it means to the one at work; set the Agent's spec.models.fast`,
  NotEntitled: `${NEXT}: its author may not change the one at work (spec.interrupt.whoInterrupts)`,
  DifferentGrants: "waits for a turn of its own: its author may use other tools than the people of the one before",
  WindowFull: `${NEXT}: the one that is about to begin is full (spec.interrupt.maxCount)`,
  AlreadyAnswered: `${NEXT}: the one at work has given its answer`,
  Independent: `${NEXT}: it is about something else than the one at work`,
  Unsure: `${NEXT}: it could not be found out what it means to the one at work`,
  Committed: `${NEXT}: too late for the one at work, which has changed something`,
  Bound: `${NEXT}: the one at work was interrupted often or long enough and answers first (spec.interrupt.maxSupersessions, deadline)`,
  Stopping: `${NEXT}: the one at work was told to stop`,
  Bot: `${NEXT}: a program that does not name the agent interrupts nobody`,
  TurnEnded: `${NEXT}: the one at work ended before it was known what this message means`,
};
const RECONCILES = "too late for the turn at work, which has changed something: the next one puts it right";

/** Of a message that is in no turn. */
export function waitingWords(mirror: Mirror): Words {
  if (mirror.event_state === "undecided") return { reason: "AskingModel", message: WAITS["AskingModel"] ?? "" };
  const own = ownOf(mirror);
  const waits = own !== null && (own.done === "queued" || own.done === "reconcile");
  const message = own?.done === "reconcile" ? RECONCILES : WAITS[own?.reason ?? ""];
  if (waits && message !== undefined) return { reason: own.reason, message };
  return { reason: "TurnAtWork", message: "waits until the turn at work in its conversation has ended" };
}

const turnOf = (mirror: Mirror): string =>
  mirror.answered_by === null ? "the turn at work" : `the turn of ${mirror.answered_by}`;

/** Of a message that is answered in a turn which another one opened. */
export function joinedWords(mirror: Mirror): Words {
  const turn = turnOf(mirror);
  if (mirror.event_state === "applied") {
    return { reason: "Stopping", message: `told ${turn} to stop, which has changed something: its answer says what` };
  }
  const own = ownOf(mirror);
  switch (own?.here === true ? own.done : mirror.role) {
    case "amend":
    case "amended":
      return { reason: "Amended", message: `joined ${turn} while that was at work: answered together with it` };
    case "preempted":
      return {
        reason: "Restarted",
        message: `restarted ${turn}, which had changed nothing: answered together with it`,
      };
    case "answer":
    case "answered":
      return { reason: "AnswersQuestion", message: `answers what ${turn} had asked` };
    default:
      return { reason: "Folded", message: `answered together with ${mirror.answered_by ?? "an earlier message"}` };
  }
}

/** Of a message that was a stop, once the turn that it stopped is over. */
export function stoppedWords(mirror: Mirror): Words {
  const told = ownOf(mirror)?.done === "stopping" ? "its answer says what it had changed" : "it had changed nothing";
  return { reason: "Stopped", message: `stopped ${turnOf(mirror)}: ${told}` };
}

export function withRestarts({ restarts }: Mirror, { reason, message }: Words): Words {
  if (restarts === 0) return { reason, message };
  const often = restarts === 1 ? "once" : `${restarts} times`;
  return { reason, message: `restarted ${often} for newer messages, nothing had been changed; ${message}` };
}

/** Of a message that nobody has answered, and nobody will. */
export function unreadWords(mirror: Mirror): Words {
  if (mirror.event_state === "observed") {
    return { reason: "NotAddressed", message: "not said to the agent: nobody answers it" };
  }
  return { reason: "Withdrawn", message: mirror.message ?? "taken back before it was answered" };
}

/** Of a turn that has not begun because more may be said. */
export const WINDOW: Words = {
  reason: "Window",
  message: "begins when nothing more was said for a moment (spec.interrupt.coalesceWindow, at most maxWait)",
};

/** Less was done with a message than its agent, or it itself, asks for: what its author is told; null: no. */
export function downgradeOf(mirror: Mirror): string | null {
  const own = ownOf(mirror);
  if (own === null || own.reason === "Independent") return null;
  return downgradeWords(own, own.changed);
}
