/**
 * The words of `status`: phases, condition types and the reasons a person may read. The sets are closed but for the
 * reason of `Succeeded`, where the ledger's reason for an ending (`ModelUnauthorized`, …) passes through as it is.
 */
export const AGENT_CONDITIONS = ["Accepted", "ResolvedRefs", "EgressEnforced", "Ready"] as const;
export type AgentConditionType = (typeof AGENT_CONDITIONS)[number];

export const RUN_CONDITIONS = [
  "Accepted",
  "Committed",
  "WaitingForHuman",
  "Isolated",
  "Finished",
  "Succeeded",
] as const;
export type RunConditionType = (typeof RUN_CONDITIONS)[number];

export const RUN_PHASES = [
  "Queued",
  "Running",
  "AwaitingTool",
  "AwaitingInput",
  "Succeeded",
  "Failed",
  "Cancelled",
  "BudgetExhausted",
  "Folded",
] as const;
export type RunPhase = (typeof RUN_PHASES)[number];

/** Phases in which nothing more happens. `Folded` is not one: another run still answers the message. */
export const FINAL_PHASES = [
  "Succeeded",
  "Failed",
  "Cancelled",
  "BudgetExhausted",
] as const satisfies readonly RunPhase[];

export const isFinalPhase = (phase: RunPhase | undefined): boolean =>
  (FINAL_PHASES as readonly (RunPhase | undefined)[]).includes(phase);

/** Why an Agent stands as it does, by condition. */
export const AGENT_REASONS = {
  Accepted: [
    "Accepted",
    "Suspended",
    "Invalid",
    "NamespaceNotEnabled",
    "NotSupportedYet",
    "InterruptPolicyMissing",
    "OverCeiling",
    "OtherInstallation",
    "PoliciesMissing",
  ],
  ResolvedRefs: [
    "Resolved",
    "Unchecked",
    "ModelMissing",
    "FastModelMissing",
    "PricesMissing",
    "SecretMissing",
    "SecretRefused",
    "ToolUnknown",
    "KeyUnknown",
    "ProbeNotQuery",
    "StateNotQuery",
    "StateUnused",
    "ProbeFindsAnything",
    "McpServerUnreachable",
    "McpServerInvalid",
    "RouteUnbound",
  ],
  EgressEnforced: ["Enforced", "NotNeeded", "Unproven", "ForeignPolicy"],
  Ready: ["Ready", "NotAccepted", "RefsNotResolved", "EgressNotEnforced", "Suspended"],
} as const satisfies Record<AgentConditionType, readonly string[]>;
export type AgentReason<T extends AgentConditionType = AgentConditionType> = (typeof AGENT_REASONS)[T][number];

/** Why a Run stands as it does, by condition. */
export const RUN_REASONS = {
  Accepted: [
    "Accepted",
    "Pending",
    "Replayed",
    "KeyReused",
    "OlderThanInstallation",
    "AgentNotFound",
    "AgentNotAccepted",
    "AgentNotReady",
    "ActorMissing",
    "StatusNotEmpty",
    "Invalid",
    "NotSupportedYet",
    "NamespaceNotEnabled",
    "OtherInstallation",
    "PoliciesMissing",
  ],
  Committed: ["EffectCommitted", "NothingCommitted"],
  WaitingForHuman: ["Question", "Approval", "Gate", "NotWaiting"],
  Isolated: ["Proven", "NoWorkspace", "Unproven", "Failed"],
  Finished: ["Finished", "Working", "NotAccepted"],
  Succeeded: [
    "Answered",
    "Working",
    "Failed",
    "Cancelled",
    "BudgetExhausted",
    "NotAccepted",
    "ReplyUnknown",
    "EffectUnknown",
    "LedgerLost",
    "Withdrawn",
  ],
} as const satisfies Record<RunConditionType, readonly string[]>;
export type RunReason<T extends RunConditionType = RunConditionType> = (typeof RUN_REASONS)[T][number];

/** What became of a Decision. */
export const DECISION_STATES = ["Applied", "Late", "Refused"] as const;
export type DecisionState = (typeof DECISION_STATES)[number];

/** Why, by state. */
export const DECISION_REASONS = {
  Applied: ["Approved", "Rejected", "Answered", "Landed", "NotLanded"],
  Late: ["AlreadyDecided", "AlreadyAnswered", "Expired", "Withdrawn", "TurnEnded", "AlreadySettled"],
  Refused: [
    "HashDiffers",
    "RequesterMayNotApprove",
    "NotAnApprover",
    "RequestNotFound",
    "RunNotFound",
    "OtherRun",
    "ActorMissing",
    "Invalid",
    "TooEarly",
    "NotYet",
  ],
} as const satisfies Record<DecisionState, readonly string[]>;
export type DecisionReason = (typeof DECISION_REASONS)[DecisionState][number];

/** Where the last word of a Run came from. */
export const RUN_ORIGINS = ["Applied", "Chat", "HTTP", "Child"] as const;
export type RunOrigin = (typeof RUN_ORIGINS)[number];
