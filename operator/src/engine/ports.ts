/**
 * What the engine needs from the outside, in its own words. Adapters live in `models/`, `tools/` and `kube/`; the
 * engine has never heard of Kubernetes, of HTTP or of any provider's SDK.
 */
import type { EffectKind } from "#rules/effects.ts";
import type { Prices } from "#rules/money.ts";
import type { Audience, Evidence } from "#rules/provenance.ts";
import type { State } from "#rules/state.ts";

/** Time as the engine sees it. `monotonic` in milliseconds, unaffected by clock changes, running on under SIGSTOP. */
export interface Clock {
  monotonic(): number;
  /** Resolves after `ms`, or at once when the signal aborts (without throwing). */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** A Secret key in the Agent's namespace. */
export type SecretRef = { readonly name: string; readonly key: string };

export type CredentialAnswer =
  | { readonly kind: "found"; readonly value: string }
  /** No such Secret or key: a person must create it; the run waits. */
  | { readonly kind: "missing"; readonly message: string }
  /** The Secret does not offer itself to that host (annotation `pawl.dev/hosts`), or may not be read. */
  | { readonly kind: "refused"; readonly message: string };

export interface Credentials {
  /** `host` is the host[:port] that the secret would be sent to. Throws PawlError(transient) if the store is away. */
  get(namespace: string, ref: SecretRef, host: string): Promise<CredentialAnswer>;
}

/** One endpoint and model, as an Agent or the install names it. */
export type ModelEndpoint = {
  readonly baseURL: string;
  readonly model: string;
  readonly apiKeySecretRef?: SecretRef;
  readonly contextTokens?: number;
  readonly maxOutputTokens?: number;
  readonly timeoutMs?: number;
  /** US dollars per million tokens. Absent: what a call costs is not known. */
  readonly prices?: Prices;
};

/** Chat Completions messages, the dialect every endpoint we speak to shares. Built by `rules/transcript.ts` only. */
export type ChatMessage =
  | { readonly role: "system"; readonly content: string }
  | { readonly role: "user"; readonly content: string; readonly name?: string }
  | { readonly role: "assistant"; readonly content: string | null; readonly tool_calls?: readonly ChatToolCall[] }
  | { readonly role: "tool"; readonly tool_call_id: string; readonly content: string };

export type ChatToolCall = {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
};

export type ToolSchema = {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments, an object type. */
  readonly parameters: Readonly<Record<string, unknown>>;
};

export type ModelRequest = {
  readonly endpoint: ModelEndpoint;
  readonly apiKey: string | undefined;
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly ToolSchema[];
  /** The answer is one JSON object of this schema, where the endpoint can be held to one; it is checked all the same. */
  readonly responseSchema?: { readonly name: string; readonly schema: Readonly<Record<string, unknown>> } | undefined;
};

/** One tool call of a response, in the order of its slots. Provider ids may be empty or repeated: never keys. */
export type ModelCall = { readonly providerId: string; readonly name: string; readonly argumentsText: string };

export type ModelUsage = {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Part of the input that the endpoint had cached; absent where it does not tell. */
  readonly cachedInputTokens?: number;
};

export type ModelOutcome =
  | {
      readonly kind: "response";
      /** "" and null both mean: no text. A refusal is text. */
      readonly text: string | null;
      readonly calls: readonly ModelCall[];
      /** The output limit cut the message: no call of it may run (its arguments may be cut in valid places). */
      readonly truncated: boolean;
      readonly usage: ModelUsage | null;
      readonly finishReason: string | null;
    }
  | {
      readonly kind: "failed";
      /** transient: try again, not before retryAfterMs · terminal: a person must act · overflow: the request was too long · cancelled: the signal fired. */
      readonly class: "transient" | "terminal" | "overflow" | "cancelled";
      /** CamelCase: ModelUnauthorized, ModelQuotaExhausted, ModelRateLimited, ModelUnreachable, ModelTimeout, ModelMalformed, ModelRejected, ContextOverflow, … */
      readonly reason: string;
      /** One sentence for a person: what happened and what to do. Never contains the key. */
      readonly message: string;
      readonly retryAfterMs?: number;
    };

/** Where others' waits are made known: `credential` is a hash, the longest wait wins. */
export interface SharedWaits {
  close(credential: string, waitMs: number): void;
}

export interface ModelPort {
  /** One attempt, no retries of its own. Never throws for what an endpoint does; resolves with a classified outcome. */
  complete(request: ModelRequest, signal: AbortSignal, shown?: Progress): Promise<ModelOutcome>;
}

/** Characters of the answer's text that have come so far, where the endpoint streams. For display, never acted on. */
export type Progress = (characters: number) => void;

/** Arguments of a call that Pawl makes itself, by name, each a template (`rules/template.ts`). */
export type Templates = Readonly<Record<string, string>>;

/** How to find out whether a write whose answer was lost took place. */
export type ProbeDeclaration = {
  readonly tool: string;
  readonly arguments: Templates;
  /** A template: text that the answer holds if, and only if, it took place. */
  readonly found: string;
  readonly absenceIsConclusive: boolean;
};

/** How the state of what a write changes is read: by a tool that only reads. */
export type StateDeclaration = {
  readonly tool: string;
  readonly arguments: Templates;
  /** Leads into the JSON of its answer, to the part that counts. Absent: all of it. */
  readonly path?: string;
};

/** How to undo a write. */
export type Compensation = { readonly tool: string; readonly arguments: Templates };

/** What an Agent says about one tool (`tools.effects[]`). */
export type EffectDeclaration = {
  readonly tool: string;
  readonly effect?: string;
  readonly target?: string;
  readonly key?: string;
  readonly probe?: ProbeDeclaration;
  readonly compensate?: Compensation;
  readonly state?: StateDeclaration;
  /** An error result proves that nothing was changed. */
  readonly errorMeansNotApplied?: boolean;
};

/** The run that a call belongs to: whose it is, and where its answer goes. */
export type CallRun = {
  readonly runId: string;
  readonly agentId: string;
  readonly conversationId: string;
  readonly namespace: string;
};

export type ToolContext = {
  readonly run: CallRun;
  readonly signal: AbortSignal;
  /** For effectful calls: the row id of the effect; it is the idempotency key. */
  readonly effectId?: string;
  /** Header (or argument) that carries `effectId`, when the Agent declared one. Absent: the default header is still sent, as a courtesy. */
  readonly keyHeader?: string;
  /** Monotonic milliseconds after which the first byte must not leave any more; checked last before the write. */
  readonly sendBy?: number;
  /** From the first byte on, at most this long until the connection is closed. */
  readonly timeLimitMs: number;
};

/** What became of a call. `observation` is what the model reads (text, already bounded). */
export type ToolOutcome =
  /**
   * The receiver answered that it did it (or: the read returned). `receipt` is small JSON for the journal; what the
   * receiver answered with, where that is JSON and short, is its `result`. `partial`: the observation leaves something out.
   */
  | {
      readonly kind: "confirmed";
      readonly observation: string;
      readonly receipt: Readonly<Record<string, unknown>>;
      readonly partial?: boolean;
      /** What the write left behind, where its Agent says how that is read. */
      readonly post?: State | null;
      /** What it read that had come from outside before. */
      readonly restsOn?: readonly Evidence[];
    }
  /**
   * Provably not applied: refused, or no byte left. `absent`: a read was told that there is nothing there. `unsent`:
   * no byte of it left.
   */
  | { readonly kind: "failed"; readonly observation: string; readonly absent?: boolean; readonly unsent?: boolean }
  /** Sent, or perhaps sent, and no conclusive answer. */
  | { readonly kind: "unknown"; readonly observation: string };

/** Something that is said outside besides the answer. */
export type OutboundMessage = {
  readonly conversation: { readonly id: string; readonly connector: string; readonly key: string };
  readonly request: string;
  readonly kind: "ack" | "question" | "progress" | "notice";
  readonly sequence: number;
  readonly text: string;
  /** The same for whoever says it: an idempotency key, where the receiver honours one. */
  readonly key: string;
};

export type Posted =
  | { readonly kind: "landed"; readonly receipt?: Readonly<Record<string, unknown>> }
  /** Provably not there: refused, or no byte left. */
  | { readonly kind: "failed"; readonly why: string }
  | { readonly kind: "unknown"; readonly why: string };

export interface Outbound {
  /** One attempt. It is asked once for each message and never again, whatever came of it. */
  post(message: OutboundMessage, signal: AbortSignal): Promise<Posted>;
}

export type ParsedArguments =
  | { readonly ok: true; readonly value: Readonly<Record<string, unknown>> }
  | { readonly ok: false; readonly message: string };

/** An MCP server as an Agent names it. */
export type ServerSpec = {
  readonly name: string;
  readonly url: string;
  readonly headers: readonly { readonly name: string; readonly secretRef: SecretRef }[];
  /** Globs over its own tool names. */
  readonly tools: readonly string[];
  readonly audience?: Audience;
  /** Believe it where it says that a tool only reads. */
  readonly trustHints: boolean;
};

/** A tool as its server lists it, bounded and storable. */
export type ListedTool = {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, unknown>>;
  readonly readOnly: boolean;
  readonly destructive: boolean;
};

export type Listing =
  /** `leftOut`: what cannot be offered, each with its reason. */
  | { readonly kind: "listed"; readonly tools: readonly ListedTool[]; readonly leftOut: readonly string[] }
  /** A person, or time, can mend it. */
  | { readonly kind: "waiting"; readonly reason: string; readonly message: string };

/** What the Agent's words change about how a tool of a server is called. */
export type ServerToolWords = { readonly key?: string; readonly errorMeansNotApplied?: boolean };

/** The servers of one turn (or of one look at an Agent): sessions open when they are needed. */
export interface ServerSessions {
  list(server: ServerSpec, signal: AbortSignal): Promise<Listing>;
  /** `name`: what the model calls it. Listing it first is not needed: a run uses what it was shown when it began. */
  tool(server: ServerSpec, listed: ListedTool, name: string, words: ServerToolWords): Tool;
  /** Never throws, and does not take long. */
  close(): Promise<void>;
}

export interface ToolServers {
  open(namespace: string): ServerSessions;
}

/** The one contract of a tool. Pure but for `execute`. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, unknown>>;
  /** In-process, or a read of the ledger's own rows, and no other I/O: may run before the response is committed and share its commit. */
  readonly quick: boolean;
  /** From the first byte to the closed connection. */
  readonly timeLimitMs: number;
  /** Checks arguments that were JSON-parsed; the message goes to the model. */
  parse(args: unknown): ParsedArguments;
  effect(args: Readonly<Record<string, unknown>>): EffectKind;
  /** Global string naming what an effectful call changes. */
  target(args: Readonly<Record<string, unknown>>): string;
  /** Header or argument that carries the effect's id. Naming it says that the receiver honours it. */
  readonly key?: string;
  /** True: a call with an argument of that name would be refused. */
  lacks?(argument: string): boolean;
  readonly probe?: ProbeDeclaration;
  readonly compensate?: Compensation;
  readonly state?: StateDeclaration;
  /** Other tools that a call of this one may be: whatever is asked before those is asked before this one. */
  readonly standsFor?: readonly string[];
  /**
   * Results come from outside: the host or server that they come from, without secrets and queries. Absent: they come
   * from within.
   */
  source?(args: Readonly<Record<string, unknown>>): string;
  /** Who may be shown its results. Absent: the conversation that asked. */
  readonly audience?: Audience;
  /** Never throws for what the outside does. */
  execute(args: Readonly<Record<string, unknown>>, context: ToolContext): Promise<ToolOutcome>;
}
