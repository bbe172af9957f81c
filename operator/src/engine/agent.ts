/** What the engine reads of an Agent's stored spec. The controller validated it; this only names what is used here. */
import { z } from "zod";
import {
  ANSWER_WITHIN_MS,
  APPROVAL_EXPIRES_MS,
  DEFAULT_CONTEXT_TOKENS,
  DEFAULT_ITERATIONS,
  DEFAULT_MODEL_CALLS,
  DEFAULT_TOOL_CALLS,
  DEFAULT_WALL_CLOCK_MS,
  MAX_WAIT_FOR_PERSON_MS,
} from "#rules/limits.ts";
import { durationMs } from "#rules/duration.ts";
import { PawlError } from "#rules/errors.ts";
import { policyOf } from "#rules/interrupt.ts";
import { toMicros } from "#rules/money.ts";
import type { PlaceRule } from "#rules/place.ts";
import type { Approvers } from "#ledger/approvals.ts";
import type { EffectDeclaration, ModelEndpoint, ServerSpec, StateDeclaration } from "./ports.ts";

const secretRef = z.object({ name: z.string(), key: z.string() });
const endpoint = z.object({
  baseURL: z.string(),
  model: z.string(),
  apiKeySecretRef: secretRef.optional(),
  contextTokens: z.number().optional(),
  maxOutputTokens: z.number().optional(),
  timeout: z.string().optional(),
  pricesUSDPerMTok: z.object({ input: z.number(), cachedInput: z.number().optional(), output: z.number() }).optional(),
});
const budgets = z.object({
  iterations: z.number().optional(),
  modelCalls: z.number().optional(),
  toolCalls: z.number().optional(),
  inputTokens: z.number().optional(),
  outputTokens: z.number().optional(),
  wallClock: z.string().optional(),
  maxCostUSD: z.number().optional(),
});
const templates = z.record(z.string(), z.string()).default({});
const probe = z.object({
  tool: z.string(),
  arguments: templates,
  found: z.string().default("{effect.id}"),
  absenceIsConclusive: z.boolean().default(false),
});
/** Older versions stored a bare name here and did not act upon it. */
const unlessName = <T extends z.ZodType>(schema: T) =>
  z.preprocess((value) => (typeof value === "string" ? undefined : value), schema.optional());
const effect = z.object({
  tool: z.string(),
  effect: z.string().optional(),
  target: z.string().optional(),
  key: z.string().optional(),
  probe: unlessName(probe),
  compensate: unlessName(z.object({ tool: z.string(), arguments: templates })),
  state: z.object({ tool: z.string(), arguments: templates, path: z.string().optional() }).optional(),
  errorMeans: z.string().optional(),
});
const server = z.object({
  name: z.string(),
  url: z.string(),
  headers: z.array(z.object({ name: z.string(), secretRef })).default([]),
  tools: z.array(z.string()).optional(),
  audience: z.enum(["Conversation", "Agent", "Public"]).optional(),
  trustHints: z.boolean().default(false),
});
const place = z.object({
  place: z.string(),
  allow: z.array(z.string()).optional(),
  deny: z.array(z.string()).optional(),
});
const approvals = z.object({
  approvers: z.object({ users: z.array(z.string()).default([]), groups: z.array(z.string()).default([]) }).optional(),
  requesterMayApprove: z.boolean().optional(),
  expiresAfter: z.string().optional(),
});
const spec = z.object({
  instructions: z.string().default(""),
  models: z.object({ primary: endpoint.optional(), fast: endpoint.optional() }).default({}),
  tools: z
    .object({
      builtin: z.array(z.string()).default([]),
      requireApproval: z.array(z.string()).default([]),
      mcpServers: z.array(server).default([]),
      effects: z.array(effect).default([]),
      byPlace: z.array(place).default([]),
      memory: z.object({ audience: z.enum(["Conversation", "Agent"]).optional() }).default({}),
    })
    .prefault({}),
  approvals: approvals.default({}),
  answerWithin: z.string().optional(),
  budgets: budgets.default({}),
});

export type Budgets = {
  readonly iterations: number;
  readonly modelCalls: number;
  readonly toolCalls: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Time at work. */
  readonly wallClockMs: number;
  /** Millionths of a US dollar. */
  readonly costMicros: number;
};

export type Approvals = {
  /** Null: whoever may say so in the cluster. */
  readonly approvers: Approvers | null;
  readonly requesterMayApprove: boolean;
  readonly expiresMs: number;
};

export type AgentSpec = {
  readonly instructions: string;
  readonly primary: ModelEndpoint | null;
  /** For typed questions; the install may name one for all. */
  readonly fast: ModelEndpoint | null;
  readonly contextTokens: number;
  readonly tools: readonly string[];
  readonly effects: readonly EffectDeclaration[];
  readonly servers: readonly ServerSpec[];
  readonly places: readonly PlaceRule[];
  /** Globs over tools whose calls wait for a person. */
  readonly requireApproval: readonly string[];
  readonly approvals: Approvals;
  /** How long a question waits for an answer. */
  readonly answerWithinMs: number;
  readonly budgets: Budgets;
  /** So often a request is begun anew, or its answer kept back, for newer input; then it answers. */
  readonly maxInterruptions: number;
  /** Who may be shown what is remembered; null: its author did not say. */
  readonly memoryAudience: "conversation" | "agent" | null;
};

