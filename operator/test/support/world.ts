/** A few lines that bring a ledger to the position a test speaks of, by the product's own statements only. */
import { v7 as uuidv7 } from "uuid";
import { recordAgent } from "#ledger/agents.ts";
import type { Runner } from "#ledger/database.ts";
import { crossEffect, type CrossRequest } from "#ledger/effects.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest, type Ingested, type Message } from "#ledger/mailbox.ts";
import { type CallRow, commitResponse } from "#ledger/steps.ts";
import { CODE } from "#rules/limits.ts";

export const NAMESPACE_UID = "ns-uid-1";
export { CODE };

export async function anAgent(db: Runner, name = `agent-${uuidv7()}`) {
  const agent = await recordAgent(db, {
    namespaceUid: NAMESPACE_UID,
    namespace: "demo",
    name,
    spec: { instructions: "Be brief." },
    specHash: "hash-1",
    suspended: false,
  });
  return { ...agent, name };
}

let counter = 0;

export function aMessage(agentId: string, changes: Partial<Message> = {}): Message {
  counter += 1;
  return {
    agentId,
    generation: 1,
    connector: "kubernetes/demo",
    conversationKey: changes.conversationKey ?? `conversation-${counter}`,
    actor: { connector: "kubernetes", extId: "alice" },
    extId: `message-${counter}`,
    orderKey: String(counter).padStart(8, "0"),
    text: `message ${counter}`,
    ...changes,
  };
}

export async function aRun(db: Runner, changes: Partial<Message> = {}) {
  const agent = await anAgent(db);
  const message = aMessage(agent.id, changes);
  const ingested = (await ingest(db, message)) as Extract<Ingested, { runId: string }>;
  return { agent, message, ...ingested };
}

/** Claims until the wanted run comes; other due runs of the file stay claimed by nobody in particular. */
export async function aClaimedRun(db: Runner, changes: Partial<Message> = {}, leaseMs = 10_000) {
  const run = await aRun(db, changes);
  for (;;) {
    const claim = await claimRun(db, "worker-1", leaseMs, CODE);
    if (claim === null) throw new Error("the run was not due");
    if (claim.runId === run.runId) return { ...run, token: claim.token };
  }
}

export function aCall(changes: Partial<CallRow> = {}): CallRow {
  return {
    id: uuidv7(),
    idx: 0,
    providerId: "call_1",
    tool: "http_request",
    class: "effectful",
    kind: "tool.effect",
    args: { method: "POST", url: "https://api.example.test/notes" },
    argsHash: `hash-${uuidv7()}`,
    target: "https://api.example.test/notes",
    outcome: null,
    result: null,
    ...changes,
  };
}

/** Commits one response with these calls as the next step. */
export async function respond(
  db: Runner,
  run: { runId: string; token: number },
  calls: readonly CallRow[],
  changes: { ordinal?: number; seenSeq?: number; nonce?: string } = {},
) {
  return commitResponse(db, {
    runId: run.runId,
    token: run.token,
    nonce: changes.nonce ?? uuidv7(),
    ordinal: changes.ordinal ?? 1,
    seenSeq: changes.seenSeq ?? 1,
    request: { hash: "r" },
    response: { text: null },
    usage: { inputTokens: 10, outputTokens: 5 },
    costMicros: 20,
    spentMicros: 20,
    modelCall: true,
    calls,
  });
}

export function aCrossing(
  run: { runId: string; token: number },
  call: CallRow,
  changes: Partial<CrossRequest> = {},
): CrossRequest {
  return {
    runId: run.runId,
    token: run.token,
    nonce: uuidv7(),
    effectId: uuidv7(),
    callId: call.id,
    kind: call.class === "reply" ? "reply" : "tool.effect",
    target: call.target ?? "reply",
    argsHash: call.argsHash,
    keyed: false,
    sendMs: 10_000,
    settleMs: 20_000,
    seenSeq: 1,
    ...changes,
  };
}

export async function cross(
  db: Runner,
  run: { runId: string; token: number },
  call: CallRow,
  changes: Partial<CrossRequest> = {},
) {
  const request = aCrossing(run, call, changes);
  return { request, result: await crossEffect(db, request) };
}
