/**
 * The messages of a turn in its story: with what it began, what came while it was at work, what was decided about each
 * and who said so, and where it was restarted. Pure.
 */
import type { Story, StoryInterrupt, StoryMessage, StoryRun } from "#ledger/story.ts";
import { clipped, timed, under } from "./story-text.ts";

/** Something that happened between steps. */
export type Entry = { readonly at: Date; readonly lines: readonly string[] };
/** Of one message; a decision that does not stand right under it says whose it is. */
type Told = Entry & { readonly event?: string; readonly about?: string };

const DONE: Readonly<Record<string, string>> = {
  amended: "joins the turn at the next decision",
  preempted: "the turn is restarted for this message",
  queued: "waits for the next turn",
  reconcile: "too late: the next turn puts it right",
  cancelled: "the turn ends at once",
  stopping: "too late to undo: the turn does nothing more but say what it did",
  answered: "answers the question",
  withdrawn: "is taken back unread",
  nothing_left: "nothing is left to stop",
  folded: "joins the turn",
  new_run: "opens a turn",
  observed: "nobody answers it",
};

const BECAUSE: Readonly<Record<string, string>> = {
  Amend: "the agent takes in what belongs to its work",
  Enqueue: "the agent takes nothing into a turn at work",
  NoModel: "no model could be asked what it means",
  NotEntitled: "its author may not interrupt this turn",
  DifferentGrants: "its author may use other tools",
  WindowFull: "the turn was full",
  AlreadyAnswered: "the turn had answered",
  Independent: "it is about something else",
  Unsure: "nobody could say what it is about",
  Free: "nothing was at work",
  Window: "the turn had not begun",
  Committed: "something had been changed",
  Buffering: "nothing had been changed",
  Bound: "the turn had been interrupted often or long enough",
  Stopping: "the turn had been told to stop",
  Stopped: "its author said stop",
  TakenBack: "its author took it back",
  OtherTriggers: "the turn has other messages",
  NotStarted: "the turn had not begun",
  Waiting: "the turn was waiting for an answer",
  TurnEnded: "the turn ended before it was known what it means",
  Bot: "a program that does not name the agent interrupts nobody",
  BotBound: "agents had talked to each other long enough",
};

const SAYS: Readonly<Record<string, string>> = {
  model: "says a model",
  stop_word: "says the message itself",
  edit: "an edit",
  delete: "a deletion",
};
const RELATION: Readonly<Record<string, string>> = {
  refines: "about this work",
  independent: "about something else",
  cancels: "a stop",
};
const MODES: readonly string[] = ["enqueue", "amend", "preempt"];

const SAID: Readonly<Record<string, string>> = {
  message: "wrote",
  edit: "changed a message",
  delete: "deleted a message",
  stop: "asked to stop",
  decision: "decided",
};

const from = (object: string | null): string => (object === null ? "" : ` (Run ${object})`);

function readBy({ step, state }: StoryMessage): string {
  return step === null ? `${state}, no recorded step has read it` : `read by step ${step}`;
}

/** As what is known of it: its relation and who says so, then what the agent had asked for. */
function grounds({ relation, source, asked }: StoryInterrupt): string {
  const what = RELATION[relation];
  const says = SAYS[source];
  const known = what === undefined ? says : says === undefined ? what : `${what}, ${says}`;
  const mode = MODES.includes(asked) ? `the agent asks to ${asked}` : undefined;
  const words = [known, mode].filter((word) => word !== undefined);
  return words.length === 0 ? "" : ` (${words.join("; ")})`;
}

/** The story's own words for a decision, with the ledger's where those are new. */
export function decisionWords(interrupt: StoryInterrupt): string {
  const { done, reason, now } = interrupt;
  const taken = now === null ? "" : `; it is in run ${now}`;
  return `→ ${DONE[done] ?? done}: ${BECAUSE[reason] ?? reason}${grounds(interrupt)}${taken}`;
}