/** The lower of two ceilings; an absent one is none. */
const lower = (...limits: (number | undefined)[]): number =>
  Math.min(...limits.map((limit) => limit ?? Number.POSITIVE_INFINITY));

const span = (text: string | undefined): number | undefined => (text === undefined ? undefined : durationMs(text));
const micros = (usd: number | undefined): number | undefined => (usd === undefined ? undefined : toMicros(usd));

/** `slice`: what the run itself asked for; it can only lower. */
export function readAgentSpec(stored: unknown, slice: unknown = {}): AgentSpec {
  const parsed = spec.safeParse(stored);
  const asked = budgets.safeParse(slice ?? {});
  if (!parsed.success || !asked.success) {
    throw new PawlError("invariant", "AgentUnreadable", "the stored Agent cannot be read by this version");
  }
  const { models, tools, instructions } = parsed.data;
  const own = parsed.data.budgets;
  const primary = models.primary;
  return {
    instructions,
    primary: primary === undefined ? null : toEndpoint(primary),
    fast: models.fast === undefined ? null : toEndpoint(models.fast),
    contextTokens: primary?.contextTokens ?? DEFAULT_CONTEXT_TOKENS,
    tools: tools.builtin,
    effects: tools.effects.map(toDeclaration),
    servers: tools.mcpServers.map(toServer),
    places: tools.byPlace.map(({ place: name, allow, deny }) => ({
      place: name,
      allow: allow ?? ["*"],
      deny: deny ?? [],
    })),
    requireApproval: tools.requireApproval,
    approvals: toApprovals(parsed.data.approvals),
    answerWithinMs: waits(parsed.data.answerWithin, ANSWER_WITHIN_MS),
    budgets: {
      iterations: lower(own.iterations ?? DEFAULT_ITERATIONS, asked.data.iterations),
      modelCalls: lower(own.modelCalls ?? DEFAULT_MODEL_CALLS, asked.data.modelCalls),
      toolCalls: lower(own.toolCalls ?? DEFAULT_TOOL_CALLS, asked.data.toolCalls),
      inputTokens: lower(own.inputTokens, asked.data.inputTokens),
      outputTokens: lower(own.outputTokens, asked.data.outputTokens),
      wallClockMs: lower(span(own.wallClock) ?? DEFAULT_WALL_CLOCK_MS, span(asked.data.wallClock)),
      costMicros: lower(micros(own.maxCostUSD), micros(asked.data.maxCostUSD)),
    },
    maxInterruptions: policyOf(stored).maxSupersessions,
    memoryAudience: memoryAudience(tools.memory.audience),
  };
}

const AUDIENCE = { Conversation: "conversation", Agent: "agent", Public: "public" } as const;

function toServer({ tools, audience, ...rest }: z.infer<typeof server>): ServerSpec {
  return {
    ...rest,
    tools: tools ?? ["*"],
    ...(audience === undefined ? {} : { audience: AUDIENCE[audience] }),
  };
}

function toDeclaration(said: z.infer<typeof effect>): EffectDeclaration {
  const { tool, effect: kind, target, key, probe: looked, compensate, state, errorMeans } = said;
  return {
    tool,
    ...(kind === undefined ? {} : { effect: kind }),
    ...(target === undefined ? {} : { target }),
    ...(key === undefined ? {} : { key }),
    ...(looked === undefined ? {} : { probe: looked }),
    ...(compensate === undefined ? {} : { compensate }),
    ...(state === undefined ? {} : { state: toState(state) }),
    ...(errorMeans === "NotApplied" ? { errorMeansNotApplied: true } : {}),
  };
}

const toState = ({ path, ...rest }: NonNullable<z.infer<typeof effect>["state"]>): StateDeclaration => ({
  ...rest,
  ...(path === undefined ? {} : { path }),
});

const memoryAudience = (said: "Conversation" | "Agent" | undefined): AgentSpec["memoryAudience"] =>
  said === undefined ? null : said === "Agent" ? "agent" : "conversation";

/** The schema takes any span; one that is no time at all, or outlives everybody, is the nearest one that is. */
const waits = (given: string | undefined, otherwise: number): number =>
  Math.min(Math.max(span(given) ?? otherwise, 1), MAX_WAIT_FOR_PERSON_MS);

function toApprovals(given: z.infer<typeof approvals>): Approvals {
  return {
    approvers: given.approvers ?? null,
    requesterMayApprove: given.requesterMayApprove ?? false,
    expiresMs: waits(given.expiresAfter, APPROVAL_EXPIRES_MS),
  };
}

/** An endpoint as the install names it; undefined when it is none. */
export function readEndpoint(value: unknown): ModelEndpoint | undefined {
  const parsed = endpoint.safeParse(value);
  return parsed.success ? toEndpoint(parsed.data) : undefined;
}

function toEndpoint(primary: z.infer<typeof endpoint>): ModelEndpoint {
  const timeoutMs = primary.timeout === undefined ? undefined : durationMs(primary.timeout);
  return {
    baseURL: primary.baseURL,
    model: primary.model,
    ...(primary.apiKeySecretRef === undefined ? {} : { apiKeySecretRef: primary.apiKeySecretRef }),
    ...(primary.contextTokens === undefined ? {} : { contextTokens: primary.contextTokens }),
    ...(primary.maxOutputTokens === undefined ? {} : { maxOutputTokens: primary.maxOutputTokens }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(primary.pricesUSDPerMTok === undefined ? {} : { prices: primary.pricesUSDPerMTok }),
  };
}
