/** The words in which a turn ends that has no answer of its own: what was done, in the task's terms. Pure. */
import { MAX_NAMED_EFFECTS } from "./limits.ts";

export type DoneEffect = { readonly target: string; readonly state: string };
export type Closing = "stopped" | "exhausted" | "failed" | "unanswered";

/** The one instruction of the call that is held back for the end. */
export const LAST_WORDS =
  "(This request may use nothing more: no tool, and this is your last message about it for now. Tell the person, in the words of the task, what was done, what was not, and what is open or not known. Then ask whether you should go on. Name no limit, counter or status.)";

/** Why nothing came of it, for a person who asked something and runs nothing here. */
const PLAINLY: Readonly<Record<string, string>> = {
  ModelMissing: "no model is set up for me",
  PricesMissing: "my limits are not set up completely",
  ModelUnusable: "the model that I use gave no answer that I could work with",
  ModelMalformed: "the model that I use gave no answer that I could work with",
  ModelContentFiltered: "the model that I use refused to answer this",
  ModelRejected: "the model that I use did not take my request",
  ModelNotFound: "the model that I use is not there",
  ModelOverloaded: "the model that I use had no room for me, however often I tried",
  ModelUnauthorized: "the model that I use does not let me in",
  ModelQuotaExhausted: "the account of the model that I use is used up",
  ModelRateLimited: "the model that I use had no room for me, however often I tried",
  ModelUnreachable: "the model that I use could not be reached, however often I tried",
  ModelUnavailable: "the model that I use could not be reached, however often I tried",
  ModelTimeout: "the model that I use did not answer in time, however often I tried",
  SourceWithheld: "what I would have said came from something that may not be shown in this conversation",
  ContextOverflow: "it has become longer than the model that I use can read",
};

const WORDS: Readonly<Record<string, string>> = {
  confirmed: "done",
  failed: "did not take place",
  unknown: "outcome unknown, please check",
  dispatched: "outcome unknown, please check",
};

/** `about`: the ledger's word for a failure, of which something plain is said; or the question that nobody answered. */
export function closing(why: Closing, effects: readonly DoneEffect[], about = ""): string {
  const body =
    effects.length === 0 ? "Nothing outside was changed." : `What I had tried to change by then:\n${list(effects)}`;
  switch (why) {
    case "stopped":
      return `Stopped, as you asked. ${body}`;
    case "exhausted":
      return `I could not finish this within what I am allowed to use for one request. ${body}\nAsk again if I should go on.`;
    case "unanswered":
      return `To go on I needed an answer to this, and nobody gave one in time:\n${quoted(about)}\n${body}\nAsk again, with the answer, if I should go on.`;
    case "failed":
      return `I could not answer this: ${PLAINLY[about] ?? "something on my side went wrong"}. ${body}\nThose who run me can see the reason; ask again once it is mended.`;
  }
}

const quoted = (text: string): string => text.replaceAll(/^/gm, "> ");

/** What nobody knows the outcome of comes first: it is what a person has to look at. */
function list(effects: readonly DoneEffect[]): string {
  const open = effects.filter(isOpen);
  const ordered = [...open, ...effects.filter((effect) => !isOpen(effect))];
  const lines = ordered
    .slice(0, MAX_NAMED_EFFECTS)
    .map((effect) => `- ${effect.target}: ${WORDS[effect.state] ?? effect.state}`);
  const rest = ordered.length - lines.length;
  return [...lines, ...(rest > 0 ? [`- and ${rest} more`] : [])].join("\n");
}

const isOpen = (effect: DoneEffect): boolean => effect.state === "unknown" || effect.state === "dispatched";

/** Targets are named by their beginning: a message is one sentence. */
const MAX_SHOWN = 120;
const shown = (target: string): string => (target.length > MAX_SHOWN ? `${target.slice(0, MAX_SHOWN)}…` : target);

/** What an ended run still has to say about writes whose outcome nobody knows; null when there is none. */
export function unknownNote(effects: readonly DoneEffect[]): string | null {
  const unknown = effects.filter(isOpen);
  if (unknown.length === 0) return null;
  const targets = [...new Set(unknown.map((effect) => effect.target))].slice(0, 3).map(shown).join(", ");
  return `the outcome of ${unknown.length} write${unknown.length === 1 ? "" : "s"} is not known (${targets}): check there before you repeat anything`;
}
