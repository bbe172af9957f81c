/** The part of a turn's story that is about what it asked people, and what they said to it. */
import { ofChain } from "./chain.ts";

/** A column of the story statement, over the run `r`. Answers are the one that counted and those that came too late. */
export const QUESTIONS_COLUMN = `
      (select coalesce(jsonb_agg(jsonb_build_object('id', q.id, 'call', q.call_id, 'state', q.state, 'askedAt', q.asked_at, 'expiresAt', q.expires_at,
           'closedAt', q.closed_at, 'by', (select coalesce(w.display, w.ext_id) from actors w where w.id = q.answered_by), 'late',
           (select coalesce(jsonb_agg(jsonb_build_object('actor', d.actor, 'text', d.text, 'at', d.at) order by d.at), '[]')
              from question_decisions d where d.question_id = q.id and d.done = 'late')) order by q.id), '[]')
         from questions q where ${ofChain("q.run_id", "r")}) as questions`;

export type StoryQuestion = {
  readonly id: string;
  readonly call: string;
  readonly state: "open" | "answered" | "expired" | "withdrawn";
  readonly askedAt: Date;
  readonly expiresAt: Date;
  readonly closedAt: Date | null;
  readonly by: string | null;
  readonly late: readonly { readonly actor: string; readonly text: string; readonly at: Date }[];
};
