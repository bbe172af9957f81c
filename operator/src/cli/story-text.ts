/** How lines of a story look: a time or a gutter, and what is long cut short. Pure. */

const GUTTER = " ".repeat(14);
/** Of one result: enough to recognise it. */
const RESULT_LINES = 6;
const LINE_LENGTH = 200;

export const clock = (at: Date): string => at.toISOString().slice(11, 23);
export const timed = (at: Date, text: string): string => `${clock(at)}  ${text}`;
export const under = (text: string, depth = 1): string[] =>
  text.split("\n").map((line) => `${GUTTER}${"  ".repeat(depth)}${line}`.trimEnd());
export const times = (count: number): string => (count === 1 ? "once" : `${count} times`);

export function clipped(text: string): string {
  const lines = text.split("\n").map((line) => (line.length > LINE_LENGTH ? `${line.slice(0, LINE_LENGTH)}…` : line));
  const rest = lines.length - RESULT_LINES;
  return rest > 0 ? [...lines.slice(0, RESULT_LINES), `… (${rest} more lines)`].join("\n") : lines.join("\n");
}
