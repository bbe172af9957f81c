/** The questions that Pawl asks a small model, each with its closed set of answers. `unsure` is one of them, always. */
import { z } from "zod";
import type { Classifier, Whose } from "./classify.ts";

export type Consent = "yes" | "no" | "unsure";
export type Sensitivity = "agent" | "conversation" | "unsure";

export interface Judge {
  /** Is `answer` a clear yes to `question`? Whoever asks treats everything else as no. */
  consent(about: { readonly question: string; readonly answer: string }, whose: Whose): Promise<Consent>;
  /** May other conversations of this agent see it? Whoever asks keeps it in its conversation unless the answer is `agent`. */
  sensitivity(text: string, whose: Whose): Promise<Sensitivity>;
}

const CONSENT = z.strictObject({ answer: z.enum(["yes", "no", "unsure"]) });
const CONSENT_WORDS = `A person was asked a question and answered. Say whether the answer is a clear yes to exactly that question.
"yes": the person plainly agrees. "no": the person declines, or wants something else instead. "unsure": anything between: conditions, counter-questions, thanks, a change of subject, an answer to another question.`;

const SENSITIVITY = z.strictObject({ audience: z.enum(["agent", "conversation", "unsure"]) });
const SENSITIVITY_WORDS = `An assistant wants to remember the text below. Say who may be shown it later.
"agent": a general fact or a rule of work that nobody would mind every user of this assistant to read. "conversation": anything personal, confidential, about a named person, a customer, money, health, access or an incident, or said in confidence. "unsure": you cannot tell.`;

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

  async sensitivity(text: string, whose: Whose): Promise<Sensitivity> {
    const answered = await this.#classifier.ask(
      { name: "sensitivity", schema: SENSITIVITY, instruction: SENSITIVITY_WORDS, input: text },
      whose,
    );
    return answered.sure ? answered.value.audience : "unsure";
  }
}
