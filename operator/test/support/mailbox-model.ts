/**
 * What a mailbox should hold after any sequence of what people, time and two workers do to it: the oracle of
 * `operator/test/soak/mailbox.ts`. Plain data, so that two orders of one race can both be tried. It knows the rule
 * (`rules/interrupt.ts`) and what follows from each of its answers, and no SQL.
 */
import { decide, type Policy, type Position, type Relation } from "#rules/interrupt.ts";

export type State = "undecided" | "pending" | "in_turn" | "accounted" | "applied" | "withdrawn";
export type Message = {
  readonly name: string;
  readonly author: string;
  readonly grants: string;
  seq: number;
  state: State;
  /** Index of the turn that it belongs to. */
  turn: number | null;
  /** A committed step's request contained it. */
  read: boolean;
};
export type Call = { readonly reply: boolean; readonly seen: number; crossed: boolean };
export type Turn = {
  status: string;
  live: boolean;
  readonly request: number;
  readonly requester: string;
  addressed: string;
  readonly grants: string;
  triggers: number;
  due: boolean;
  holder: number | null;
  token: number;
  lapsed: boolean;
  committed: boolean;
  replied: boolean;
  stopping: boolean;
  interruptions: number;
  closed: boolean;
  late: boolean;
  amend: number;
  hold: number;
  holdOver: boolean;
  ordinal: number;
  call: Call | null;
  supersededBy: number | null;
};
export type Conversation = { head: number; messages: Message[]; turns: Turn[]; requests: number };
/** Who holds what, and the newest message in the request that it has out. */
export type Worker = { at: { conversation: number; turn: number } | null; token: number; shown: number | null };

export type Delivery = {
  readonly name: string;
  readonly author: string;
  readonly grants: string;
  readonly stops: boolean;
  readonly askable: boolean;
};

export const aConversation = (): Conversation => ({ head: 0, messages: [], turns: [], requests: 0 });
export const liveTurn = ({ turns }: Conversation): Turn | undefined => turns.find(({ live }) => live);
const liveIndex = ({ turns }: Conversation): number => turns.findIndex(({ live }) => live);
export const messagesOf = (conversation: Conversation, turn: number): Message[] =>
  conversation.messages.filter((message) => message.turn === turn && message.state === "in_turn");
/** The newest message that a request built now contains. */
export const newest = (conversation: Conversation, turn: number): number =>
  Math.max(0, ...messagesOf(conversation, turn).map(({ seq }) => seq));

function positionOf(turn: Turn | undefined): Position {
  if (turn === undefined) return "free";
  if (turn.status === "queued") return "window";
  return turn.replied ? "replied" : turn.committed ? "committed" : "buffering";
}

function entitled(turn: Turn | undefined, author: string, { who }: Policy): boolean {
  if (turn === undefined || who === "thread_scoped") return true;
  return author === (who === "same_actor_only" ? turn.requester : turn.addressed);
}

function rule(turn: Turn | undefined, from: Delivery | Message, relation: Relation | null, policy: Policy) {
  const facts = {
    addressed: true,
    strangerBot: false,
    position: positionOf(turn),
    entitled: entitled(turn, from.author, policy),
    sameGrants: turn === undefined || turn.grants === from.grants,
    room: turn === undefined || turn.triggers < policy.maxCount,
    stopping: turn?.stopping ?? false,
    bound: turn !== undefined && (turn.late || turn.closed || turn.interruptions >= policy.maxSupersessions),
    relation,
  };
  return { ...decide(facts, policy), bound: facts.bound };
}

const queuedTurn = (request: number, first: Message, last: Message, triggers: number, policy: Policy): Turn => ({
  status: "queued",
  live: true,
  request,
  requester: first.author,
  addressed: last.author,
  grants: first.grants,
  triggers,
  due: policy.quietMs === 0 || triggers >= policy.maxCount,
  holder: null,
  token: 0,
  lapsed: false,
  committed: false,
  replied: false,
  stopping: false,
  interruptions: 0,
  closed: false,
  late: false,
  amend: 0,
  hold: 0,
  holdOver: false,
  ordinal: 1,
  call: null,
  supersededBy: null,
});

const join = (turn: Turn, message: Message, policy: Policy): void => {
  turn.triggers += 1;
  turn.addressed = message.author;
  if (turn.status === "queued" && policy.quietMs > 0 && !turn.due) turn.due = turn.triggers >= policy.maxCount;
};

