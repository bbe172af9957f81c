/**
 * From a model's response to the rows of its calls. Nothing runs here but tools marked `quick`, and of those only a
 * prefix: they share the response's commit. Content decides, not `finish_reason`; a response that was cut at the output
 * limit runs none of its calls; arguments are never repaired.
 */
import type { CallRow } from "#ledger/steps.ts";
import { EFFECTS, effectKind, type EffectKind } from "#rules/effects.ts";
import { MAX_CALLS_PER_RESPONSE } from "#rules/limits.ts";
import { callName } from "#rules/transcript.ts";
import { canonicalHash } from "./canonical.ts";
import type { EffectDeclaration, ModelCall, ModelOutcome, Tool } from "./ports.ts";

export type Response = Extract<ModelOutcome, { kind: "response" }>;
export type CallContext = {
  readonly tools: ReadonlyMap<string, Tool>;
  readonly effects: readonly EffectDeclaration[];
  readonly newId: () => string;
};

type Judged = { tool: Tool; args: Readonly<Record<string, unknown>>; kind: EffectKind } | { refusal: string };

/** What the Agent wrote about a tool, if anything. */
export const declaration = (effects: readonly EffectDeclaration[], tool: string): EffectDeclaration | undefined =>
  effects.find((effect) => effect.tool === tool);

/** The platform team's written word wins over the tool's own; an unknown word is a change. */
function kindOf(tool: Tool, args: Readonly<Record<string, unknown>>, context: CallContext): EffectKind {
  const declared = declaration(context.effects, tool.name)?.effect;
  const own = tool.effect(args);
  if (declared === undefined) return own;
  const kind = effectKind(declared);
  // Lowering to an internal class is impossible from outside.
  return EFFECTS[kind].class === "internal_durable" ? own : kind;
}

function judge(call: ModelCall, response: Response, context: CallContext): Judged {
  if (response.truncated) {
    return {
      refusal:
        "Not run: your response was cut at the output limit, so its arguments may be incomplete. Ask again, shorter.",
    };
  }
  const tool = context.tools.get(call.name);
  if (tool === undefined) {
    const known = [...context.tools.keys()].sort().join(", ");
    return {
      refusal: `Not run: there is no tool "${callName(call.name)}". ${known === "" ? "You have no tools." : `You have: ${known}.`}`,
    };
  }
  let args: unknown;
  try {
    args = call.argumentsText.trim() === "" ? {} : JSON.parse(call.argumentsText);
  } catch {
    return { refusal: "Not run: the arguments are not valid JSON. Send the call again with complete arguments." };
  }
  const parsed = tool.parse(args);
  if (!parsed.ok) return { refusal: `Not run: ${parsed.message}` };
  return { tool, args: parsed.value, kind: kindOf(tool, parsed.value, context) };
}

function rejected(call: ModelCall, idx: number, refusal: string, newId: () => string): CallRow {
  const args = { text: call.argumentsText.slice(0, 2_000) };
  return {
    id: newId(),
    idx,
    providerId: call.providerId === "" ? null : call.providerId,
    tool: call.name.slice(0, 128),
    class: "effectful",
    kind: "tool.effect",
    args,
    argsHash: canonicalHash({ tool: call.name, args }),
    target: null,
    outcome: "rejected",
    result: refusal,
  };
}

/** The journal's classes; what is additive or a harness call never comes from a model's response here. */
function accepted(
  call: ModelCall,
  idx: number,
  judged: Exclude<Judged, { refusal: string }>,
  newId: () => string,
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
    target: changes ? judged.tool.target(judged.args) : null,
    outcome: null,
    result: null,
  };
}

/** Rows in order; the quick prefix already has its results. A text without calls is the call `reply`. */
export async function planCalls(response: Response, context: CallContext): Promise<CallRow[]> {
  const rows: CallRow[] = [];
  let prefix = true;
  for (const [idx, call] of response.calls.entries()) {
    const judged: Judged =
      idx < MAX_CALLS_PER_RESPONSE
        ? judge(call, response, context)
        : { refusal: `Not run: one response may ask for ${MAX_CALLS_PER_RESPONSE} calls at most.` };
    if ("refusal" in judged) {
      rows.push(rejected(call, idx, judged.refusal, context.newId));
      continue;
    }
    const row = accepted(call, idx, judged, context.newId);
    prefix &&= judged.tool.quick && row.class === "pure";
    if (!prefix) {
      rows.push(row);
      continue;
    }
    const outcome = await judged.tool.execute(judged.args, {
      signal: new AbortController().signal,
      timeLimitMs: judged.tool.timeLimitMs,
    });
    rows.push({ ...row, outcome: "real", result: outcome.observation });
  }
  if (rows.length === 0 && response.text !== null && response.text.trim() !== "")
    rows.push(replyCall(response.text, context.newId));
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
