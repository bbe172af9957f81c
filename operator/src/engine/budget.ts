/** What a turn may use, and whether it has: looked at at each decision point (docs/budgets.md). */
import { CLOSING_OUTPUT_TOKENS } from "#rules/limits.ts";
import { costMicros, estimatedTokens, type Used } from "#rules/money.ts";
import type { ModelRequest, ModelUsage } from "./ports.ts";
import type { Turn } from "./turn.ts";

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;
const span = (ms: number): string =>
  ms < 120_000 ? `${Math.ceil(ms / 1_000)} s of work` : `${Math.round(ms / 60_000)} min of work`;

/** One model call is held back for the closing message; a run that may make a single one uses it for its work. */
export const workingCalls = (modelCalls: number): number => Math.max(1, modelCalls - 1);

/** The limit that this turn has used up, in words; null: it may go on. */
export function exhaustedBudget(turn: Turn): string | null {
  const { budgets } = turn.agent;
  if (turn.ownSteps.length >= budgets.iterations) return counted(budgets.iterations, "iteration");
  if (turn.modelCalls >= workingCalls(budgets.modelCalls)) return counted(budgets.modelCalls, "model call");
  // With its calls used up a turn may still answer; only one that asks for more is over (those calls were rejected).
  if (turn.toolCalls > budgets.toolCalls) return counted(budgets.toolCalls, "tool call");
  if (turn.inputTokens >= budgets.inputTokens) return counted(budgets.inputTokens, "input token");
  if (turn.outputTokens >= budgets.outputTokens) return counted(budgets.outputTokens, "output token");
  if (turn.spentMicros >= budgets.costMicros) return `${budgets.costMicros / 1_000_000} US dollars`;
  if (turn.work.isOver) return span(budgets.wallClockMs);
  return null;
}

const charactersOf = ({ messages, tools }: Pick<ModelRequest, "messages" | "tools">): number =>
  JSON.stringify(messages).length + JSON.stringify(tools).length;

/** Whether what is left pays for this request and a short answer. */
export function pays(turn: Turn, request: ModelRequest): boolean {
  const { budgets } = turn.agent;
  const inputTokens = estimatedTokens(charactersOf(request));
  const cost = costMicros({ inputTokens, outputTokens: CLOSING_OUTPUT_TOKENS }, request.endpoint.prices) ?? 0;
  return (
    turn.modelCalls < budgets.modelCalls &&
    turn.inputTokens + inputTokens <= budgets.inputTokens &&
    turn.outputTokens + CLOSING_OUTPUT_TOKENS <= budgets.outputTokens &&
    turn.spentMicros + cost <= budgets.costMicros
  );
}

export type Cost = { readonly costMicros: number | null; readonly spentMicros: number };
export const NO_COST: Cost = { costMicros: 0, spentMicros: 0 };

/** Of an endpoint that names no usage the limit counts an estimate; what is shown stays unknown. */
export function costOf(request: ModelRequest, usage: ModelUsage | null, answer: () => string): Cost {
  const { prices } = request.endpoint;
  const cost = costMicros(usage, prices);
  if (cost !== null) return { costMicros: cost, spentMicros: cost };
  // Reading a whole request costs more than the rest of a step: only where money is counted.
  if (prices === undefined) return { costMicros: null, spentMicros: 0 };
  const estimate: Used = {
    inputTokens: estimatedTokens(charactersOf(request)),
    outputTokens: estimatedTokens(answer().length),
  };
  return { costMicros: null, spentMicros: costMicros(estimate, prices) ?? 0 };
}
