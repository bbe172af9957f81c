/**
 * From a model's response to the rows of its calls. Nothing runs here but tools marked `quick`, and of those only a
 * prefix: they share the response's commit. Content decides, not `finish_reason`; a response that was cut at the output
 * limit runs none of its calls; arguments are never repaired.
 */
import type { CallRow } from "#ledger/steps.ts";
import { EFFECTS, type EffectKind } from "#rules/effects.ts";
import { matchesAny } from "#rules/globs.ts";
import {
  MAX_ARGUMENTS,
  MAX_CALLS_PER_RESPONSE,
  MAX_NAME,
  MAX_REJECTED_ARGUMENTS,
  MAX_RESPONSE_TEXT,
  MAX_RESULT,
} from "#rules/limits.ts";
import { bounded, head, storable } from "#rules/text.ts";
import { callName } from "#rules/transcript.ts";
import { boundedTarget, readArguments } from "./arguments.ts";
import { canonicalHash } from "./canonical.ts";
import { asksPeople } from "./builtin/ask.ts";
import { ownKind } from "./own-store.ts";
import type { CallRun, ModelCall, ModelOutcome, ModelUsage, Tool } from "./ports.ts";
import { provenanceOf } from "./provenance.ts";
import type { Redaction } from "./redaction.ts";

export type Response = Extract<ModelOutcome, { kind: "response" }>;
/**
 * A response as it may be stored. `asked`: how many calls there were before the rest was dropped. `credential`: the
 * arguments held one, and what is here is no longer what was said.
 */
export type Taken = Omit<Response, "calls"> & {
  readonly calls: readonly (ModelCall & { readonly credential: boolean })[];
  readonly asked: number;
};
export type CallContext = {
  readonly tools: ReadonlyMap<string, Tool>;
  /** Tools that the agent has and that may not be used where this run answers. */
  readonly withheld: (tool: string) => boolean;
  /** Globs over tools whose calls wait for a person. */
  readonly requireApproval: readonly string[];
  readonly newId: () => string;
  readonly run: CallRun;
  /** Calls that the run's budget still has room for. */
  readonly room: number;
};

const count = (tokens: number): number =>
  Number.isFinite(tokens) ? Math.min(Math.max(0, Math.trunc(tokens)), 2 ** 31 - 1) : 0;

export function usageOf(usage: ModelUsage | null): ModelUsage | null {
  if (usage === null) return null;
  const { inputTokens, outputTokens, cachedInputTokens: cached } = usage;
  const counted = { inputTokens: count(inputTokens), outputTokens: count(outputTokens) };
  return cached === undefined
    ? counted
    : { ...counted, cachedInputTokens: Math.min(count(cached), count(inputTokens)) };
}

/**
 * What a model says is bounded and storable before anything is made of it, so that a run that goes on in memory and
 * one that is read back build the same request. Of too many calls one is kept to say so: it answers for the rest.
 */
export function takeIn(response: Response, redaction: Redaction): Taken {
  const safe = (text: string): string => redaction.text(storable(text));
  return {
    ...response,
    text: response.text === null ? null : bounded(safe(response.text), MAX_RESPONSE_TEXT),
    calls: response.calls.slice(0, MAX_CALLS_PER_RESPONSE + 1).map((call) => ({
      providerId: head(safe(call.providerId), MAX_NAME),
      name: head(safe(call.name), MAX_NAME),
      // As it came, but for credentials: whether it can be used is decided on what was really said.
      ...withoutCredentials(call.argumentsText, redaction),
    })),
    asked: response.calls.length,
    usage: usageOf(response.usage),
    finishReason: response.finishReason === null ? null : head(safe(response.finishReason), MAX_NAME),
  };
}

/** A value may hide behind escapes that only parsing takes away; then what parsing finds is what is kept. */
function withoutCredentials(text: string, redaction: Redaction): { argumentsText: string; credential: boolean } {
  const parsed = readArguments(text);
  if (parsed.ok && redaction.holds(parsed.value)) {
    return { argumentsText: redaction.text(JSON.stringify(redaction.json(parsed.value))), credential: true };
  }
  const argumentsText = redaction.text(text);
  return { argumentsText, credential: argumentsText !== text };
}

/** What a step keeps of a call: arguments that were too long to be looked at are not stored whole either. */
export const storedCall = ({ name, argumentsText }: ModelCall): { name: string; argumentsText: string } => ({
  name,
  argumentsText:
    argumentsText.length > MAX_ARGUMENTS ? bounded(argumentsText, MAX_REJECTED_ARGUMENTS) : storable(argumentsText),
});

type Judged = { tool: Tool; args: Readonly<Record<string, unknown>>; kind: EffectKind } | { refusal: string };

