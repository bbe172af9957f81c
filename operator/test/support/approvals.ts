/** Runs that wait for a person, and what persons say. */
import { v7 as uuidv7 } from "uuid";
import { type Approval, decideApproval, parkForApproval, readApprovals, type Verdict } from "#ledger/approvals.ts";
import type { Database, Runner } from "#ledger/database.ts";
import type { Message } from "#ledger/mailbox.ts";
import type { CallRow } from "#ledger/steps.ts";
import { aCall, aClaimedRun, NAMESPACE_UID, respond } from "./world.ts";

export const applied = (name: string): NonNullable<Message["applied"]> => ({
  namespaceUid: NAMESPACE_UID,
  key: `key-${name}`,
  specHash: "s",
  objectUid: `uid-${name}`,
  objectName: name,
});

export type Gated = Awaited<ReturnType<typeof aGatedRun>>;

/** A run under a lease whose response asked for calls that a person has to approve. Its requester is alice. */
export async function aGatedRun(db: Database, calls = 1) {
  const name = `run-${uuidv7()}`;
  const run = await aClaimedRun(db, { applied: applied(name) });
  const rows = Array.from({ length: calls }, (_, idx) => aCall({ idx, gate: "open", target: `issue/${idx}` }));
  await respond(db, run, rows);
  return { ...run, name, calls: rows as [CallRow, ...CallRow[]] };
}

type Rules = Partial<
  Pick<
    Parameters<typeof parkForApproval>[1],
    "approvers" | "requesterMayApprove" | "expiresMs" | "nonce" | "callId" | "seenSeq"
  >
>;

export async function park(db: Runner, run: Gated, rules: Rules = {}) {
  const parked = await parkForApproval(db, {
    runId: run.runId,
    token: run.token,
    nonce: uuidv7(),
    callId: run.calls[0].id,
    requests: run.calls.map((call) => ({ id: uuidv7(), call: call.id, hash: `hash of ${call.id}` })),
    approvers: null,
    requesterMayApprove: false,
    expiresMs: 60_000,
    message: "a person must decide",
    seenSeq: 1_000,
    ...rules,
  });
  return parked.kind;
}

export async function approvalOf(db: Runner, run: Gated, index = 0): Promise<Approval> {
  const found = (await readApprovals(db, run.runId)).find((row) => row.callId === run.calls[index]?.id);
  if (found === undefined) throw new Error(`call ${index} waits for nobody`);
  return found;
}

/** What bob says about it, as one Decision, unless told otherwise. */
export const says = (run: { name: string }, approval: Approval, changes: Partial<Verdict> = {}): Verdict => ({
  request: approval.id,
  decision: `decision-${uuidv7()}`,
  subject: { namespaceUid: NAMESPACE_UID, name: run.name, uid: `uid-${run.name}` },
  actor: { connector: "kubernetes", extId: "bob", groups: [] },
  approve: true,
  hash: approval.hash,
  reason: null,
  ...changes,
});

export const person = (extId: string, ...groups: string[]): Verdict["actor"] => ({
  connector: "kubernetes",
  extId,
  groups,
});

export async function decide(db: Runner, run: Gated, changes: Partial<Verdict> = {}, index = 0) {
  return decideApproval(db, says(run, await approvalOf(db, run, index), changes));
}
