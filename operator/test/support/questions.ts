/** Runs that wait for an answer, and answers. */
import { v7 as uuidv7 } from "uuid";
import type { Database, Runner } from "#ledger/database.ts";
import { type Answer, answerQuestion, parkForInput, type Question, readQuestions } from "#ledger/questions.ts";
import type { CallRow } from "#ledger/steps.ts";
import { applied } from "./approvals.ts";
import { aCall, aClaimedRun, NAMESPACE_UID, respond } from "./world.ts";

export const aQuestion = (changes: Partial<CallRow> = {}): CallRow =>
  aCall({
    tool: "ask_user",
    class: "internal_durable",
    kind: "harness.call",
    args: { question: "Which colour?", options: [] },
    target: null,
    ...changes,
  });

export type Asking = Awaited<ReturnType<typeof anAskingRun>>;

/** A run under a lease whose response asks something. Its requester is alice. */
export async function anAskingRun(db: Database) {
  const name = `run-${uuidv7()}`;
  const run = await aClaimedRun(db, { applied: applied(name) });
  const call = aQuestion();
  await respond(db, run, [call]);
  return { ...run, name, call };
}

type Changes = Partial<Parameters<typeof parkForInput>[1]>;

/** Asks it, with everything that comes back. */
export const asking = (
  db: Runner,
  run: { runId: string; token: number; call: Pick<CallRow, "id"> },
  changes: Changes = {},
) =>
  parkForInput(db, {
    runId: run.runId,
    token: run.token,
    nonce: uuidv7(),
    callId: run.call.id,
    seenSeq: 1,
    questionId: uuidv7(),
    text: "Which colour?",
    options: [],
    expiresMs: 60_000,
    message: "a person must answer request ",
    emission: uuidv7(),
    postMs: 1_000,
    ...changes,
  });

export const ask = async (db: Runner, run: Parameters<typeof asking>[1], changes: Changes = {}) =>
  (await asking(db, run, changes)).kind;

export async function questionOf(db: Runner, runId: string): Promise<Question> {
  const [question] = await readQuestions(db, runId);
  if (question === undefined) throw new Error("nothing was asked");
  return question;
}

/** What bob says to it, as one Decision, unless told otherwise. */
export const answers = (run: { name: string }, question: { id: string }, changes: Partial<Answer> = {}): Answer => ({
  request: question.id,
  decision: `decision-${uuidv7()}`,
  subject: { namespaceUid: NAMESPACE_UID, name: run.name, uid: `uid-${run.name}` },
  actor: { connector: "kubernetes", extId: "bob" },
  text: "blue",
  ...changes,
});

export const answer = async (db: Runner, run: { runId: string; name: string }, changes: Partial<Answer> = {}) =>
  answerQuestion(db, answers(run, await questionOf(db, run.runId), changes));
