/** `pawl transcript NAME`: the whole of a turn as text for a person, from rows. */
import { type Approval, readApprovals } from "#ledger/approvals.ts";
import { findRunByName } from "#ledger/mirrors.ts";
import type { Runner } from "#ledger/database.ts";
import { type RecordedCall, readRun, type RunRecord } from "#ledger/reads.ts";
import { PawlError } from "#rules/errors.ts";
import type { StoredResponse } from "#rules/transcript.ts";
import { plain } from "./plain.ts";

function approvalWords(approval: Approval | undefined): string {
  if (approval === undefined) return "";
  const at = approval.decidedAt === null ? "" : ` at ${approval.decidedAt.toISOString().slice(0, 19)}Z`;
  if (approval.state === "open") return `  [waits for an approval: request ${approval.id}]`;
  if (approval.state === "withdrawn") return `  [withdrawn for newer input, request ${approval.id}]`;
  return approval.state === "expired"
    ? `  [nobody approved it in time, request ${approval.id}]`
    : `  [${approval.state} by ${approval.decidedBy ?? ""}${at}, request ${approval.id}]`;
}

function callLines(call: RecordedCall, run: RunRecord, approvals: readonly Approval[]): string[] {
  const effect = run.effects.find((row) => row.callId === call.id);
  const journal =
    effect === undefined
      ? ""
      : `  [effect ${effect.id} ${effect.state}${effect.attempt > 1 ? `, sent ${effect.attempt} times` : ""}]`;
  return [
    `  > ${call.tool} ${JSON.stringify(call.args)}${journal}${approvalWords(approvals.find((row) => row.callId === call.id))}`,
    ...(call.result ?? "(no result yet)").split("\n").map((line) => `    ${line}`),
  ];
}

/** Pure: what a person reads. */
export function renderTranscript(run: RunRecord, approvals: readonly Approval[] = []): string {
  const lines = [`run ${run.id}  ${run.namespace}/${run.agentName}  ${run.status}`, ""];
  // A message stands where the model read it first; what it has not read yet comes last.
  const last = run.steps.at(-1)?.ordinal ?? 0;
  const said = (ordinal: number | null) => {
    for (const { actor, text, deliveredOrdinal: at } of run.triggers) {
      if ((at === null || at > last ? null : at) !== ordinal) continue;
      lines.push(`${actor}:`, ...text.split("\n").map((line) => `  ${line}`), "");
    }
  };
  for (const step of run.steps) {
    said(step.ordinal);
    const calls = run.calls.filter((call) => call.ordinal === step.ordinal);
    const answer = calls.find((call) => call.class === "reply");
    const text = (step.response as StoredResponse).text;
    if (answer === undefined) {
      lines.push(`step ${step.ordinal}${text === null || text === "" ? "" : `: ${text}`}`);
      for (const call of calls) lines.push(...callLines(call, run, approvals));
    } else {
      const sent = answer.outcome === "real" || run.replied;
      const reply = (answer.args as { text?: string }).text ?? text ?? "";
      lines.push(
        sent && answer.outcome !== "withheld" ? `${run.agentName}:` : `${run.agentName} (not sent):`,
        ...reply.split("\n").map((line) => `  ${line}`),
      );
    }
    lines.push("");
  }
  said(null);
  return plain(lines.join("\n"));
}

export async function transcriptOf(db: Runner, namespace: string, name: string): Promise<string> {
  const found = await findRunByName(db, namespace, name);
  if (found === null) {
    throw new PawlError(
      "terminal",
      "RunUnknown",
      `the ledger knows no Run ${namespace}/${name}; -n names another namespace`,
    );
  }
  if (found.runId === null)
    return `Run ${namespace}/${name} waits in its conversation's mailbox (${found.state}); it has no turn yet.\n`;
  return renderTranscript(await readRun(db, found.runId), await readApprovals(db, found.runId));
}
