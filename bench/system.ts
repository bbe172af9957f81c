/** What a measured system is to a benchmark: opened once in a process of its own, then asked for one run at a time. */

export type Workload = {
  /** Of one run, each a quick in-process tool with a result of `bytes` characters. */
  readonly steps: number;
  readonly bytes: number;
  /** > 0 instead: one response with so many effectful calls (Pawl alone keeps a journal of them). */
  readonly effects: number;
};

export interface System {
  /** `url`: an empty database of its own. */
  open(url: string): Promise<void>;
  /** Calls `step` once per step, from inside the system's own tool or step function, and keeps what it gives. */
  run(workload: Workload, step: () => Promise<string>): Promise<void>;
  close(): Promise<void>;
}

export const SYSTEMS = ["pawl", "dbos", "absurd", "langgraph", "langgraph-delta"] as const;
export type SystemName = (typeof SYSTEMS)[number];

/** Between the first and the last step of one run: what `steps - 1` whole steps cost. */
export type Measured = {
  readonly steps: number;
  /** Milliseconds from one step to the next. */
  readonly gaps: readonly number[];
  /** Queries that the driver sent, per step. */
  readonly roundTrips: number;
  /** Transactions that wrote, per step (ids that the server gave out). */
  readonly commits: number;
  /** Bytes of write-ahead log, per step, without images of whole pages. */
  readonly wal: number;
  /** The run was given up at its time limit; the figures are of the steps until then. */
  readonly cut: boolean;
};

export type Order = Workload & { readonly limitMs: number };
/** What a system's process says, whatever the benchmark. */
export type Answer<M> =
  | { readonly kind: "ready" }
  | { readonly kind: "unavailable"; readonly why: string }
  | { readonly kind: "measured"; readonly measured: M };
