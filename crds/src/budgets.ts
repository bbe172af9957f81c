/** Budgets of one request; on a Run they can only lower those of its Agent. */
import { count, decimal, duration, int, NOT_YET, object } from "./fields.ts";

export const budgets = (description: string) =>
  object(description, {
    iterations: int(1, 100_000, "Rounds of the loop: a model call and what it asks for.").optional(),
    modelCalls: int(1, 100_000, "Model calls.").optional(),
    inputTokens: count("Tokens sent to models.").optional(),
    outputTokens: count("Tokens received from models.").optional(),
    toolCalls: int(0, 100_000, "Tool calls.").optional(),
    wallClock: duration("Time at work; waiting in the queue, for people or for an endpoint does not count.").optional(),
    workspaceSeconds: int(0, 31_536_000, `Seconds with a sandbox. ${NOT_YET}`).optional(),
    maxCostUSD: decimal(
      1_000_000,
      "US dollars. Needs models.primary.pricesUSDPerMTok, from the Agent or the install.",
    ).optional(),
  });