const waits = ({ state }: Message): boolean => state === "pending" || state === "undecided";

function holdAnew(conversation: Conversation, turn: Turn | undefined): void {
  if (turn === undefined) return;
  const undecided = conversation.messages.filter(({ state }) => state === "undecided").map(({ seq }) => seq);
  turn.hold = undecided.length === 0 ? 0 : Math.min(...undecided);
}

/** What goes with a turn that a person ends. */
type Taking = { readonly author: string | null; readonly all: boolean; readonly until: number };
const NOTHING: Taking = { author: null, all: false, until: 0 };

export function endTurn(
  conversation: Conversation,
  turn: Turn,
  end: { status: string; seen: number; taking?: Taking },
  policy: Policy,
): void {
  const index = conversation.turns.indexOf(turn);
  const { author, all, until } = end.taking ?? NOTHING;
  const next: Message[] = [];
  for (const message of conversation.messages.toSorted((a, b) => a.seq - b.seq)) {
    const held = message.state === "in_turn" && message.turn === index;
    if (!held && !waits(message)) continue;
    if (held && (message.read || message.seq <= end.seen)) message.state = "accounted";
    else if (held ? all || message.author === author : message.author === author && message.seq <= until)
      Object.assign(message, { state: "withdrawn", turn: null });
    else next.push(message);
  }
  Object.assign(turn, { status: end.status, live: false, holder: null, lapsed: false, call: null, hold: 0 });
  const [first] = next;
  if (first === undefined) return;
  const taken = next.filter(({ grants }) => grants === first.grants).slice(0, policy.maxCount);
  for (const message of next) Object.assign(message, { state: "pending", turn: null });
  for (const message of taken) Object.assign(message, { state: "in_turn", turn: conversation.turns.length });
  conversation.requests += 1;
  const last = taken.at(-1) ?? first;
  conversation.turns.push(queuedTurn(conversation.requests, first, last, taken.length, policy));
}

function stopping(conversation: Conversation, turn: Turn, author: string, before: number): void {
  turn.stopping = true;
  for (const message of conversation.messages) {
    if (waits(message) && message.author === author && message.seq <= before)
      Object.assign(message, { state: "withdrawn", turn: null });
  }
  holdAnew(conversation, turn);
}

export function deliver(conversation: Conversation, from: Delivery, policy: Policy): string {
  if (conversation.messages.some(({ name }) => name === from.name)) return "duplicate";
  const turn = liveTurn(conversation);
  const asked = from.stops ? "cancels" : from.askable ? null : "none";
  const { done, reason, bound } = rule(turn, from, asked, policy);
  const before = conversation.head;
  conversation.head += 1;
  const message: Message = {
    name: from.name,
    author: from.author,
    grants: from.grants,
    seq: conversation.head,
    state: "pending",
    turn: null,
    read: false,
  };
  switch (done) {
    case "new_run":
      conversation.requests += 1;
      Object.assign(message, { state: "in_turn", turn: conversation.turns.length });
      conversation.turns.push(queuedTurn(conversation.requests, message, message, 1, policy));
      break;
    case "folded":
      Object.assign(message, { state: "in_turn", turn: liveIndex(conversation) });
      if (turn !== undefined) join(turn, message, policy);
      break;
    case "undecided":
      message.state = "undecided";
      if (turn !== undefined && !bound) Object.assign(turn, { hold: message.seq, holdOver: false });
      break;
    case "cancelled":
      message.state = "applied";
      if (turn !== undefined) {
        const taking = { author: from.author, all: policy.who === "thread_scoped", until: before };
        endTurn(conversation, turn, { status: "cancelled", seen: 0, taking }, policy);
      }
      break;
    case "stopping":
      message.state = "applied";
      if (turn !== undefined) stopping(conversation, turn, from.author, before);
      break;
    default:
  }
  conversation.messages.push(message);
  return done === "queued" ? `queued ${reason}` : done;
}

