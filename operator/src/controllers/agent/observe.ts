/** What a decision about an Agent reads of the ledger. */
import { type AgentView, listAgents, readAgent } from "#ledger/agents.ts";
import type { Context } from "../context.ts";

export const observeAgent = (context: Context, namespaceUid: string, name: string): Promise<AgentView | null> =>
  readAgent(context.db, { namespaceUid, name });

/** Rows of one name, whatever the UID of the namespace was when they were written. */
export async function rowsOf(context: Context, namespace: string, name: string) {
  return (await listAgents(context.db)).filter((row) => row.namespace === namespace && row.name === name);
}
