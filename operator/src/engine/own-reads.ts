/**
 * The two tools that every agent with tools has: the whole of a result that a request shows in part, and the turns that
 * it leaves out. Both read rows of this run's own conversation and nothing else, so they are quick, and no Agent or
 * server can put a tool of its own in their place.
 */
import { z } from "zod";
import type { Runner } from "#ledger/database.ts";
import { readBefore, readBuiltOn, readResult } from "#ledger/own-reads.ts";
import type { EarlierTurn } from "#ledger/reads.ts";
import { READ_EARLIER, READ_RESULT } from "#rules/compaction.ts";
import { CHARS_PER_TOKEN } from "#rules/limits.ts";
import { head } from "#rules/text.ts";
import type { ParsedArguments, Tool } from "./ports.ts";

/** Characters of one answer: a few pages of text. */
export const MAX_PAGE = 16_000;
/** Of a small context it is less: four pages must not fill it. */
export const PAGE_SHARE = 1 / 16;
/** Less would be all words about pages. */
export const MIN_PAGE = 500;
/** Turns that one answer may hold. */
export const MAX_TURNS = 20;
/** Counts in arguments: PostgreSQL's int4. */
const MAX_COUNT = 2 ** 31 - 1;

const count = z.int().min(0).max(MAX_COUNT);
const resultArguments = z.strictObject({ step: count, call: count, offset: count.default(0) });
const earlierArguments = z.strictObject({ before: count.default(0) });

const parsedWith =
  (schema: z.ZodType<Record<string, unknown>>) =>
  (args: unknown): ParsedArguments => {
    const parsed = schema.safeParse(args);
    if (parsed.success) return { ok: true, value: parsed.data };
    const [issue] = parsed.error.issues;
    return { ok: false, message: `${issue?.path.join(".") ?? "arguments"}: ${issue?.message ?? "cannot be used"}` };
  };

export const pageFor = (contextTokens: number): number =>
  Math.max(MIN_PAGE, Math.min(MAX_PAGE, Math.floor(contextTokens * CHARS_PER_TOKEN * PAGE_SHARE)));

/** One page from `offset` on, never half a character, with the way to the next. */
export function pageOf(text: string, offset: number, size: number): { text: string; next: number | null } {
  const from = /^[\udc00-\udfff]/.test(text.slice(offset)) ? offset + 1 : offset;
  const page = head(text.slice(from), size);
  const next = from + page.length;
  return { text: page, next: next < text.length ? next : null };
}

const read = (observation: string) => ({ kind: "confirmed", observation, receipt: {} }) as const;
const common: Pick<Tool, "quick" | "timeLimitMs" | "effect" | "target"> = {
  quick: true,
  timeLimitMs: 5_000,
  effect: () => "tool.query",
  target: () => "ledger",
};

const number = (minimum: number, description: string) => ({ type: "integer", minimum, description });

function resultTool(db: Runner, page: number): Tool {
  return {
    ...common,
    name: READ_RESULT,
    description:
      "Reads the whole result of an earlier call of this task, where only its first and last lines are shown: the note there names its step and call. Long ones come in pages.",
    parameters: {
      type: "object",
      properties: {
        step: number(1, "The step that the note names."),
        call: number(0, "The call that the note names."),
        offset: number(0, "Where to go on, as the page before said. Default 0."),
      },
      required: ["step", "call"],
      additionalProperties: false,
    },
    parse: parsedWith(resultArguments),
    async execute(args, { run }) {
      const { step, call, offset } = resultArguments.parse(args);
      const found = await readResult(db, run.runId, { step, call });
      const name = `step ${step}, call ${call}`;
      if (found === null) return read(`There is no ${name} in this task.`);
      if (found.result === null) return read(`The ${name} has no result yet.`);
      const whole = found.result;
      if (offset > 0 && offset >= whole.length) {
        return read(`The result of ${name} ends at character ${whole.length}.`);
      }
      const { text, next } = pageOf(whole, offset, page);
      const more = next === null ? "This is the end of it." : `Go on with offset ${next}.`;
      return read(`[${name}, ${found.outcome}: from character ${offset} of ${whole.length}. ${more}]\n${text}`);
    },
  };
}

function told(turn: EarlierTurn): string {
  const lines = turn.messages.map(({ actor, text }) => `[user ${actor.replaceAll(/[\]\n]/g, " ")}]\n${text}`);
  return [...lines, `[you]\n${turn.reply ?? `(This turn ended without an answer: ${turn.status}.)`}`].join("\n");
}

function earlierTool(db: Runner, page: number): Tool {
  return {
    ...common,
    name: READ_EARLIER,
    description:
      "Reads earlier turns of this conversation that are not shown: messages of people and your answers, newest turns first.",
    parameters: {
      type: "object",
      properties: {
        before: number(0, "How many of the newest earlier turns to pass over, as the note about them says. Default 0."),
      },
      additionalProperties: false,
    },
    parse: parsedWith(earlierArguments),
    async execute(args, { run }) {
      const { before } = earlierArguments.parse(args);
      const turns = await readBefore(db, run.runId, { skip: before, turns: MAX_TURNS + 1 });
      if (turns.length === 0) return read("There are no turns before that: it is the beginning of this conversation.");
      const shown: string[] = [];
      let room = page;
      for (const turn of turns.slice(0, MAX_TURNS)) {
        const text = told(turn);
        // The first one is always there, cut where it is longer than a page.
        if (shown.length > 0 && text.length > room) break;
        shown.push(
          text.length > page ? `${head(text, page)}\n[… cut, the whole turn is ${text.length} characters]` : text,
        );
        room -= text.length;
      }
      const next = before + shown.length;
      const more =
        shown.length < turns.length ? `Older ones: before=${next}.` : "That is the beginning of this conversation.";
      const restsOn = await readBuiltOn(
        db,
        turns.slice(0, shown.length).map(({ runId }) => runId),
      );
      return { ...read(`[${shown.length} earlier turns, newest first. ${more}]\n${shown.join("\n\n")}`), restsOn };
    },
  };
}

export const OWN_READS = [READ_RESULT, READ_EARLIER] as const;

export const ownReads = (db: Runner, contextTokens: number): readonly Tool[] => [
  resultTool(db, pageFor(contextTokens)),
  earlierTool(db, pageFor(contextTokens)),
];
