/**
 * `pawl why RUN`: the story of a turn from rows, with the point of no return as a line across it. Above the line the turn
 * may be restarted freely; below it nothing is repeated silently. `pawl transcript` shows results in full.
 */
import type { Runner } from "#ledger/database.ts";
import { readStory, type Story, type StoryCall, type StoryEffect, type StoryStep } from "#ledger/story.ts";
import { inline } from "./plain.ts";
import { runIdOf, runUnknown } from "./run-id.ts";
import { clipped, clock, timed, times, under } from "./story-text.ts";
import { entries, type Entry, openingMessages, reconciledLines, reconcileLines } from "./why-mail.ts";
import { questionLines } from "./why-questions.ts";

const WIDTH = 110;
/** Named behind one answer. */
const MAX_SOURCES = 10;

function opening(story: Story): string[] {
  const lines = [
    `run ${story.id}  ${story.namespace}/${story.agent} (generation ${story.generation})  ${story.status}`,
    `${story.queuedAt.toISOString().slice(0, 10)}, times in UTC`,
    "",
  ];
  lines.push(...reconcileLines(story), ...openingMessages(story));
  const first = story.runs[0] ?? story;
  lines.push(timed(first.queuedAt, "queued"));
  if (first.startedAt !== null) lines.push(timed(first.startedAt, "claimed by a worker: lease 1"));
  return lines;
}

/** The line across the text. */
function boundary(story: Story, at: Date, what: string): string[] {
  const words = `══ POINT OF NO RETURN ══ ${clock(at)} ══ ${what} `;
  return [
    ...under("↑ up to here the turn may be restarted freely: that costs tokens", 0),
    words.padEnd(WIDTH, "═"),
    ...under("↓ from here on nothing is repeated silently: finished from rows, or told as not known", 0),
  ];
}

/** Who else than its sender may have told the outcome; any other word is a person's name. */
const SETTLED_BY: Readonly<Record<string, string>> = { probe: "a probe, which looked for it", takeover: "takeover" };

function outcomeLine(effect: StoryEffect): string[] {
  const by = effect.resolvedBy === null ? "" : ` (settled by: ${SETTLED_BY[effect.resolvedBy] ?? effect.resolvedBy})`;
  const at = effect.settledAt;
  if (at === null) {
    const until = effect.settleAt === null ? "" : `: nobody looks or sends again before ${clock(effect.settleAt)}`;
    return under(`in flight${until}`);
  }
  switch (effect.state) {
    case "confirmed":
      return [timed(at, `  confirmed: it took place${by}`)];
    case "failed":
      if (effect.unsent) return [timed(at, "  given up before its first byte: nothing left")];
      return [timed(at, `  failed: it did not take place${by}`)];
    default:
      return [
        timed(at, `  unknown: nobody knows whether it took place${by}`),
        ...(effect.observation === null ? [] : under(clipped(effect.observation), 2)),
      ];
  }
}

/** `first`: when it crossed, where rows still tell; they keep the time of the last sending only. */
function effectLines(effect: StoryEffect, first: Date | null, step: StoryStep): string[] {
  const key = effect.keyed ? `key ${effect.id}` : `effect ${effect.id}, the receiver honours no key`;
  const sent = `  dispatched to ${effect.target}, ${key}`;
  const lines = first === null ? under(sent.trimStart()) : [timed(first, sent)];
  if (effect.compensates !== null) lines.push(...under(`undoes effect ${effect.compensates}`));
  if (effect.attempt > 1) {
    const heir = effect.token !== null && effect.token !== step.token ? `, by lease ${effect.token}` : "";
    const name = effect.keyed ? "under the same key" : "under the same id, after a look that found nothing";
    lines.push(timed(effect.dispatchedAt, `  sent again ${name}, attempt ${effect.attempt}${heir}`));
  }
  return [...lines, ...outcomeLine(effect)];
}

const SAID = { approved: "approved it", rejected: "rejected it" } as const;

