/**
 * A question to people, from the response that asks it to the run that waits without a lease. Like an approval
 * (`approval.ts`), it is found again by whoever claims the run; unlike one, any words of anybody answer it.
 */
import { type ParkedForInput, parkForInput } from "#ledger/questions.ts";
import type { CallResult } from "#ledger/steps.ts";
import { head, storable } from "#rules/text.ts";
import { asksPeople, type AskedQuestion, questionOf } from "./builtin/ask.ts";
import type { EngineDeps } from "./deps.ts";
import { post, postMs, speakerOf } from "./emissions.ts";
import { closeWith } from "./ending.ts";
import { whyBarred } from "./provenance.ts";
import { Left, type Turn, type TurnCall } from "./turn.ts";

export const NOT_ASKED = {
  another: "Not asked: one question at a time. Ask it again if it still matters after the answer to the first.",
  behind: "Not run: your question comes first. Call it again if it still fits the answer.",
  unanswered: "Nobody answered in time.",
} as const;

/** What a sentence for people keeps of a question, so that what to do still stands in a status. */
const MAX_QUESTION_WORDS = 64;

/** The request's id follows. */
const message = (question: string): string =>
  `a person must answer: ${head(question.replaceAll(/\s+/g, " "), MAX_QUESTION_WORDS)} — apply a Run in this conversation, or a Decision with verdict Answer that names request `;

/** What people read: the question, and what there is to choose from. */
const spoken = ({ question, options }: AskedQuestion): string =>
  [question, ...options.map((option) => `- ${option}`)].join("\n");

/** The first question of the open calls is asked; what stands behind it was thought up without its answer. */
export function behindQuestion(turn: Turn): CallResult[] {
  const open = turn.openCalls;
  const first = open.findIndex((call) => asksPeople(turn.tools.get(call.tool)));
  if (first < 0) return [];
  return open.slice(first + 1).map((call) => ({
    id: call.id,
    outcome: "skipped",
    result: asksPeople(turn.tools.get(call.tool)) ? NOT_ASKED.another : NOT_ASKED.behind,
  }));
}

/** A question is shown in its conversation as an answer is, and may show no more. Null: it may be asked. */
export const barredQuestion = (turn: Turn): string | null =>
  whyBarred(turn, {})?.replace(/^not sent/, "Not asked") ?? null;

/** The run does not wait after all: the collector words why. Throws `Left` when it waits for a person now. */
export async function ask(
  deps: EngineDeps,
  turn: Turn,
  call: TurnCall,
): Promise<Exclude<ParkedForInput, "parked" | "already" | "fenced" | "ended">> {
  const question = questionOf(call.args);
  const emission = deps.newId();
  const { kind: parked, reserved } = await parkForInput(deps.db, {
    ...turn.ids,
    nonce: deps.newId(),
    callId: call.id,
    questionId: deps.newId(),
    text: spoken(question),
    options: question.options,
    expiresMs: turn.agent.answerWithinMs,
    message: storable(message(question.question)),
    emission,
    postMs: postMs(deps),
  });
  switch (parked) {
    case "parked":
    case "already":
      turn.lease.letGo();
      if (reserved)
        await post(
          deps,
          speakerOf(turn),
          { kind: "question", sequence: call.ordinal, text: spoken(question) },
          emission,
        );
      throw new Left("waits for an answer");
    case "fenced":
    case "ended":
      throw new Left(parked);
    default:
      return parked;
  }
}

/** The question that the last step asked and nobody answered; read from rows, by whichever worker has them. */
export function unanswered(turn: Turn): string | null {
  const ordinal = turn.steps.at(-1)?.ordinal;
  const call = turn.calls.find(
    (one) => one.ordinal === ordinal && one.kind === "harness.call" && one.result === NOT_ASKED.unanswered,
  );
  return call === undefined ? null : questionOf(call.args).question;
}

/** Ends a turn that waited in vain: what it had needed, in its own words. */
export async function closeUnanswered(deps: EngineDeps, turn: Turn, question: string): Promise<void> {
  const message = "nobody answered in time what the agent had to know (spec.answerWithin of the Agent)";
  await closeWith(
    deps,
    turn,
    "unanswered",
    { status: "failed", reason: "AnswerTimeout", message },
    undefined,
    question,
  );
}
