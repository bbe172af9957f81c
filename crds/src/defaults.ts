/**
 * What an Agent means where it says nothing and the install says nothing either. These live in code, not in the
 * schema: a default in a CRD is written into every applied object and could never change again.
 */
export const AGENT_DEFAULTS = {
  modelTimeout: "2m",
  answerWithin: "24h",
  approvals: { requesterMayApprove: false, expiresAfter: "24h" },
  interrupt: {
    coalesceWindow: "2s",
    maxWait: "30s",
    maxCount: 20,
    adaptive: false,
    midTurn: "Enqueue",
    afterCommit: "Enqueue",
    maxSupersessions: 3,
    deadline: "10m",
  },
  budgets: {
    iterations: 50,
    modelCalls: 60,
    inputTokens: 4_000_000,
    outputTokens: 400_000,
    toolCalls: 200,
    wallClock: "1h",
  },
  concurrency: { maxRuns: 10, maxChildRuns: 5 },
  runs: { ttlSecondsAfterFinished: 86_400, historyLimit: 200, previews: "Answer" },
} as const;
