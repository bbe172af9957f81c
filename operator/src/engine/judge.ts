/** The questions that Pawl asks a small model, each with its closed set of answers. `unsure` is one of them, always. */
import { z } from "zod";
import { bounded } from "#rules/text.ts";
import type { Classifier, Whose } from "./classify.ts";

export type Consent = "yes" | "no" | "unsure";
export type Sensitivity = "agent" | "conversation" | "unsure";
/** What a message is to the work under way (`rules/interrupt.ts`). */
export type Related = "refines" | "independent" | "cancels" | "unsure";
export type Words = { readonly actor: string; readonly text: string };

export interface Judge {
  /** Is `answer` a clear yes to `question`? Whoever asks treats everything else as no. */
  consent(about: { readonly question: string; readonly answer: string }, whose: Whose): Promise<Consent>;
  /** May other conversations of this agent see it? Whoever asks keeps it in its conversation unless the answer is `agent`. */
  sensitivity(text: string, whose: Whose): Promise<Sensitivity>;
  /** Has `message` to do with what `work` asked for? Whoever asks leaves the work alone unless the answer says so. */
  relation(about: { readonly work: readonly Words[]; readonly message: Words }, whose: Whose): Promise<Related>;
}

/** Shorter than effects wait for the answer (MAX_HOLD_MS), with room for the statement that acts upon it. */
export const RELATION_MS = 1_200;
/** Characters of the message, and of each one that asked for the work: together they fit what a question may hold. */
const MAX_MESSAGE = 2_500;
const MAX_WORK = 500;

const CONSENT = z.strictObject({ answer: z.enum(["yes", "no", "unsure"]) });
const CONSENT_WORDS = `A person was asked a question and answered. Say whether the answer is a clear yes to exactly that question.
"yes": the person plainly agrees. "no": the person declines, or wants something else instead. "unsure": anything between: conditions, counter-questions, thanks, a change of subject, an answer to another question.`;

const SENSITIVITY = z.strictObject({ audience: z.enum(["agent", "conversation", "unsure"]) });
const SENSITIVITY_WORDS = `An assistant wants to remember the text below. Say who may be shown it later.
"agent": a general fact or a rule of work that nobody would mind every user of this assistant to read. "conversation": anything personal, confidential, about a named person, a customer, money, health, access or an incident, or said in confidence. "unsure": you cannot tell.`;

const RELATION = z.strictObject({ relation: z.enum(["refines", "independent", "cancels", "unsure"]) });
const RELATION_WORDS = `An assistant is at work for the people of a conversation, and has not answered yet. A further message arrives. Say what it is to that work.
"refines": it corrects, narrows, extends or answers something about the work, so that whoever does it has to know. "cancels": its author wants the work to end without a result ("never mind, I found it"); wanting something else instead is "refines". "independent": a request or remark of its own, which can be answered after the work: another topic, thanks, small talk. "unsure": you cannot tell.`;

const said = ({ actor, text }: Words, max: number): string => `${actor}: ${bounded(text, max)}`;

export class ModelJudge implements Judge {
  readonly #classifier: Classifier;

  constructor(classifier: Classifier) {
    this.#classifier = classifier;
  }

  async consent(about: { question: string; answer: string }, whose: Whose): Promise<Consent> {
    const answered = await this.#classifier.ask(
      {
        name: "consent",
        schema: CONSENT,
        instruction: CONSENT_WORDS,
        input: `The question was:\n${about.question}\n\nThe answer was:\n${about.answer}`,
      },
      whose,
    );
    return answered.sure ? answered.value.answer : "unsure";
  }

  async relation(about: { work: readonly Words[]; message: Words }, whose: Whose): Promise<Related> {
    const work = about.work.map((one) => said(one, MAX_WORK)).join("\n\n");
    const input = `The work was asked for with:\n${work}\n\nThe further message is:\n${said(about.message, MAX_MESSAGE)}`;
    const question = { name: "relation", schema: RELATION, instruction: RELATION_WORDS, input, timeoutMs: RELATION_MS };
    const answered = await this.#classifier.ask(question, whose);
    return answered.sure ? answered.value.relation : "unsure";
  }

  async sensitivity(text: string, whose: Whose): Promise<Sensitivity> {
    const answered = await this.#classifier.ask(
      { name: "sensitivity", schema: SENSITIVITY, instruction: SENSITIVITY_WORDS, input: text },
      whose,
    );
    return answered.sure ? answered.value.audience : "unsure";
  }
}
