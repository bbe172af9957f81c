/**
 * What a person is told whose message did not get what the Agent's policy asks for, because the position of the turn did
 * not allow it: one sentence or two, from the row of the decision (`interrupts`) and from what had been changed. Pure.
 */

export type Decision = {
  /** What the policy, or the message, asked for: a mode, or `cancel`. */
  readonly asked: string;
  readonly done: string;
  readonly reason: string;
};

/** A write of the turn that the message met. */
export type Changed = { readonly target: string; readonly undoable: boolean };

/** Writes that one sentence names. */
const MAX_NAMED = 3;
/** Characters of one of them. */
const MAX_TARGET = 80;

const NEXT = "I take this up next.";

/** Where the answer is the same whatever had been changed. */
const QUEUED: Readonly<Record<string, string>> = {
  NotEntitled: `I am at work for somebody else, and only they may change that. ${NEXT}`,
  DifferentGrants: `I may use other tools for you than for those I am at work for. ${NEXT}`,
  Bound: `What I am doing was changed often enough: I finish it first. ${NEXT}`,
  Stopping: `I was told to stop what I am doing. ${NEXT}`,
  AlreadyAnswered: `I have answered already. ${NEXT}`,
  WindowFull: `One turn takes no more messages than it has by now. ${NEXT}`,
  Independent: `This is no part of what I am doing. ${NEXT}`,
  NoModel: `Nobody can say whether this is part of what I am doing. ${NEXT}`,
  Unsure: `I am not sure whether this is part of what I am doing. ${NEXT}`,
  Bot: `A program does not interrupt me. ${NEXT}`,
};

const named = (changed: readonly Changed[]): string => {
  const targets = [...new Set(changed.map(({ target }) => oneLine(target)))];
  const rest = targets.length - MAX_NAMED;
  const shown = rest > 0 ? [...targets.slice(0, MAX_NAMED), `${rest} more`] : targets;
  const last = shown.at(-1) ?? "something outside";
  return shown.length < 2 ? last : `${shown.slice(0, -1).join(", ")} and ${last}`;
};

const oneLine = (text: string): string => {
  const line = text.replaceAll(/\s+/g, " ");
  return line.length > MAX_TARGET ? `${line.slice(0, MAX_TARGET)}…` : line;
};

/** "Too late to restart: issue 7 was changed already." */
function tooLate(asked: string, changed: readonly Changed[]): string {
  const targets = new Set(changed.map(({ target }) => target)).size;
  const to = asked === "cancel" ? "stop it whole" : asked === "preempt" ? "restart" : "change it";
  return `Too late to ${to}: ${named(changed)} ${targets > 1 ? "were" : "was"} changed already.`;
}

function putRight(changed: readonly Changed[]): string {
  const undoable = changed.filter(({ undoable: can }) => can);
  if (undoable.length === 0) return "I put it right next, as far as I can: nothing takes it back by itself.";
  const rest = undoable.length < changed.length ? " The rest cannot be taken back." : "";
  return `I put it right next: undo ${named(undoable)}.${rest}`;
}

/** Null: nothing was denied. `changed`: the writes of the turn that the message met, oldest first. */
export function downgradeWords(decision: Decision, changed: readonly Changed[] = []): string | null {
  const { asked, done, reason } = decision;
  switch (done) {
    case "reconcile":
      return `${tooLate(asked, changed)} ${putRight(changed)}`;
    case "stopping":
      return `${tooLate(asked, changed)} I do nothing more, and tell you what was done.`;
    case "nothing_left":
      return asked === "cancel" ? "Too late to stop: I have answered already." : null;
    case "queued":
      // Where messages always queue, nothing was denied.
      if (asked === "enqueue") return null;
      if (asked === "cancel" && reason === "NotEntitled") {
        return `Only those whom I am at work for may stop this. ${NEXT}`;
      }
      if (reason === "Committed") return `${tooLate(asked, changed)} ${NEXT}`;
      return QUEUED[reason] ?? NEXT;
    default:
      return null;
  }
}
