/** Everything that a turn may use, made once when a worker takes it up; an Agent without servers costs no look at a row. */
import type { RunRecord } from "#ledger/reads.ts";
import type { AgentSpec } from "./agent.ts";
import type { EngineDeps } from "./deps.ts";
import type { Wait } from "./giving-back.ts";
import type { HeldLease } from "./lease.ts";
import type { ServerSessions } from "./ports.ts";
import { pinnedTools, renamed, serverTools } from "./server-tools.ts";
import { builtinTools, type Toolset, toolsetOf } from "./toolset.ts";
import { Left } from "./turn.ts";

export type TurnTools =
  | { readonly kind: "ready"; readonly toolset: Toolset }
  /** A server is away, or a Secret for it: the turn cannot begin. */
  | { readonly kind: "waiting"; readonly wait: Wait };

/** `sessions` null: the Agent names no server. */
export async function turnTools(
  deps: EngineDeps,
  sessions: ServerSessions | null,
  { run, agent, lease, shutdown }: { run: RunRecord; agent: AgentSpec; lease: HeldLease; shutdown: AbortSignal },
): Promise<TurnTools> {
  if (sessions === null) {
    return { kind: "ready", toolset: toolsetOf(deps, builtinTools(deps, agent), agent, run.connector) };
  }
  const signal = AbortSignal.any([lease.lost.signal, shutdown]);
  const found = await pinnedTools(deps, sessions, agent, { runId: run.id, token: lease.token }, signal);
  if (lease.lost.signal.aborted) throw new Left("lease lost");
  if (shutdown.aborted) throw new Left("shutdown");
  if ("kind" in found) {
    const { reason, message } = found;
    return { kind: "waiting", wait: { delayMs: deps.settings.waitForPersonMs, reason, message, failed: false } };
  }
  const said = { ...agent, effects: renamed(agent.effects, found) };
  const tools = [...builtinTools(deps, said), ...serverTools(sessions, agent.servers, found, said.effects)];
  return { kind: "ready", toolset: toolsetOf(deps, tools, agent, run.connector) };
}