export function decideAbout(conversation: Conversation, name: string, relation: Relation, policy: Policy): string {
  const message = conversation.messages.find((one) => one.name === name);
  if (message === undefined || message.state !== "undecided") return "already";
  const earlier = conversation.messages.some(({ state, seq }) => state === "undecided" && seq < message.seq);
  if (relation !== "cancels" && earlier) return "not_yet";
  const turn = liveTurn(conversation);
  const { done, reason } = rule(turn, message, relation, policy);
  if (turn === undefined) return "no turn";
  const index = conversation.turns.indexOf(turn);
  switch (done) {
    case "amended":
      Object.assign(message, { state: "in_turn", turn: index });
      turn.amend = Math.max(turn.amend, message.seq);
      join(turn, message, policy);
      break;
    case "folded":
      Object.assign(message, { state: "in_turn", turn: index });
      join(turn, message, policy);
      break;
    case "preempted":
      preempt(conversation, turn, message, policy);
      break;
    case "queued":
    case "reconcile":
      message.state = "pending";
      break;
    case "stopping":
      message.state = "applied";
      stopping(conversation, turn, message.author, message.seq - 1);
      break;
    case "cancelled": {
      message.state = "applied";
      const taking = { author: message.author, all: policy.who === "thread_scoped", until: message.seq };
      endTurn(conversation, turn, { status: "cancelled", seen: 0, taking }, policy);
      break;
    }
    default:
  }
  holdAnew(conversation, liveTurn(conversation));
  return `${done} ${reason}`;
}

function preempt(conversation: Conversation, turn: Turn, message: Message, policy: Policy): void {
  const index = conversation.turns.indexOf(turn);
  const successor = conversation.turns.length;
  const interruptions = turn.interruptions + 1;
  const next: Turn = {
    ...turn,
    status: "queued",
    holder: null,
    token: 0,
    lapsed: false,
    call: null,
    addressed: message.author,
    triggers: turn.triggers + 1,
    due: policy.quietMs === 0 || turn.triggers + 1 >= policy.maxCount,
    interruptions,
    closed: turn.closed || interruptions >= policy.maxSupersessions,
    amend: Math.max(turn.amend, message.seq),
  };
  for (const one of messagesOf(conversation, index)) one.turn = successor;
  Object.assign(message, { state: "in_turn", turn: successor });
  Object.assign(turn, {
    status: "cancelled",
    live: false,
    holder: null,
    lapsed: false,
    call: null,
    hold: 0,
    supersededBy: successor,
  });
  conversation.turns.push(next);
}

/** A person takes back what a message asked for (a Run that is deleted, a button). */
export function takeBack(conversation: Conversation, name: string, policy: Policy): string {
  const message = conversation.messages.find((one) => one.name === name);
  if (message === undefined || message.state === "withdrawn") return "already";
  if (waits(message)) {
    conversation.head += 1;
    Object.assign(message, { state: "withdrawn" });
    return "withdrawn";
  }
  if (message.state === "applied") return "nothing_left";
  conversation.head += 1;
  const turn = message.turn === null ? undefined : conversation.turns[message.turn];
  if (turn === undefined || !turn.live || turn.replied) return "nothing_left";
  if (turn.committed) {
    turn.stopping = true;
    holdAnew(conversation, turn);
    return "stopping";
  }
  if (turn.status === "queued" && turn.triggers > 1) {
    turn.triggers -= 1;
    Object.assign(message, { state: "withdrawn", turn: null });
    return "withdrawn";
  }
  const taking = { author: message.author, all: false, until: 0 };
  endTurn(conversation, turn, { status: "cancelled", seen: 0, taking }, policy);
  return "cancelled";
}

/** ended, fenced, or null: the worker may write. */
export function refusal(worker: Worker, index: number, turn: Turn): "ended" | "fenced" | null {
  if (!turn.live) return "ended";
  return turn.holder === index && turn.token === worker.token && !turn.lapsed ? null : "fenced";
}

export function say(conversation: Conversation, turn: Turn, call: Omit<Call, "crossed">): void {
  for (const message of messagesOf(conversation, conversation.turns.indexOf(turn)))
    message.read ||= message.seq <= call.seen;
  turn.call = { ...call, crossed: false };
  turn.ordinal += 1;
  turn.status = call.reply ? "running" : "awaiting_tool";
}

export function crossVerdict(turn: Turn, { reply, seen }: Call): string {
  if (turn.replied) return "reply_sent";
  if (turn.stopping) return reply ? "crossed" : "stopping";
  const closed = turn.closed || turn.late;
  if (turn.amend > seen && !closed) return "stale_input";
  if (turn.hold > seen && !turn.holdOver && !closed) return "hold";
  return "crossed";
}

/** The open call gets its result. A reply that was refused as stale is an interruption of its request. */
export function close(turn: Turn, stale: boolean, policy: Policy): void {
  turn.call = null;
  turn.status = "running";
  if (!stale) return;
  turn.interruptions += 1;
  turn.closed ||= turn.interruptions >= policy.maxSupersessions;
}
