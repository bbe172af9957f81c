/** The kinds of the API: names, columns and schemas, as data. */
import type { z } from "zod";
import { agentSpec, agentStatus } from "./agent.ts";
import { decisionSpec, decisionStatus } from "./decision.ts";
import type { Rule } from "./rules.ts";
import { ledgerStays, runSpec, runStatus } from "./run.ts";

export const GROUP = "pawl.dev";
export const VERSION = "v1alpha1";
export const API_VERSION = `${GROUP}/${VERSION}`;

export type Column = {
  readonly name: string;
  readonly type: "string" | "integer" | "number" | "date" | "boolean";
  readonly jsonPath: string;
  readonly description: string;
  /** Shown with `-o wide` only. */
  readonly wide?: true;
};

export type Kind = {
  readonly kind: string;
  readonly plural: string;
  readonly singular: string;
  readonly shortNames: readonly string[];
  readonly description: string;
  readonly spec: z.ZodObject;
  readonly status: z.ZodObject;
  /** Rules over spec and status together. */
  readonly rootRules: readonly Rule[];
  readonly columns: readonly Column[];
  /** Fields that `--field-selector` may name. */
  readonly selectable: readonly string[];
};

const column = (name: string, type: Column["type"], jsonPath: string, description: string): Column => ({
  name,
  type,
  jsonPath,
  description,
});
const wide = (name: string, type: Column["type"], jsonPath: string, description: string): Column => ({
  ...column(name, type, jsonPath, description),
  wide: true,
});

export const AGENT: Kind = {
  kind: "Agent",
  plural: "agents",
  singular: "agent",
  shortNames: ["ag"],
  description: "An agent that people talk to: its instructions, its model, its tools and its limits.",
  spec: agentSpec,
  status: agentStatus,
  rootRules: [],
  columns: [
    column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether it can work."),
    column("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "Why not, or Ready."),
    column("Model", "string", ".status.model", "The model in use."),
    column("Active", "integer", ".status.active", "Turns at work."),
    column("Queued", "integer", ".status.queued", "Turns that wait."),
    column("Age", "date", ".metadata.creationTimestamp", "Since when it exists."),
  ],
  selectable: [],
};

export const RUN: Kind = {
  kind: "Run",
  plural: "runs",
  singular: "run",
  shortNames: ["pawlrun"],
  description: "One message to an agent, from its acceptance to its answer.",
  spec: runSpec,
  status: runStatus,
  rootRules: [ledgerStays],
  columns: [
    column("Phase", "string", ".status.phase", "Where it stands."),
    column("Agent", "string", ".spec.agentRef.name", "The agent that is asked."),
    column("Shape", "string", ".status.shape", "One loop, or a graph."),
    column("Restartable", "string", ".status.boundary.restartable", "No: it has changed something outside."),
    column("Steps", "integer", ".status.usage.steps", "Steps so far."),
    column("Started", "date", ".status.startedAt", "When work began."),
    column("Took", "string", ".status.took", "How long it was at work."),
    column("Age", "date", ".metadata.creationTimestamp", "Since when it exists."),
    wide("Reason", "string", ".status.reason", "Why it stands there."),
    wide("Actor", "string", ".status.actor", "Who asked."),
    wide("Tokens", "integer", ".status.usage.tokens", "Tokens used."),
    wide("Cost", "number", ".status.usage.costUSD", "US dollars, where known."),
    wide("Pod", "string", ".status.workspace.pod", "Its sandbox."),
    wide("Parent", "string", ".status.parent", "The Run it is a part of."),
  ],
  selectable: [".spec.agentRef.name", ".status.phase"],
};

export const DECISION: Kind = {
  kind: "Decision",
  plural: "decisions",
  singular: "decision",
  shortNames: ["pawldecision"],
  description: "What a person says about a call that waits for him. Created once; it never changes.",
  spec: decisionSpec,
  status: decisionStatus,
  rootRules: [],
  columns: [
    column("Subject", "string", ".spec.subject.name", "What it is about."),
    column("Verdict", "string", ".spec.verdict", "What is said."),
    column("State", "string", ".status.state", "Whether it counts."),
    column("Actor", "string", ".spec.actor", "Who says it."),
    column("Age", "date", ".metadata.creationTimestamp", "Since when it exists."),
    wide("Reason", "string", ".status.reason", "Why it counts or not."),
    wide("Request", "string", ".spec.request", "The request that it is about."),
  ],
  selectable: [],
};

export const KINDS = [AGENT, RUN, DECISION] as const;
