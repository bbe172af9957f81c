/**
 * What becomes of a message: addressed? → position → who → relation → mode × boundary → bound. Config says what is
 * wanted, the position says what is possible, and every answer has its reason. Pure; `ledger/mailbox.ts` and
 * `ledger/decide.ts` repeat it on locked rows, and operator/test/ledger/interrupts.test.ts drives every cell through both.
 */
import { durationMs } from "./duration.ts";

export const RELATIONS = ["refines", "independent", "cancels", "unsure", "none"] as const;
/**
 * What a message is to the work under way. `unsure`: the model could not say, or not in time. `none`: nobody was asked,
 * because it does not matter here, or because there is no model to ask.
 */
export type Relation = (typeof RELATIONS)[number];
export const MID_TURN = ["enqueue", "amend", "preempt"] as const;
export type MidTurn = (typeof MID_TURN)[number];
export const AFTER_COMMIT = ["enqueue", "reconcile"] as const;
export type AfterCommit = (typeof AFTER_COMMIT)[number];
export const WHO = ["same_actor_only", "thread_scoped", "addressed_actor_only"] as const;
export type Who = (typeof WHO)[number];

/**
 * free: nothing runs · window: the turn has not begun · waiting: it asked a person something (waiting_committed: after it
 * had changed something) · buffering, committed,
 * replied: at work (a turn that waits for an approval too), by its boundary.
 */
export const POSITIONS = [
  "free",
  "window",
  "waiting",
  "waiting_committed",
  "buffering",
  "committed",
  "replied",
] as const;
export type Position = (typeof POSITIONS)[number];

export type Policy = {
  readonly who: Who;
  readonly midTurn: MidTurn;
  readonly afterCommit: AfterCommit;
  /** Milliseconds without a further message after which a turn begins. */
  readonly quietMs: number;
  readonly maxWaitMs: number;
  readonly maxCount: number;
  readonly adaptive: boolean;
  readonly maxSupersessions: number;
  readonly deadlineMs: number;
};

export type MessageFacts = {
  readonly addressed: boolean;
  /** Written by a program, and not naming this agent. */
  readonly strangerBot: boolean;
  readonly position: Position;
  /** As the policy's `who` says of its author. */
  readonly entitled: boolean;
  /** Its author may do what the turn's actors may. */
  readonly sameGrants: boolean;
  /** The turn that has not begun may take in another message. */
  readonly room: boolean;
  /** A stop was asked for already. */
  readonly stopping: boolean;
  /** Its request has been interrupted often enough, or long enough. */
  readonly bound: boolean;
  /** Null: nobody has said yet. */
  readonly relation: Relation | null;
};

export type Done =
  | "observed"
  | "new_run"
  | "folded"
  | "answered"
  | "undecided"
  | "queued"
  | "reconcile"
  | "amended"
  | "preempted"
  | "cancelled"
  | "stopping";
export type Decided = { readonly done: Done; readonly reason: string };

const is = (done: Done, reason: string): Decided => ({ done, reason });

/**
 * What a message that stops does, and one that joins the work, where a turn is at work. A stop is honoured whatever its
 * author's rights are, however often the turn was interrupted, and while it waits for an approval: it asks for nothing
 * that anybody could be denied.
 */
const STOPS = {
  buffering: is("cancelled", "Buffering"),
  committed: is("stopping", "Committed"),
} as const;
const JOINS = {
  buffering: {
    enqueue: is("queued", "Enqueue"),
    amend: is("amended", "Amend"),
    preempt: is("preempted", "Buffering"),
  },
  // Nothing that has changed the world is restarted. Joining it still repeats nothing.
  committed: {
    enqueue: { enqueue: is("queued", "Committed"), reconcile: is("reconcile", "Committed") },
    amend: { enqueue: is("amended", "Amend"), reconcile: is("amended", "Amend") },
    preempt: { enqueue: is("queued", "Committed"), reconcile: is("reconcile", "Committed") },
  },
} as const;

