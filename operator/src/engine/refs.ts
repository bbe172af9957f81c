/** References of Agents, tried by the worker because the controller may read no Secret: what was found goes to a row. */
import { type AgentToCheck, listAgentsToCheck, recordRefs } from "#ledger/agents.ts";
import { type AgentSpec, readAgentSpec } from "./agent.ts";
import { credentialFor } from "./credential.ts";
import { declarationProblem } from "./declarations.ts";
import type { EngineDeps } from "./deps.ts";
import type { EffectDeclaration, Tool } from "./ports.ts";
import { listAll, renamed, serverTools } from "./server-tools.ts";
import { builtinTools, offered, type Offering } from "./toolset.ts";

/** A missing reference is tried again this often: a person who creates the Secret sees it work within seconds. */
export const RETRY_MISSING_MS = 5_000;
/** A found one is looked at again this often: Secrets are deleted, too. */
export const RECHECK_FOUND_MS = 60_000;
/** Between two looks at the list. */
export const LOOK_MS = 1_000;

type Deps = Pick<EngineDeps, "credentials" | "settings" | "clock" | "servers"> & Offering;

/** `reason` null: everything was found, and there is still something to say. */
type Found = { readonly reason: string | null; readonly message: string };

/** Null: every reference was found. */
export async function judgeRefs(deps: Deps, agent: AgentToCheck): Promise<Found | null> {
  const spec = readAgentSpec(agent.spec);
  if (spec.primary === null) {
    return {
      reason: "ModelMissing",
      message: "neither the Agent nor the install names a model: set spec.models.primary",
    };
  }
  const known = offered(deps);
  const unknown = spec.tools.filter((name) => !known.includes(name));
  if (unknown.length > 0) {
    return {
      reason: "ToolUnknown",
      message: `no such tool: ${unknown.join(", ")}; there are ${known.join(", ")}`,
    };
  }
  for (const endpoint of [spec.primary, spec.fast]) {
    if (endpoint === null) continue;
    const credential = await credentialFor(deps, agent.namespace, endpoint);
    if (credential.kind !== "ready") return { reason: credential.reason, message: credential.message };
  }
  return judgeTools(deps, agent.namespace, spec);
}

/** Its servers are asked, too: what is declared about their tools cannot be judged otherwise. */
async function judgeTools(deps: Deps, namespace: string, spec: AgentSpec): Promise<Found | null> {
  if (spec.servers.length === 0) return judgeDeclarations(builtinTools(deps, spec), spec.effects);
  const sessions = deps.servers.open(namespace);
  try {
    const found = await listAll(sessions, spec, offered(deps), new AbortController().signal);
    // What a server says of its own failure may hold what it was sent.
    if (found.kind === "waiting") return { reason: found.reason, message: deps.redaction.text(found.message) };
    const effects = renamed(spec.effects, found.tools);
    const tools = [
      ...builtinTools(deps, { ...spec, effects }),
      ...serverTools(sessions, spec.servers, found.tools, effects),
    ];
    const problem = judgeDeclarations(tools, effects);
    if (problem !== null || found.leftOut.length === 0) return problem;
    return {
      reason: null,
      message: deps.redaction.text(`every reference was found; left out are ${found.leftOut.join("; ")}`),
    };
  } finally {
    await sessions.close();
  }
}

function judgeDeclarations(tools: readonly Tool[], effects: readonly EffectDeclaration[]): Found | null {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  return declarationProblem(effects, (name) => byName.get(name));
}

/** One look: every agent that is due gets an answer of its own; one that cannot be tried now stays due. */
export async function checkRefs(deps: Deps): Promise<void> {
  for (const agent of await listAgentsToCheck(deps.db, RETRY_MISSING_MS, RECHECK_FOUND_MS)) {
    try {
      const found = await judgeRefs(deps, agent);
      await recordRefs(deps.db, {
        id: agent.id,
        generation: agent.generation,
        reason: found?.reason ?? null,
        message: found?.message ?? null,
      });
    } catch (error) {
      deps.log.warn({ agent: agent.id, error: (error as Error).message }, "an agent's references could not be tried");
    }
  }
}

export async function keepCheckingRefs(deps: Deps, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await checkRefs(deps).catch((error: Error) =>
      deps.log.warn({ error: error.message }, "references were not looked at"),
    );
    await deps.clock.sleep(LOOK_MS, signal);
  }
}
