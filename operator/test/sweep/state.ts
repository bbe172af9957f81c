/**
 * How a case ended, as a value that two runs of the same scenario share: ids, addresses and the model's other words for
 * the same thing are taken out, everything else is as the ledger and the world have it.
 */
import type { LogEntry } from "@pawl/fakes";
import { CROSSED_ANEW } from "#ledger/unsent.ts";
import type { Case, World } from "./scenario.ts";

export type EndState = {
  readonly runs: readonly { status: string; reason: string | null }[];
  /** Of all turns, in order. */
  readonly calls: readonly { tool: string; outcome: string | null; result: string | null }[];
  readonly replies: readonly string[];
  readonly effects: readonly { target: string; state: string }[];
  readonly messages: readonly string[];
  readonly memories: readonly string[];
  /** Writes that the world accepted, by path. */
  readonly writes: Readonly<Record<string, number>>;
};

export type Write = LogEntry & { path?: string; outcome?: string; key?: string | null };

type McpCall = LogEntry & { tool?: string; arguments?: { title?: string; id?: number; key?: string } };

/** What the world and the MCP server accepted, each in its own log, as writes and reads with a path. Only what has a key argument has a key. */
export async function accepted(fakes: World): Promise<Write[]> {
  const [writes, calls] = await Promise.all([fakes.world.log(), fakes.mcp.log()]);
  const tickets = (await fakes.mcp.control("GET", "/tickets")) as { id: number; title: string }[];
  const keys = new Set<string>();
  const done = (calls as McpCall[]).map((call): Write => {
    const { title = tickets.find(({ id }) => id === call.arguments?.id)?.title, key = null } = call.arguments ?? {};
    const path = `${title === undefined ? "" : new URL(title).pathname}/${call.tool}`;
    if (call.tool === "close_ticket") return { ...call, path, outcome: "write" };
    if (call.tool !== "create_ticket") return { ...call, path, outcome: "read" };
    const outcome = key !== null && keys.has(key) ? "replay" : "write";
    if (key !== null) keys.add(key);
    return { ...call, path, outcome, key };
  });
  return [...writes, ...done];
}

const plain = (item: Case, text: string): string =>
  text
    .replaceAll(item.id, "CASE")
    .replaceAll(/http:\/\/127\.0\.0\.1:\d+/g, "WORLD")
    .replaceAll(/In other words \(\d+\): /g, "")
    .replaceAll(/\\?"id\\?":\s*\d+/g, '"id":N')
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "UUID");

export const writesOf = (item: Case, log: readonly Write[]): Write[] =>
  log.filter((entry) => entry.path === item.notes || entry.path?.startsWith(`${item.notes}/`));

export async function endState(item: Case, log: readonly Write[]): Promise<EndState> {
  const rows = async <R extends object>(text: string): Promise<R[]> =>
    (await item.db.pool.query<R>(text, [item.conversationId])).rows;
  const runs = await rows<{ status: string; reason: string | null }>(
    "select status, reason from runs where conversation_id = $1 order by queued_at, id",
  );
  const calls = await rows<{
    tool: string;
    class: string;
    outcome: string | null;
    result: string | null;
    args: { text?: string };
  }>(
    `select c.tool, c.class, c.outcome, c.result, c.args from tool_calls c join runs r on r.id = c.run_id
     where r.conversation_id = $1 order by r.queued_at, r.id, c.ordinal, c.idx`,
  );
  const effects = await rows<{ target: string; state: string }>(
    `select e.target, e.state from commitment_effects e join runs r on r.id = e.run_id
     where r.conversation_id = $1 and e.kind <> 'reply' and not ${CROSSED_ANEW} order by e.dispatched_at, e.id`,
  );
  const messages = await rows<{ state: string }>(
    "select state from message_events where conversation_id = $1 and kind = 'message' order by seq",
  );
  const memories = await rows<{ text: string }>(
    "select text from memories where conversation_id = $1 and forgotten_at is null order by created_at, id",
  );
  const writes: Record<string, number> = {};
  for (const { path = "", outcome } of writesOf(item, log)) {
    if (outcome === "write") writes[plain(item, path)] = (writes[plain(item, path)] ?? 0) + 1;
  }
  return {
    runs,
    calls: calls
      .filter((call) => item.scenario.readsVary !== true || call.class !== "pure")
      .map(({ tool, outcome, result }) => ({
        tool,
        outcome,
        // What was seen of a write of unknown outcome depends on who saw it.
        result: result === null || outcome === "unknown" || item.scenario.varies ? null : plain(item, result),
      })),
    replies: calls
      .filter((call) => call.class === "reply" && call.outcome === "real")
      .map(({ args }) => plain(item, args.text ?? "")),
    effects: effects.map(({ target, state }) => ({ target: plain(item, target), state })),
    messages: messages.map(({ state }) => state),
    memories: memories.map(({ text }) => plain(item, text)),
    writes,
  };
}