export function decide(facts: MessageFacts, policy: Pick<Policy, "midTurn" | "afterCommit">): Decided {
  const { position, relation } = facts;
  if (!facts.addressed) return is("observed", "NotAddressed");
  if (position === "free") return is("new_run", "Free");
  if (relation === "cancels" && position === "window") {
    return facts.entitled ? is("cancelled", "NotStarted") : is("queued", "NotEntitled");
  }
  if (position === "window") {
    if (!facts.sameGrants) return is("queued", "DifferentGrants");
    return facts.room ? is("folded", "Window") : is("queued", "WindowFull");
  }
  if (position === "waiting" || position === "waiting_committed") {
    if (relation !== "cancels") return is("answered", "Waiting");
    if (!facts.entitled) return is("queued", "NotEntitled");
    // What it has changed is told before it ends.
    return position === "waiting" ? is("cancelled", "Waiting") : STOPS.committed;
  }
  if (facts.strangerBot) return is("queued", "Bot");
  if (!facts.entitled) return is("queued", "NotEntitled");
  if (position === "replied") return is("queued", "AlreadyAnswered");
  if (relation === null) return is("undecided", "AskingModel");
  if (relation === "cancels") return STOPS[position];
  if (facts.stopping) return is("queued", "Stopping");
  // Whatever is not known to change this work stays out of it: the next turn answers it, and nothing is lost.
  if (relation === "independent") return is("queued", "Independent");
  if (relation === "unsure") return is("queued", "Unsure");
  if (relation === "none") return is("queued", policy.midTurn === "enqueue" ? "Enqueue" : "NoModel");
  if (!facts.sameGrants) return is("queued", "DifferentGrants");
  if (facts.bound) return is("queued", "Bound");
  if (position === "buffering") return JOINS.buffering[policy.midTurn];
  return JOINS.committed[policy.midTurn][policy.afterCommit];
}

const DEFAULTS: Policy = {
  who: "same_actor_only",
  midTurn: "enqueue",
  afterCommit: "enqueue",
  quietMs: 2_000,
  maxWaitMs: 30_000,
  maxCount: 20,
  adaptive: false,
  maxSupersessions: 3,
  deadlineMs: 600_000,
};

const WORDS: Readonly<Record<string, string>> = {
  SameActorOnly: "same_actor_only",
  ThreadScoped: "thread_scoped",
  AddressedActorOnly: "addressed_actor_only",
  Enqueue: "enqueue",
  Amend: "amend",
  Preempt: "preempt",
  Reconcile: "reconcile",
};

const count = (value: unknown, otherwise: number, least: number): number =>
  typeof value === "number" && Number.isInteger(value) && value >= least ? value : otherwise;
const span = (value: unknown, otherwise: number): number =>
  (typeof value === "string" ? durationMs(value) : undefined) ?? otherwise;

function word<T extends string>(value: unknown, known: readonly T[], otherwise: T): T {
  const said = typeof value === "string" ? WORDS[value] : undefined;
  return known.find((one) => one === said) ?? otherwise;
}

/**
 * Of an Agent's stored spec, whose install has filled in what it left out. Specs of before `whoInterrupts` had to be
 * given let only the requester in.
 */
export function policyOf(spec: unknown): Policy {
  const given = (spec as { interrupt?: Readonly<Record<string, unknown>> } | null)?.interrupt ?? {};
  return {
    who: word(given["whoInterrupts"], WHO, DEFAULTS.who),
    midTurn: word(given["midTurn"], MID_TURN, DEFAULTS.midTurn),
    afterCommit: word(given["afterCommit"], AFTER_COMMIT, DEFAULTS.afterCommit),
    quietMs: span(given["coalesceWindow"], DEFAULTS.quietMs),
    maxWaitMs: span(given["maxWait"], DEFAULTS.maxWaitMs),
    maxCount: count(given["maxCount"], DEFAULTS.maxCount, 1),
    adaptive: given["adaptive"] === true,
    maxSupersessions: count(given["maxSupersessions"], DEFAULTS.maxSupersessions, 0),
    deadlineMs: span(given["deadline"], DEFAULTS.deadlineMs),
  };
}
