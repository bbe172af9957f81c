/**
 * The run machine: the eight statuses of a turn and what moves it between them.
 *
 * Invariants (numbers as in docs/invariants.md): I4 a worker's write needs its lease · I7 a live run has a lease or a
 * time at which it is due, never both, a terminal run has neither.
 * A cell is a status (transition), `ignore` (a late duplicate of something true) or `refuse` (a stale caller).
 * The ledger repeats every cell in SQL; operator/test/ledger/machine.test.ts drives each one through both.
 */
export const LIVE = ["queued", "running", "awaiting_tool", "awaiting_input"] as const;
export const TERMINAL = ["succeeded", "failed", "cancelled", "budget_exhausted"] as const;
export type LiveStatus = (typeof LIVE)[number];
export type TerminalStatus = (typeof TERMINAL)[number];
export type RunStatus = LiveStatus | TerminalStatus;
export const STATUSES: readonly RunStatus[] = [...LIVE, ...TERMINAL];

export const isTerminal = (status: RunStatus): status is TerminalStatus =>
  (TERMINAL as readonly RunStatus[]).includes(status);

export const RUN_EVENTS = [
  "claim", // a worker takes a due run, or one whose lease lapsed
  "respond", // a response without open calls was committed
  "call", // a response with open calls was committed
  "collect", // the last open call got its result
  "release", // the worker gives the lease back, to be due later
  "park", // a call waits for a person: the lease is given back until he decides or his time is over
  "ask", // a question waits for anybody's answer: the lease is given back until there is one or its time is over
  "answer", // somebody answers it
  "expire", // nobody has: a worker takes the run to say so
  "succeed",
  "fail",
  "cancel", // the worker ends a stopped turn
  "exhaust",
  "stop", // a person asks for the end; before the boundary this is the end
] as const;
export type RunEvent = (typeof RUN_EVENTS)[number];
export type RunCell = RunStatus | "ignore" | "refuse";

const ended = (self: TerminalStatus): Record<RunEvent, RunCell> => ({
  claim: "refuse",
  respond: "refuse",
  call: "refuse",
  collect: "refuse",
  release: "refuse",
  park: "refuse",
  ask: "refuse",
  answer: "refuse",
  expire: "refuse",
  succeed: self === "succeeded" ? "ignore" : "refuse",
  fail: self === "failed" ? "ignore" : "refuse",
  cancel: self === "cancelled" ? "ignore" : "refuse",
  exhaust: self === "budget_exhausted" ? "ignore" : "refuse",
  stop: "ignore",
});

export const RUN_MACHINE = {
  queued: {
    claim: "running",
    respond: "refuse",
    call: "refuse",
    collect: "refuse",
    release: "refuse",
    park: "refuse",
    ask: "refuse",
    answer: "refuse",
    expire: "refuse",
    succeed: "refuse",
    fail: "refuse",
    cancel: "refuse",
    exhaust: "refuse",
    stop: "cancelled",
  },
  running: {
    claim: "running",
    respond: "running",
    call: "awaiting_tool",
    collect: "running",
    release: "running",
    park: "awaiting_tool",
    ask: "awaiting_input",
    answer: "refuse",
    expire: "refuse",
    succeed: "succeeded",
    fail: "failed",
    cancel: "cancelled",
    exhaust: "budget_exhausted",
    stop: "cancelled",
  },
  awaiting_tool: {
    claim: "running",
    respond: "running",
    call: "awaiting_tool",
    collect: "running",
    release: "awaiting_tool",
    park: "awaiting_tool",
    ask: "awaiting_input",
    answer: "refuse",
    expire: "refuse",
    succeed: "succeeded",
    fail: "failed",
    cancel: "cancelled",
    exhaust: "budget_exhausted",
    stop: "cancelled",
  },
  awaiting_input: {
    claim: "refuse",
    respond: "refuse",
    call: "refuse",
    collect: "refuse",
    release: "refuse",
    park: "refuse",
    ask: "refuse",
    answer: "running",
    expire: "running",
    succeed: "refuse",
    fail: "refuse",
    cancel: "refuse",
    exhaust: "refuse",
    stop: "cancelled",
  },
  succeeded: ended("succeeded"),
  failed: ended("failed"),
  cancelled: ended("cancelled"),
  budget_exhausted: ended("budget_exhausted"),
} as const satisfies Record<RunStatus, Record<RunEvent, RunCell>>;