/** Who was asked about a call, and what everybody said, with what became of it. */
export function approvalLines(story: Story, call: StoryCall): string[] {
  return story.approvals
    .filter((approval) => approval.call === call.id)
    .flatMap(({ id, state, requestedAt, expiresAt, decidedAt, decisions }) => {
      const until = `until ${expiresAt.toISOString().slice(0, 16)}Z`;
      const lines = [timed(requestedAt, `  a person must approve it: request ${id}, ${until}`)];
      for (const { actor, asked, done, why, reason, at } of decisions) {
        const said =
          done === "approved" || done === "rejected"
            ? SAID[done]
            : `said ${asked}: ${done === "late" ? "too late" : `refused, ${why ?? ""}`}`;
        lines.push(timed(at, `  ${actor} ${said}${reason === null ? "" : `: ${clipped(reason)}`}`));
      }
      if (state === "withdrawn" && decidedAt !== null)
        lines.push(timed(decidedAt, "  withdrawn: newer input came first"));
      if (state === "expired" && decidedAt !== null) lines.push(timed(decidedAt, "  nobody decided in time"));
      return lines;
    });
}

type Teller = {
  readonly story: Story;
  /** What happened between steps and is not told yet. */
  readonly rest: Entry[];
  run: string;
  token: number;
  crossed: boolean;
};

/** What happened before `at`; null: all that is left. */
function between({ rest }: Teller, at: Date | null): string[] {
  const until = at === null ? rest.length : rest.findIndex((entry) => entry.at >= at);
  return rest.splice(0, until === -1 ? rest.length : until).flatMap(({ lines }) => lines);
}

function crossing(teller: Teller, effect: StoryEffect, step: StoryStep): string[] {
  const { story } = teller;
  // What an earlier turn did that this one goes on with crossed that one's line.
  if (teller.crossed || story.committedAt === null || effect.run !== story.id) return [];
  teller.crossed = true;
  const tool = story.calls.find((call) => call.id === effect.call)?.tool ?? effect.kind;
  const what = effect.kind === "reply" ? `the reply, step ${step.ordinal}` : `${tool}, step ${step.ordinal}`;
  // A message that was there before the line is told before it.
  return [...between(teller, story.committedAt), ...boundary(story, story.committedAt, what)];
}

/** The first effect crossed when the boundary was stamped, however often it was sent since. */
function crossedAt(story: Story, effect: StoryEffect): Date | null {
  if (effect === story.effects.find(({ run }) => run === story.id)) return story.committedAt;
  return effect.attempt === 1 ? effect.dispatchedAt : null;
}

/** `run`: whose lease it is; a turn goes on with the steps of runs that it inherits, each with leases of its own. */
function heirs(teller: Teller, run: string, token: number): string[] {
  if (run !== teller.run) {
    teller.run = run;
    teller.token = Math.min(1, token);
  }
  if (token <= teller.token) return [];
  const from = teller.token + 1;
  teller.token = token;
  const names = from === token ? `lease ${token}` : `leases ${from} to ${token}`;
  return under(`claimed again: ${names}; the one before had lapsed or was given back`, 0);
}

function toolLines(teller: Teller, step: StoryStep, call: StoryCall): string[] {
  const { story } = teller;
  const effects = story.effects.filter((effect) => effect.call === call.id);
  const lines: string[] = [];
  const asked = under(clipped(`${call.tool} ${JSON.stringify(call.args)}`));
  const waited = [...approvalLines(story, call), ...questionLines(story, call)];
  // It was asked for, and waited, before anything crossed.
  if (waited.length > 0) lines.push(...asked, ...waited);
  if (effects[0] !== undefined) lines.push(...crossing(teller, effects[0], step));
  if (waited.length === 0) lines.push(...asked);
  for (const effect of effects) {
    lines.push(...effectLines(effect, crossedAt(story, effect), step));
    if (effect.token !== null && effect.token > teller.token) teller.token = effect.token;
  }
  if (call.outcome === null) return effects.length > 0 ? lines : [...lines, ...under("no result yet", 2)];
  const shown = call.outcome === "real" ? "" : `${call.outcome}: `;
  return [...lines, ...under(`→ ${shown}${clipped(call.result ?? "")}`, 2)];
}

