/** What a turn asked people, in its story: until when it waited, who answered, and who came too late. Pure. */
import type { Story, StoryCall } from "#ledger/story.ts";
import { clipped, timed } from "./story-text.ts";

const CLOSED = {
  expired: "nobody answered in time",
  withdrawn: "withdrawn: the turn ended, or newer input came first",
} as const;

/** What was said is the call's result, which is told behind it. */
export function questionLines(story: Story, call: StoryCall): string[] {
  return story.questions
    .filter((question) => question.call === call.id)
    .flatMap(({ id, state, askedAt, expiresAt, closedAt, by, late }) => {
      const until = `until ${expiresAt.toISOString().slice(0, 16)}Z`;
      const lines = [timed(askedAt, `  anybody may answer it: request ${id}, ${until}`)];
      if (closedAt !== null && state === "answered") lines.push(timed(closedAt, `  ${by ?? "somebody"} answered it`));
      if (closedAt !== null && (state === "expired" || state === "withdrawn"))
        lines.push(timed(closedAt, `  ${CLOSED[state]}`));
      return [...lines, ...late.map(({ actor, text, at }) => timed(at, `  ${actor} came too late: ${clipped(text)}`))];
    });
}
