/**
 * The tools that a turn has of servers elsewhere. They are listed once, when a run begins, and pinned in its rows: a
 * server that changes a description in the middle of a run changes nothing about that run, nor does a takeover.
 */
import { z } from "zod";
import { pinToolset, readToolset } from "#ledger/toolsets.ts";
import { hintedKind } from "#rules/hints.ts";
import { PawlError } from "#rules/errors.ts";
import type { AgentSpec } from "./agent.ts";
import { declared } from "./declared.ts";
import type { EngineDeps } from "./deps.ts";
import type { EffectDeclaration, ListedTool, Listing, ServerSessions, ServerSpec, Tool } from "./ports.ts";
import { offered, RESERVED } from "./toolset.ts";
import { namesFor } from "./tool-names.ts";
import { Left } from "./turn.ts";

const pinned = z.array(
  z.object({
    /** What the model calls it. */
    name: z.string(),
    server: z.string(),
    tool: z.object({
      name: z.string(),
      description: z.string(),
      parameters: z.record(z.string(), z.unknown()),
      readOnly: z.boolean(),
      destructive: z.boolean(),
    }),
  }),
);
export type Pinned = { readonly name: string; readonly server: string; readonly tool: ListedTool };

type Waiting = Extract<Listing, { kind: "waiting" }>;
export type Listed = {
  readonly kind: "listed";
  readonly tools: readonly Pinned[];
  readonly leftOut: readonly string[];
};

/** All servers' tools as they are now, with their names; or what one of them waits for. */
export async function listAll(
  sessions: ServerSessions,
  agent: Pick<AgentSpec, "servers">,
  own: readonly string[],
  signal: AbortSignal,
): Promise<Listed | Waiting> {
  const answers = await Promise.all(
    agent.servers.map(async (server) => ({ server: server.name, answer: await sessions.list(server, signal) })),
  );
  const listed: { server: string; tool: ListedTool }[] = [];
  const leftOut: string[] = [];
  for (const { server, answer } of answers) {
    if (answer.kind === "waiting") return answer;
    listed.push(...answer.tools.map((tool) => ({ server, tool })));
    leftOut.push(...answer.leftOut);
  }
  const names = namesFor(
    listed.map(({ server, tool }) => ({ server, tool: tool.name })),
    new Set([...own, ...RESERVED]),
  );
  const tools = [...names].flatMap(([name, of]) => {
    const found = listed.find(({ server, tool }) => server === of.server && tool.name === of.tool);
    return found === undefined ? [] : [{ name, ...found }];
  });
  return { kind: "listed", tools, leftOut };
}

/** What the run was shown when it began; the first worker of it asks the servers and writes that down. */
export async function pinnedTools(
  deps: Pick<EngineDeps, "db" | "log" | "redaction" | "tools">,
  sessions: ServerSessions,
  agent: AgentSpec,
  run: { readonly runId: string; readonly token: number },
  signal: AbortSignal,
): Promise<readonly Pinned[] | Waiting> {
  const stored = await readToolset(deps.db, run.runId);
  if (stored !== null) {
    const parsed = pinned.safeParse(stored);
    if (!parsed.success) throw new PawlError("invariant", "ToolsetUnreadable", "the tools of this run cannot be read");
    return parsed.data;
  }
  const found = await listAll(sessions, agent, offered(deps), signal);
  if (found.kind === "waiting") return found;
  if (found.leftOut.length > 0)
    deps.log.warn({ run: run.runId, leftOut: found.leftOut }, "tools of servers are left out");
  const answer = await pinToolset(deps.db, run, deps.redaction.json(found.tools));
  if (answer !== "pinned") throw new Left(answer);
  // As the row gives it back: whoever takes the run over builds the same request to the letter.
  return pinnedTools(deps, sessions, agent, run, signal);
}

/** The Agent's words with the names that the model uses: it may have written a tool as its server spells it. */
export function renamed(effects: readonly EffectDeclaration[], tools: readonly Pinned[]): EffectDeclaration[] {
  const names = new Map(tools.map(({ name, server, tool }) => [`${server}_${tool.name}`, name]));
  const nameOf = (written: string): string => names.get(written) ?? written;
  return effects.map((effect) => ({
    ...effect,
    tool: nameOf(effect.tool),
    ...(effect.probe === undefined ? {} : { probe: { ...effect.probe, tool: nameOf(effect.probe.tool) } }),
    ...(effect.compensate === undefined
      ? {}
      : { compensate: { ...effect.compensate, tool: nameOf(effect.compensate.tool) } }),
    ...(effect.state === undefined ? {} : { state: { ...effect.state, tool: nameOf(effect.state.tool) } }),
  }));
}

/** `effects`: as `renamed`. A server that the Agent does not name any more has no tools. */
export function serverTools(
  sessions: ServerSessions,
  servers: readonly ServerSpec[],
  tools: readonly Pinned[],
  effects: readonly EffectDeclaration[],
): Tool[] {
  return tools.flatMap(({ name, server: of, tool }) => {
    const server = servers.find((one) => one.name === of);
    if (server === undefined) return [];
    const said = effects.find((effect) => effect.tool === name);
    const words = {
      ...(said?.key === undefined ? {} : { key: said.key }),
      ...(said?.errorMeansNotApplied === undefined ? {} : { errorMeansNotApplied: said.errorMeansNotApplied }),
    };
    const kind = hintedKind(tool, server.trustHints);
    return [declared({ ...sessions.tool(server, tool, name, words), effect: () => kind }, said)];
  });
}
