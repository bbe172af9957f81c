/**
 * The tool `ask_user`: a question to the people of the conversation, and the turn waits for what somebody answers.
 * It is a call of the harness: nothing leaves through it, and only code makes one (`engine/question.ts` runs it).
 */
import { z } from "zod";
import { storable } from "#rules/text.ts";
import type { ParsedArguments, Tool } from "../ports.ts";

export const ASK_USER = "ask_user";
/** Characters of one question: a paragraph. It is read in a chat, or in the status of a Run. */
export const MAX_QUESTION = 1_000;
/** More are no choice any more. */
export const MAX_OPTIONS = 8;
export const MAX_OPTION = 80;

const line = (most: number) => z.string().transform(storable).pipe(z.string().trim().min(1).max(most));
const toAsk = z.strictObject({
  question: line(MAX_QUESTION),
  options: z.array(line(MAX_OPTION)).max(MAX_OPTIONS).default([]),
});
export type AskedQuestion = z.infer<typeof toAsk>;

/** Marks what no declaration and no server can make of a tool of its own. */
export interface QuestionTool extends Tool {
  readonly asksPeople: true;
}

export const asksPeople = (tool: Tool | undefined): tool is QuestionTool => tool !== undefined && "asksPeople" in tool;

export const askUserTool: QuestionTool = {
  asksPeople: true,
  name: ASK_USER,
  description:
    "Asks the people of this conversation something that you need to know and cannot find out, and waits for an answer: anybody may give it, and it may take hours. One question at a time; nothing else of the same response runs after it. Do not use it to ask for permission that a tool asks for itself.",
  parameters: {
    type: "object",
    properties: {
      question: { type: "string", minLength: 1, maxLength: MAX_QUESTION },
      options: {
        type: "array",
        items: { type: "string", minLength: 1, maxLength: MAX_OPTION },
        maxItems: MAX_OPTIONS,
        description: "Answers to choose from. Another one may be given all the same.",
      },
    },
    required: ["question"],
    additionalProperties: false,
  },
  quick: false,
  timeLimitMs: 0,
  parse(args): ParsedArguments {
    const found = toAsk.safeParse(args);
    if (found.success) return { ok: true, value: found.data };
    return {
      ok: false,
      message: `\`question\` must be a text of 1 to ${MAX_QUESTION} characters, \`options\` at most ${MAX_OPTIONS} texts of 1 to ${MAX_OPTION}`,
    };
  },
  effect: () => "harness.call",
  target: () => "people",
  execute: () => Promise.resolve({ kind: "failed", observation: "Not asked: it is asked by its turn only." }),
};

/** Of a call that `parse` let through. */
export const questionOf = (args: unknown): AskedQuestion => toAsk.parse(args);