function judge(call: Taken["calls"][number], idx: number, response: Taken, context: CallContext): Judged {
  if (idx >= MAX_CALLS_PER_RESPONSE) {
    return {
      refusal: `Not run: one response may ask for ${MAX_CALLS_PER_RESPONSE} calls at most, this one asked for ${response.asked}. Calls from number ${idx + 1} on were dropped.`,
    };
  }
  if (idx >= context.room) return { refusal: "Not run: this run has used up the tool calls that it is allowed." };
  if (response.truncated) {
    return {
      refusal:
        "Not run: your response was cut at the output limit, so its arguments may be incomplete. Ask again, shorter.",
    };
  }
  const tool = context.tools.get(call.name);
  if (tool === undefined && context.withheld(call.name)) {
    return { refusal: `Not run: ${callName(call.name)} may not be used in this place.` };
  }
  if (tool === undefined) {
    const known = [...context.tools.keys()].sort().join(", ");
    return {
      refusal: `Not run: there is no tool "${callName(call.name)}". ${known === "" ? "You have no tools." : `You have: ${known}.`}`,
    };
  }
  // Before anything looks at the arguments: what is stored must be what runs, so they are not run altered either.
  if (call.credential) {
    return {
      refusal:
        "Not run: the arguments contain a credential. Credentials belong to the Agent, never to what a model says: leave it out, tools bring their own.",
    };
  }
  const args = readArguments(call.argumentsText);
  if (!args.ok) return { refusal: args.refusal };
  const parsed = tool.parse(args.value);
  if (!parsed.ok) return { refusal: bounded(`Not run: ${parsed.message}`, MAX_RESULT) };
  return {
    tool,
    args: parsed.value,
    kind: ownKind(tool, parsed.value),
  };
}

function rejected(call: ModelCall, idx: number, refusal: string, newId: () => string): CallRow {
  const args = { text: bounded(call.argumentsText, MAX_REJECTED_ARGUMENTS) };
  return {
    id: newId(),
    idx,
    providerId: call.providerId === "" ? null : call.providerId,
    tool: call.name,
    class: "effectful",
    kind: "tool.effect",
    args,
    argsHash: canonicalHash({ tool: call.name, args }),
    target: null,
    outcome: "rejected",
    result: refusal,
  };
}

/** To ask a person nobody has to be asked. */
function gateOf(tool: Tool, requireApproval: readonly string[]): "open" | "none" {
  if (asksPeople(tool)) return "none";
  return [tool.name, ...(tool.standsFor ?? [])].some((name) => matchesAny(requireApproval, name)) ? "open" : "none";
}

/** The journal's classes; what is additive never comes from a model's response here. */
function accepted(
  call: ModelCall,
  idx: number,
  judged: Exclude<Judged, { refusal: string }>,
  { newId, requireApproval }: CallContext,
): CallRow {
  const effectClass = EFFECTS[judged.kind].class;
  const changes = effectClass !== "pure" && effectClass !== "internal_durable";
  return {
    id: newId(),
    idx,
    providerId: call.providerId === "" ? null : call.providerId,
    tool: judged.tool.name,
    class: effectClass === "additive" ? "effectful" : effectClass,
    kind: judged.kind,
    args: judged.args,
    argsHash: canonicalHash({ tool: judged.tool.name, args: judged.args }),
    target: changes ? boundedTarget(judged.tool.target(judged.args)) : null,
    gate: gateOf(judged.tool, requireApproval),
    outcome: null,
    result: null,
  };
}

/** A tool that cannot cope with arguments that it let through is a bug of ours; the run goes on without that call. */
function rowOf(
  call: Taken["calls"][number],
  idx: number,
  response: Taken,
  context: CallContext,
): { row: CallRow; tool?: Tool } {
  try {
    const judged = judge(call, idx, response, context);
    if ("refusal" in judged) return { row: rejected(call, idx, judged.refusal, context.newId) };
    return { row: accepted(call, idx, judged, context), tool: judged.tool };
  } catch {
    const refusal = `Not run: ${callName(call.name)} could not make anything of these arguments.`;
    return { row: rejected(call, idx, refusal, context.newId) };
  }
}

/** An answer that was cut is still the answer, and says so. */
const CUT = "\n\n[This answer was cut at the model's output limit.]";

/** Rows in order; the quick prefix already has its results. A text without calls is the call `reply`. */
export async function planCalls(response: Taken, context: CallContext): Promise<CallRow[]> {
  const rows: CallRow[] = [];
  let prefix = true;
  for (const [idx, call] of response.calls.entries()) {
    const { row, tool } = rowOf(call, idx, response, context);
    if (tool === undefined) {
      rows.push(row);
      continue;
    }
    prefix &&= tool.quick && row.class === "pure" && row.gate !== "open";
    if (!prefix) {
      rows.push(row);
      continue;
    }
    const outcome = await tool.execute(row.args as Readonly<Record<string, unknown>>, {
      run: context.run,
      signal: new AbortController().signal,
      timeLimitMs: tool.timeLimitMs,
    });
    rows.push({
      ...row,
      outcome: "real",
      result: bounded(outcome.observation, MAX_RESULT),
      ...provenanceOf(tool, row, outcome, context),
    });
  }
  if (rows.length === 0 && response.text !== null && response.text.trim() !== "")
    rows.push(replyCall(response.truncated ? `${response.text}${CUT}` : response.text, context.newId));
  return rows;
}

export function replyCall(text: string, newId: () => string): CallRow {
  const args = { text };
  return {
    id: newId(),
    idx: 0,
    providerId: null,
    tool: "reply",
    class: "reply",
    kind: "reply",
    args,
    argsHash: canonicalHash({ tool: "reply", args }),
    target: "reply",
    outcome: null,
    result: null,
  };
}
