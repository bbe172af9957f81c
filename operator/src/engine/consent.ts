/**
 * The message after a turn that ended at its limit. If its requester clearly agrees, the new turn goes on from where the
 * last one stood: with its steps, and in its journal, so that what was written is not written again. Everything short of
 * a clear yes is an ordinary new turn.
 */
import { continueRequest, readAsked } from "#ledger/consent.ts";
import type { EngineDeps } from "./deps.ts";
import { Left, type Turn } from "./turn.ts";

/** True: it goes on, and its rows have to be read again. */
export async function meetConsent(deps: EngineDeps, turn: Turn): Promise<boolean> {
  if (deps.judge === undefined || turn.steps.length > 0) return false;
  if (turn.earlier.at(-1)?.status !== "budget_exhausted") return false;
  const { run } = turn;
  const asked = await readAsked(deps.db, run.id);
  if (asked === null) return false;
  const answer = run.triggers.map(({ text }) => text).join("\n");
  const { agentId, namespace, id: runId } = run;
  const whose = { agentId, namespace, fast: turn.agent.fast, runId };
  const said = await deps.judge.consent({ question: asked.question, answer }, whose);
  if (said !== "yes") return false;
  const continued = await continueRequest(deps.db, { ...turn.ids, predecessor: asked.runId });
  if (continued === "fenced" || continued === "ended") throw new Left(continued);
  deps.log.info({ run: run.id, continues: asked.runId }, "goes on where a turn had ended at its limit");
  return true;
}
