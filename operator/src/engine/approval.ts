/**
 * A call that a person has to approve (C53). Only the ledger's word counts, written there by a decision that named the
 * hash of exactly this call: no text that a person or a tool said is ever looked at. While nobody has decided, the run
 * waits without a lease; whoever claims it next finds the recorded call again, with the arguments that were approved.
 */
import { type Approval, parkForApproval, readApprovals, withdrawApproval } from "#ledger/approvals.ts";
import type { CallResult } from "#ledger/steps.ts";
import { MAX_RESULT } from "#rules/limits.ts";
import { bounded, head, storable } from "#rules/text.ts";
import { canonicalHash } from "./canonical.ts";
import type { EngineDeps } from "./deps.ts";
import { NOT_RUN } from "./not-run.ts";
import { Left, type Turn, type TurnCall } from "./turn.ts";

/** What a sentence for people keeps of a tool's and a target's name, so that what to do still stands in a status. */
const MAX_TOOL_WORDS = 64;
const MAX_TARGET_WORDS = 72;

/** What is approved: this call of this run with these arguments, and nothing else. */
export const approvalHash = (runId: string, call: Pick<TurnCall, "id" | "tool" | "args">): string =>
  canonicalHash({ run: runId, call: call.id, tool: call.tool, arguments: call.args });

const message = (request: string, call: TurnCall): string => {
  const target = call.target === null ? "" : ` (${head(call.target, MAX_TARGET_WORDS)})`;
  return `a person must decide on ${head(call.tool, MAX_TOOL_WORDS)}${target}: apply a Decision that names request ${request} and its hash`;
};

function refusal(approval: Approval): string {
  if (approval.state === "withdrawn") return NOT_RUN.newer;
  if (approval.state === "expired") return "Not run: nobody approved it in time.";
  const reason = approval.reason === null ? "" : ` ${approval.reason}`;
  return bounded(`Not run: ${approval.decidedBy ?? "a person"} rejected it.${reason}`, MAX_RESULT);
}

/** Null: it may run. Throws `Left` when the run waits for a person now. */
export async function gated(deps: EngineDeps, turn: Turn, call: TurnCall): Promise<CallResult | null> {
  for (;;) {
    const approvals = await readApprovals(deps.db, turn.run.id);
    const approval = approvals.find((row) => row.callId === call.id);
    if (approval?.state === "approved") {
      if (approval.hash === approvalHash(turn.run.id, call)) return null;
      return { id: call.id, outcome: "skipped", result: "Not run: what was approved is another call than this one." };
    }
    if (approval !== undefined && approval.state !== "open") {
      return { id: call.id, outcome: "skipped", result: deps.redaction.text(refusal(approval)) };
    }
    // What was asked for before the newest message is not what a person should be made to decide on.
    if (!turn.isBehind) await park(deps, turn, call, approvals);
    else if (await withdrawn(deps, turn, call)) return { id: call.id, outcome: "skipped", result: NOT_RUN.newer };
  }
}

/** False: somebody has decided in the meantime. */
async function withdrawn(deps: EngineDeps, turn: Turn, call: TurnCall): Promise<boolean> {
  const answer = await withdrawApproval(deps.db, {
    runId: turn.run.id,
    token: turn.lease.token,
    callId: call.id,
  });
  if (answer === "fenced" || answer === "ended") throw new Left(answer);
  return answer !== "decided";
}

/** Comes back when there is something new to read: somebody was faster, the time is over, or a message came. */
async function park(deps: EngineDeps, turn: Turn, call: TurnCall, approvals: readonly Approval[]): Promise<void> {
  const requests = turn.openCalls
    .filter((open) => open.gate === "open")
    .map((open) => ({
      id: approvals.find((row) => row.callId === open.id)?.id ?? deps.newId(),
      call: open.id,
      hash: approvalHash(turn.run.id, open),
    }));
  const request = requests.find((row) => row.call === call.id);
  const { approvers, requesterMayApprove, expiresMs } = turn.agent.approvals;
  const parked = await parkForApproval(deps.db, {
    runId: turn.run.id,
    token: turn.lease.token,
    nonce: deps.newId(),
    callId: call.id,
    requests,
    approvers,
    requesterMayApprove,
    expiresMs,
    message: storable(message(request?.id ?? "", call)),
    seenSeq: turn.seenSeq,
  });
  turn.amendSeq = Math.max(turn.amendSeq, parked.amendSeq);
  switch (parked.kind) {
    case "decided":
    case "expired":
    case "newer_input":
      return;
    case "parked":
    case "already":
      turn.lease.letGo();
      throw new Left("waits for an approval");
    case "fenced":
    case "ended":
      throw new Left(parked.kind);
  }
}
