/** What a worker is made of. The composition root fills it; tests fill it with fakes of the ports only. */
import type { Database } from "#ledger/database.ts";
import type { afterFailure } from "#rules/retry.ts";
import type { Judge } from "./judge.ts";
import type { Clock, Credentials, ModelEndpoint, ModelPort, Outbound, Tool, ToolServers } from "./ports.ts";
import type { Redaction } from "./redaction.ts";
import type { Signals } from "./signals.ts";

export interface Log {
  info(fields: Readonly<Record<string, unknown>>, message: string): void;
  warn(fields: Readonly<Record<string, unknown>>, message: string): void;
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
}

export interface Meter {
  claimed(takeover: boolean): void;
  modelCall(outcome: string): void;
  effect(outcome: string): void;
  ended(status: string, reason: string): void;
}

export type EngineSettings = {
  /** Unique per process start; shows in the ledger as who holds a lease. */
  readonly owner: string;
  readonly leaseMs: number;
  readonly renewMs: number;
  /** Between two looks at a run that is held; absent = its constant. */
  readonly lookMs?: number;
  readonly sendMs: number;
  readonly settleSlackMs: number;
  readonly pollMs: number;
  readonly waitForPersonMs: number;
  readonly concurrency: number;
  /** Runs of the whole install at work at once; 0 or absent = what the workers take. */
  readonly maxRuns?: number;
  /** How long a closing call may take; absent = its constant. */
  readonly closingMs?: number;
  /** The key of the install's own default endpoint, used only towards exactly that endpoint. */
  readonly installModel?: { readonly baseURL: string; readonly apiKey: string };
  /** Answers typed questions for every agent; absent: each agent's own fast model does. */
  readonly decisionModel?: ModelEndpoint;
};

export type EngineDeps = {
  readonly db: Database;
  readonly model: ModelPort;
  /** Typed questions; absent: every answer is unsure. */
  readonly judge?: Judge;
  /** Tools by name, as the install offers them. */
  readonly tools: ReadonlyMap<string, Tool>;
  /** Servers elsewhere whose tools an Agent may name. */
  readonly servers: ToolServers;
  /** Where questions and notices are said. */
  readonly outbound: Outbound;
  /** Wrapped by `redaction`, so that what it finds is known there. */
  readonly credentials: Credentials;
  /** Takes secrets out of everything that is stored or logged. */
  readonly redaction: Redaction;
  readonly clock: Clock;
  /** 0 ≤ random < 1. */
  readonly random: () => number;
  readonly newId: () => string;
  readonly retry: typeof afterFailure;
  readonly settings: EngineSettings;
  readonly log: Log;
  readonly meter: Meter;
  /** Tells a holder at once that something was said to its run; absent: it finds out when it looks. */
  readonly signals?: Signals;
  /** May what people said here be told in other conversations of the agent? Unsure, or nobody to ask: no. */
  readonly sensitivity?: Judge["sensitivity"];
};
