/** The words in which a turn ends that has no answer of its own: what was done, in the task's terms. Pure. */
export type DoneEffect = { readonly target: string; readonly state: string };

const WORDS: Readonly<Record<string, string>> = {
  confirmed: "done",
  failed: "did not take place",
  unknown: "outcome unknown, please check",
  dispatched: "outcome unknown, please check",
};

export function closing(why: "stopped" | "exhausted", effects: readonly DoneEffect[]): string {
  const opening =
    why === "stopped"
      ? "Stopped, as you asked."
      : "I could not finish this within what I am allowed to use for one request.";
  const lines = effects.map((effect) => `- ${effect.target}: ${WORDS[effect.state] ?? effect.state}`);
  const body = lines.length === 0 ? "Nothing outside was changed." : `Before that I had changed:\n${lines.join("\n")}`;
  return why === "stopped" ? `${opening} ${body}` : `${opening} ${body}\nAsk again if I should go on.`;
}

/** What a succeeded run still has to say about writes whose outcome nobody knows; null when there is none. */
export function unknownNote(effects: readonly DoneEffect[]): string | null {
  const unknown = effects.filter((effect) => effect.state === "unknown" || effect.state === "dispatched");
  if (unknown.length === 0) return null;
  const targets = [...new Set(unknown.map((effect) => effect.target))].slice(0, 3).join(", ");
  return `the outcome of ${unknown.length} write${unknown.length === 1 ? "" : "s"} is not known (${targets}): check there before you repeat anything`;
}
