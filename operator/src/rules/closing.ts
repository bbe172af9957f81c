/** The words in which a turn ends that has no answer of its own: what was done, in the task's terms. Pure. */
import { MAX_NAMED_EFFECTS } from "./limits.ts";

export type DoneEffect = { readonly target: string; readonly state: string };
export type Closing = "stopped" | "exhausted";

const WORDS: Readonly<Record<string, string>> = {
  confirmed: "done",
  failed: "did not take place",
  unknown: "outcome unknown, please check",
  dispatched: "outcome unknown, please check",
};

export function closing(why: Closing, effects: readonly DoneEffect[]): string {
  const opening =
    why === "stopped"
      ? "Stopped, as you asked."
      : "I could not finish this within what I am allowed to use for one request.";
  const body =
    effects.length === 0 ? "Nothing outside was changed." : `What I had tried to change by then:\n${list(effects)}`;
  return why === "stopped" ? `${opening} ${body}` : `${opening} ${body}\nAsk again if I should go on.`;
}

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