const asked = (message: StoryMessage): string[] => [
  timed(message.at, `${message.actor} asked${from(message.object)}, ${readBy(message)}:`),
  ...under(message.text),
];

const begins = ({ runs, startedAt }: Story): Date | null => runs[0]?.startedAt ?? startedAt;

/** What the turn began with: nothing had to be decided about it. */
export function openingMessages(story: Story): string[] {
  return openers(story).flatMap(asked);
}

function openers(story: Story): StoryMessage[] {
  const met = new Set(story.interrupts.map(({ event }) => event));
  const start = begins(story);
  const early = story.messages.filter(({ event, at }) => !met.has(event) && (start === null || at <= start));
  // Waited for the turn, and was decided about when it met the one before: that one tells it.
  return early;
}

function restart(run: StoryRun, before: StoryRun): string[] {
  const how = before.superseded
    ? `restarted as run ${run.id}: the steps so far are kept, calls that had not ended are closed`
    : `goes on as run ${run.id}, with the steps of run ${before.id}`;
  return under(how, 0);
}

/** What came while the turn was at work, each with the decision about it, and each run of the chain with its claim. */
export function entries(story: Story): Entry[] {
  const opened = new Set(openers(story).map(({ event }) => event));
  const list: Told[] = [];
  const later = story.runs.slice(1).map((run, index) => ({ run, before: story.runs[index] ?? run }));
  const restarts = later.filter(({ before }) => before.superseded);
  for (const message of story.messages) {
    // What a Decision answered is told with its question.
    if (message.role === "answer") continue;
    if (opened.has(message.event) || story.interrupts.some(({ event }) => event === message.event)) continue;
    list.push({ at: message.at, lines: asked(message) });
  }
  for (const interrupt of story.interrupts) {
    const message = story.messages.find(({ event }) => event === interrupt.event);
    const read = message === undefined ? "" : `, ${readBy(message)}`;
    const { said, actor, kind, object, text, at } = interrupt;
    const body = text === null || text === "" ? [] : under(clipped(text));
    const head = `${actor} ${SAID[kind] ?? kind}${from(object)}${read}${body.length === 0 ? "" : ":"}`;
    list.push({ at: said, event: interrupt.event, lines: [timed(said, head), ...body] });
    const next = interrupt.done === "preempted" ? restarts.shift() : undefined;
    list.push({
      at,
      event: interrupt.event,
      about: object === null ? actor : `Run ${object}`,
      lines: [
        timed(at, `  ${decisionWords(interrupt)}`),
        ...(next === undefined ? [] : restart(next.run, next.before)),
      ],
    });
    if (next !== undefined) later.splice(later.indexOf(next), 1);
  }
  for (const { run, before } of later) list.push({ at: run.queuedAt, lines: restart(run, before) });
  for (const { startedAt, queuedAt } of story.runs.slice(1)) {
    // A successor keeps the beginning of the turn until somebody claims it.
    if (startedAt !== null && startedAt >= queuedAt)
      list.push({ at: startedAt, lines: [timed(startedAt, "claimed by a worker: lease 1")] });
  }
  return list.toSorted((a, b) => a.at.getTime() - b.at.getTime()).map(named);
}

function named({ at, lines, event, about }: Told, index: number, all: readonly Told[]): Entry {
  if (about === undefined || all[index - 1]?.event === event) return { at, lines };
  return { at, lines: lines.map((line) => line.replace(/^(\S+ {4})→ /, `$1→ ${about}: `)) };
}

const linked = ({ run, object }: { run: string; object: string | null }): string =>
  object === null ? `run ${run}` : `Run ${object} (run ${run})`;

/** What this turn has to do with others. */
export function reconcileLines({ reconciles }: Story): string[] {
  return reconciles === null
    ? []
    : under(`puts right what ${linked(reconciles)} had changed when a message came too late`, 0);
}
export const reconciledLines = ({ reconciledBy }: Story): string[] =>
  reconciledBy.map((link) => `What came too late is put right in ${linked(link)}.`);
