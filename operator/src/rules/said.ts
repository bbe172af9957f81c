/**
 * What people say to a turn, as messages of a request. Each stands before the step whose request first contained it, so
 * that a request that was sent is the beginning of every later one. Pure.
 */

export type SaidMessage = {
  readonly actor: string;
  readonly text: string;
  /** edit: new words for a message that was read already. */
  readonly kind?: string;
  /** answer: to a question that the turn had asked. */
  readonly role?: string;
};
export type PlacedMessage = SaidMessage & {
  /** The first step whose request contained it; null: none that is recorded did. */
  readonly deliveredOrdinal: number | null;
};
type Said = { readonly role: "user"; readonly content: string };

/** Nobody speaks for another: a line of a person's that reads like a label (or like Pawl's own words) is quoted. */
const FORGED = /^(\s*)(\[user\b|\(From Pawl\b)/gim;
export const quoted = (text: string): string => text.replaceAll(FORGED, "$1> $2");

/** A name is one line, and closes no bracket. */
const named = (actor: string): string => actor.replaceAll(/[\]\r\n\u2028\u2029]/g, " ");

const MEANWHILE =
  "(From Pawl, not from a person: what follows arrived while you were at work. Take it into account from here on.)";
const EDITED = "(From Pawl, not from a person: what follows replaces an earlier message of the same person.)";
/** Names in one line; a thread of more people is answered as a whole. */
const MAX_ADDRESSED = 10;

export function labelled(message: SaidMessage): Said {
  const label = `[user ${named(message.actor)}]\n${quoted(message.text)}`;
  return { role: "user", content: message.kind === "edit" ? `${EDITED}\n${label}` : label };
}

/** Who is owed an answer, as soon as that is more than one. */
function addressed(actors: ReadonlySet<string>): Said {
  const names = [...actors].map(named);
  const shown = names.slice(0, MAX_ADDRESSED).join(", ");
  const rest = names.length > MAX_ADDRESSED ? ` and ${names.length - MAX_ADDRESSED} more` : "";
  return { role: "user", content: `(From Pawl, not from a person: these wait for your answer: ${shown}${rest}.)` };
}

/**
 * Hands out the messages of a turn step by step. `answered()`: what came before was a turn of its own, whose people have
 * their answer.
 */
export class Mail {
  readonly #at: Map<number | null, PlacedMessage[]>;
  #working = false;
  #owed = new Set<string>();

  /** `last`: the ordinal of the newest step of the request; to it, what a later one delivered is new. */
  constructor(messages: readonly PlacedMessage[], last: number) {
    this.#at = Map.groupBy(messages, ({ deliveredOrdinal: at }) => (at === null || at > last ? null : at));
  }

  /** What the request of this step contained first; null: of the request that is built now. */
  before(ordinal: number | null): Said[] {
    const messages = this.#at.get(ordinal) ?? [];
    const known = this.#owed.size;
    const said: Said[] = [];
    let noted = false;
    for (const message of messages) {
      const late = this.#working && message.role !== "answer";
      if (late && !noted) said.push({ role: "user", content: MEANWHILE });
      noted = late;
      said.push(labelled(message));
      this.#owed.add(message.actor);
    }
    if (this.#owed.size > Math.max(1, known)) said.push(addressed(this.#owed));
    return said;
  }

  worked(): void {
    this.#working = true;
  }

  answered(): void {
    this.#working = false;
    this.#owed = new Set();
  }
}