function replyLines(teller: Teller, step: StoryStep, call: StoryCall): string[] {
  const effect = teller.story.effects.find((row) => row.call === call.id);
  const text = under(step.text ?? "");
  if (effect === undefined) {
    const why = call.outcome === null ? "not sent yet" : `not sent (${call.outcome}): ${call.result ?? ""}`;
    return [...under(why), ...text];
  }
  const said = effect.state === "confirmed" ? "the reply is out" : `the reply is ${effect.state}`;
  return [
    ...crossing(teller, effect, step),
    timed(effect.settledAt ?? effect.dispatchedAt, `  ${said}:`),
    ...text,
    ...sourceLines(effect.sources),
  ];
}

/** What came from outside and stands behind an answer, also by way of earlier answers and memories. */
function sourceLines(sources: readonly string[]): string[] {
  if (sources.length === 0) return [];
  const named = sources.slice(0, MAX_SOURCES).map(inline).join(", ");
  const rest = sources.length > MAX_SOURCES ? `, and ${sources.length - MAX_SOURCES} more` : "";
  return under(
    `built on results of ${sources.length} source${sources.length === 1 ? "" : "s"} outside: ${named}${rest}`,
  );
}

function stepLines(teller: Teller, step: StoryStep): string[] {
  const calls = teller.story.calls.filter((call) => call.ordinal === step.ordinal);
  const reply = calls.find((call) => call.class === "reply");
  const lines = [...between(teller, step.at), ...heirs(teller, step.run, step.token)];
  const said = reply !== undefined || step.text === null || step.text === "" ? "" : `: ${clipped(step.text)}`;
  const what = reply === undefined ? "the model's response" : "an answer";
  lines.push(timed(step.at, `step ${step.ordinal}, lease ${step.token}, ${what} is recorded${said}`));
  for (const call of calls) {
    lines.push(...(call.class === "reply" ? replyLines(teller, step, call) : toolLines(teller, step, call)));
  }
  return lines;
}

function ending(story: Story): string[] {
  const why = [story.reason, story.message].filter((word) => word !== null && word !== "").join(": ");
  const reason = why === "" ? "" : ` (${why})`;
  if (story.endedAt !== null)
    return [timed(story.endedAt, `${story.status}${reason}, claimed ${times(story.leaseToken)}`)];
  if (story.leaseOwner !== null && story.leaseUntil !== null) {
    return under(
      `${story.status}: ${story.leaseOwner} holds lease ${story.leaseToken} until ${clock(story.leaseUntil)}`,
      0,
    );
  }
  const due = story.dueAt === null ? "" : `, due ${clock(story.dueAt)}`;
  return under(`${story.status}${reason}${due}`, 0);
}

function conclusion(story: Story): string[] {
  const unknown = story.effects.filter((effect) => effect.state === "unknown");
  const lines = unknown.map(({ target }) => `Not known: whether the write to ${target} took place. Look there first.`);
  if (story.committedAt !== null) return lines;
  return [
    story.live
      ? "No point of no return yet: nothing outside has been changed, all of this may be restarted freely."
      : "No point of no return: nothing outside was changed.",
  ];
}

/** Pure: what a person reads. */
export function renderWhy(story: Story): string {
  const run = story.runs[0]?.id ?? story.id;
  const teller: Teller = { story, rest: entries(story), run, token: Math.min(1, story.leaseToken), crossed: false };
  const lines = opening(story);
  for (const step of story.steps) lines.push(...stepLines(teller, step));
  lines.push(...between(teller, null), ...heirs(teller, story.id, story.leaseToken), ...ending(story));
  const last = [...conclusion(story), ...reconciledLines(story)];
  return [...lines, ...(last.length === 0 ? [] : ["", ...last]), ""].join("\n");
}

/** `name`: of a Run object in `namespace`, or the id of a turn. Why a message waits is told by the turn that it met. */
export async function whyOf(db: Runner, namespace: string, name: string): Promise<string> {
  const id = await runIdOf(db, namespace, name, true);
  const story = await readStory(db, id);
  if (story === null) throw runUnknown(namespace, name);
  return renderWhy(story);
}
