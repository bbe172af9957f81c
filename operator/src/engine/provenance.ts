/** Provenance of a turn: the evidence that a result leaves, and what a reply may not be built on. */
import type { Provenance } from "#ledger/evidence.ts";
import type { CallResult, CallRow } from "#ledger/steps.ts";
import { barred, DEFAULT_AUDIENCE, type Evidence, MAX_SOURCE, narrower, sourcesOf } from "#rules/provenance.ts";
import { head, storable } from "#rules/text.ts";
import type { StoredResponse } from "#rules/transcript.ts";
import type { CallRun, Tool, ToolOutcome } from "./ports.ts";
import type { Turn, TurnCall } from "./turn.ts";

type Asked = Pick<CallRow, "tool" | "args">;
type Answering = Pick<Tool, "name" | "source" | "audience">;

/** Where a result of this call comes from; undefined: from within. A tool that cannot say is named itself. */
export function sourceOf(tool: Answering, { args }: Asked, run: CallRun, newId: () => string): Evidence | undefined {
  if (tool.source === undefined) return undefined;
  let said = "";
  try {
    said = head(storable(tool.source(args as Readonly<Record<string, unknown>>).trim()), MAX_SOURCE);
  } catch {
    // Evidence must not be missing because its name is.
  }
  return {
    id: newId(),
    source: said === "" ? tool.name : said,
    audience: tool.audience ?? DEFAULT_AUDIENCE,
    agentId: run.agentId,
    conversationId: run.conversationId,
  };
}

/** Of a quick call, which is stored with its response. */
export function provenanceOf(
  tool: Tool,
  call: Asked,
  outcome: ToolOutcome,
  { run, newId }: { readonly run: CallRun; readonly newId: () => string },
): Provenance {
  const source = sourceOf(tool, call, run, newId);
  return { ...(source === undefined ? {} : { source }), ...restsOn(outcome) };
}

export const restsOn = (outcome: ToolOutcome): Provenance =>
  outcome.kind === "confirmed" && outcome.restsOn !== undefined ? { restsOn: outcome.restsOn } : {};

/** The result with its evidence, when the outside has answered or may have. */
export function sourced(turn: Turn, result: CallResult, newId: () => string): CallResult {
  if (result.source !== undefined || (result.outcome !== "real" && result.outcome !== "unknown")) return result;
  const call = turn.calls.find(({ id }) => id === result.id);
  if (call === undefined) return result;
  const source = sourceOf(answering(turn, call), call, turn.callRun, newId);
  return source === undefined ? result : { ...result, source };
}

/** The tool whose words a result is, with the audience of the tool that may have looked for it. */
function answering({ tools, toolset, effects }: Turn, call: TurnCall): Answering {
  const tool = tools.get(call.tool) ?? toolset.all.get(call.tool);
  if (tool === undefined) {
    // It is gone, and what its effect's row holds came from outside all the same.
    const left = effects.some(({ callId }) => callId === call.id);
    return left ? { name: call.tool, source: () => call.tool } : { name: call.tool };
  }
  const probe = tool.probe === undefined ? undefined : toolset.all.get(tool.probe.tool);
  if (probe === undefined || tool.source === undefined) return tool;
  const audience = narrower(tool.audience ?? DEFAULT_AUDIENCE, probe.audience ?? DEFAULT_AUDIENCE);
  return { name: tool.name, source: (args) => tool.source?.(args) ?? tool.name, audience };
}

/** How the reason of a withheld answer begins; the transcript puts it after "That answer was". */
const BARRED = "not sent: it was built on a source that may not be shown in this conversation";
/** Sources named in one sentence. */
export const MAX_NAMED = 5;
/** Answers withheld for their sources before the run ends: the model cannot unsee them, one may not have been meant. */
export const MAX_BARRED = 2;

/** Why an answer may not be shown here; null: it may. Pawl's own closing words are built on nothing from outside. */
export function whyBarred(turn: Turn, step: Pick<StoredResponse, "closing">): string | null {
  const sources = sourcesOf(barred(basis(turn, step), turn.callRun));
  if (sources.length === 0) return null;
  return `${BARRED} (${sources.slice(0, MAX_NAMED).join(", ")}); answer without it, or say that you cannot`;
}

/** What an answer was built on: all that the run has seen. */
export const basis = (turn: Turn, step: Pick<StoredResponse, "closing">): Evidence[] =>
  step.closing === undefined ? turn.evidence : [];

/** The response whose answer this is. */
export const stepOf = (turn: Turn, callId: string): Pick<StoredResponse, "closing"> => {
  const ordinal = turn.calls.find(({ id }) => id === callId)?.ordinal;
  return turn.steps.find((step) => step.ordinal === ordinal)?.response ?? {};
};

export const timesBarred = (turn: Turn): number =>
  turn.calls.filter(
    ({ ordinal, outcome, result }) =>
      ordinal > turn.run.continuedThrough && outcome === "withheld" && result?.startsWith(BARRED) === true,
  ).length;
