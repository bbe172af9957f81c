/** How a turn at work is told that a message it may have read was edited or deleted: in its author's name. Pure. */

/** Characters of the old text that are repeated: enough to know which message is meant. */
export const MAX_QUOTED = 200;

function quoted(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  const cut = Array.from(line);
  return `"${cut.length > MAX_QUOTED ? `${cut.slice(0, MAX_QUOTED).join("")}…` : line}"`;
}

export const editedWords = (before: string, now: string): string =>
  `(edited an earlier message, which began ${quoted(before)}; it now reads as follows)\n${now}`;

export const deletedWords = (before: string): string => `(took back an earlier message: ${quoted(before)})`;
