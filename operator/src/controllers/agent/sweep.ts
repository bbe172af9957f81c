/** The look behind the watch: Agents that went while no controller ran. Their turns would else go on without them. */
import { type ListedAgent, listAgents } from "#ledger/agents.ts";
import { isCredible, kindSince } from "../absence.ts";
import type { Context } from "../context.ts";
import { leaveAgent, lookForAgent } from "./departure.ts";

const AGENT_CRD = "agents.pawl.dev";

async function missing(
  context: Context,
  agents: readonly ListedAgent[],
  signal: AbortSignal,
): Promise<ListedAgent[] | null> {
  const since = await kindSince(context, AGENT_CRD, signal);
  if (since === null) return null;
  const found: ListedAgent[] = [];
  for (const agent of agents) {
    if (agent.recordedAt < since) continue;
    const namespace = await context.namespaces.uid(agent.namespace, { fresh: true, signal });
    if (namespace !== agent.namespaceUid) continue;
    const seen = await lookForAgent(context, agent, signal);
    if (seen === "doubt") return null;
    if (seen === "absent") found.push(agent);
  }
  return found;
}

/** Asks only for what the copy lacks and what still matters. Throws when something is away; the next sweep begins anew. */
export async function sweepAgents(context: Context, wake: (run: string) => void, signal: AbortSignal): Promise<void> {
  const known = (await listAgents(context.db)).filter(({ suspended, live }) => !suspended || live > 0);
  const lacking = known.filter(({ namespace, name }) => context.agents.get(`${namespace}/${name}`) === undefined);
  const first = lacking.length === 0 ? [] : await missing(context, lacking, signal);
  if (first === null || first.length === 0) return;
  if (!isCredible(first.length, known.length)) {
    context.log.error(
      { missing: first.length, known: known.length },
      "too many Agents are gone at once to be believed; their turns go on: look whether the API server lost data, and delete or re-apply the Agents",
    );
    return;
  }
  await context.clock.sleep(context.timing.absenceMs, signal);
  if (signal.aborted) return;
  for (const agent of (await missing(context, first, signal)) ?? []) await leaveAgent(context, agent, wake);
}
