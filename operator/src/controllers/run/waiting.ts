/** Which Runs must be looked at when an Agent changes. Pure. */
import { AGENT_DEFAULTS, type AgentSpec, type AgentStatus, type RunSpec, type RunStatus } from "@pawl/crds";
import { type KubeObject, keyOf } from "#kube/resources.ts";
import { isFinished } from "./conditions.ts";

/** What admission and projection read of an Agent; its counters are not part of it. */
function shown(agent: KubeObject | undefined): string {
  if (agent === undefined) return "";
  const spec = agent["spec"] as AgentSpec | undefined;
  const status = agent["status"] as AgentStatus | undefined;
  return JSON.stringify([
    agent.metadata.uid,
    agent.metadata.generation,
    spec?.suspend === true,
    spec?.runs?.previews ?? AGENT_DEFAULTS.runs.previews,
    status?.installation,
    status?.conditions?.map(({ type, status: verdict, reason, message, observedGeneration }) => [
      type,
      verdict,
      reason,
      message,
      observedGeneration,
    ]),
  ]);
}

export function* runsTouchedBy(
  runs: Iterable<KubeObject>,
  change: { key: string; object: KubeObject | undefined; previous: KubeObject | undefined },
): Generator<string> {
  if (shown(change.object) === shown(change.previous)) return;
  for (const run of runs) {
    const agent = (run["spec"] as RunSpec | undefined)?.agentRef?.name;
    if (`${run.metadata.namespace ?? ""}/${agent ?? ""}` !== change.key) continue;
    if (!isFinished(run["status"] as RunStatus | undefined)) yield keyOf(run);
  }
}
