/** What it means that an Agent is gone: nothing new starts, and what is open ends, newest first. */
import { AGENTS } from "#kube/resources.ts";
import { type ListedAgent, suspendAgent } from "#ledger/agents.ts";
import { listLiveMessagesOfAgent } from "#ledger/mirrors.ts";
import { requestStop } from "#ledger/turns.ts";
import type { Context } from "../context.ts";

const CONTROLLER = { connector: "pawl", extId: "controller" } as const;

/** One GET by name. `doubt`: the answer is about something else (the kind, the namespace). */
export async function lookForAgent(
  context: Context,
  agent: { namespace: string; name: string },
  signal?: AbortSignal,
): Promise<"present" | "absent" | "doubt"> {
  const got = await context.kube.get(AGENTS, agent, signal === undefined ? {} : { signal });
  if (got.found) return "present";
  return got.missing === "object" ? "absent" : "doubt";
}

/** `wake`: a Run to be looked at, because its message was taken back. */
export async function leaveAgent(context: Context, row: ListedAgent, wake: (run: string) => void): Promise<void> {
  const { db, log } = context;
  if (!row.suspended) await suspendAgent(db, row);
  const open = (await listLiveMessagesOfAgent(db, row)).filter(({ stopping }) => !stopping);
  for (const message of open) {
    const extId = `agent-deleted:${message.eventId}`;
    await requestStop(db, { eventId: message.eventId, extId, actor: CONTROLLER, why: "its Agent was deleted" });
    if (message.object !== null) wake(`${row.namespace}/${message.object.name}`);
  }
  if (!row.suspended) log.info({ agent: `${row.namespace}/${row.name}`, stopped: open.length }, "agent deleted");
}
