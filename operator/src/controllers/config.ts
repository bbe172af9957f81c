/** What an install tells its controllers. Read from the configuration by the composition root. */
import type { AgentModel, AgentSpec } from "@pawl/crds";

type Interrupt = NonNullable<AgentSpec["interrupt"]>;
type Budgets = NonNullable<AgentSpec["budgets"]>;

export type ControllerConfig = {
  /** Namespaces whose Agents are served; the chart has bound the credentials of exactly these. `*` = all. */
  readonly agentNamespaces: readonly string[] | "*";
  /** What an Agent means where it says nothing. */
  readonly defaults: {
    /** `decision` answers typed questions for every Agent; it is the install's alone and never part of an Agent. */
    readonly models?: { readonly primary?: AgentModel; readonly fast?: AgentModel; readonly decision?: AgentModel };
    readonly interrupt?: Interrupt;
    readonly budgets?: Budgets;
  };
  /** What no Agent may ask to exceed. */
  readonly ceilings?: Budgets;
  /** Runs of the whole install at work at once; 0 or absent = what the workers take. */
  readonly maxRuns?: number;
  /** This process, as Events and the leader row name it: the pod's name. */
  readonly instance: string;
  /** How a person reads a whole answer; the Run's name is appended. */
  readonly transcriptCommand?: string;
  /** Tests move these. */
  readonly timing?: Partial<Timing>;
};

/** All in milliseconds. */
export type Timing = {
  /** Between looks at what changed in the ledger. */
  readonly pollMs: number;
  /** Between looks at everything, whatever did or did not change. */
  readonly lookAtAllMs: number;
  /** Between two writes of a status in which only numbers changed. */
  readonly quietMs: number;
  /** Between sweeps for objects that are gone without anybody having seen it. */
  readonly sweepMs: number;
  /** Between the two looks that make an absence believed. */
  readonly absenceMs: number;
  /** A leader that is silent for this long is replaced. */
  readonly leaderMs: number;
  /** Another installation that does not answer for this long does not serve an Agent any more. */
  readonly takeoverMs: number;
};

export const TIMING: Timing = {
  pollMs: 500,
  lookAtAllMs: 180_000,
  quietMs: 5_000,
  sweepMs: 300_000,
  absenceMs: 30_000,
  leaderMs: 10_000,
  takeoverMs: 30_000,
};

export const TRANSCRIPT_COMMAND = "kubectl exec deploy/pawl-worker -- pawl transcript";

/** Which ledger, which cluster: as `claimLedger` answered. */
export type Install = { readonly kubeSystemUid: string; readonly bornAt: Date; readonly epoch: number };

export const isEnabled = (config: ControllerConfig, namespace: string): boolean =>
  config.agentNamespaces === "*" || config.agentNamespaces.includes(namespace);

export interface Log {
  info(fields: Readonly<Record<string, unknown>>, message: string): void;
  warn(fields: Readonly<Record<string, unknown>>, message: string): void;
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
}

export type ControllerName = "agent" | "run" | "decision";

/** Counters and gauges, named by what happened; absent = nobody counts. Must not throw. */
export interface ControllerMetrics {
  reconciled(controller: ControllerName, outcome: "ok" | "failed"): void;
  statusWritten(kind: "Agent" | "Run" | "Decision"): void;
  leader(held: boolean): void;
  sweep(result: "clean" | "cancelled" | "suspended", missing: number): void;
  watchMissed(resource: string, changes: number): void;
  queueDepth(controller: ControllerName, depth: number): void;
}
