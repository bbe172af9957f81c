/**
 * Manifests and what becomes of them, read twice: by `manifests.test.ts` here (zod and the rules beside it) and by the
 * operator's kube tests (a real API server). Both must agree, and both must say something a person can act upon.
 */
export type Case = {
  /** Completes the sentence "an Agent …", "a Run …" or "a Decision …". */
  readonly name: string;
  readonly kind: "Agent" | "Run" | "Decision";
  readonly spec: unknown;
  /** The object before this change; absent: the manifest is new. */
  readonly before?: unknown;
  /** Absent: the manifest is valid. */
  readonly refused?: {
    /** In our own problem, written as `path: message`. */
    readonly ours: RegExp;
    /** In the API server's text, as kubectl prints it. */
    readonly server: RegExp;
  };
};

const ok = (kind: Case["kind"], name: string, spec: unknown, before?: unknown): Case => ({
  kind,
  name,
  spec,
  ...(before === undefined ? {} : { before }),
});
const bad = (
  kind: Case["kind"],
  name: string,
  spec: unknown,
  ours: RegExp,
  server: RegExp,
  before?: unknown,
): Case => ({
  ...ok(kind, name, spec, before),
  refused: { ours, server },
});

const agent = (more: Record<string, unknown> = {}) => ({ instructions: "Answer briefly.", ...more });
const run = (more: Record<string, unknown> = {}) => ({
  agentRef: { name: "helper" },
  input: { text: "Hello?", actor: "admin" },
  ...more,
});
const model = (more: Record<string, unknown> = {}) => ({
  models: { primary: { baseURL: "https://api.example.com/v1", model: "m", ...more } },
});
const egress = (more: Record<string, unknown>) => ({ workspace: { egress: [{ host: "api.example.com", ...more }] } });
const secret = { name: "key", key: "token" };

const agents: readonly Case[] = [
  ok("Agent", "of instructions only is valid", agent()),
  ok("Agent", "with everything that this version acts upon is valid", {
    instructions: "Answer briefly.",
    ...model({ apiKeySecretRef: secret, contextTokens: 128_000, maxOutputTokens: 4_096, timeout: "90s" }),
    tools: { builtin: ["http_request", "current_time"], effects: [{ tool: "http_request", key: "Idempotency-Key" }] },
    interrupt: {
      whoInterrupts: "SameActorOnly",
      coalesceWindow: "2s",
      maxWait: "30s",
      maxCount: 20,
      midTurn: "Enqueue",
    },
    budgets: {
      iterations: 10,
      modelCalls: 12,
      inputTokens: 100_000,
      outputTokens: 10_000,
      toolCalls: 20,
      wallClock: "1h30m",
    },
    concurrency: { maxRuns: 5 },
    runs: { ttlSecondsAfterFinished: 3_600, historyLimit: 10, previews: "None" },
    suspend: false,
  }),
  ok("Agent", "with fields for later versions is valid", {
    instructions: "Answer briefly.",
    tools: {
      mcpServers: [
        { name: "files", url: "https://mcp.example.com/", headers: [{ name: "Authorization", secretRef: secret }] },
      ],
      requireApproval: ["files_*"],
    },
    connectors: { slack: { useInstallApp: true, channels: ["C0123"], directMessages: true }, http: {}, kubernetes: {} },
    access: [{ name: "everybody", kubernetesGroups: ["system:authenticated"] }],
    approvals: { approvers: { users: ["alice"] }, routes: [{ tools: ["*"], to: "Channel", channel: "C0123" }] },
    graph: { nodes: 8, gateEffects: true },
    workspace: {
      egress: [
        {
          host: "github.com",
          profile: "GitHub",
          access: "Write",
          paths: ["/org/"],
          credential: { secretRef: secret, as: "Bearer" },
        },
      ],
      warm: 1,
    },
  }),
  ok("Agent", "in any script counts characters, not bytes", agent({ instructions: "\u{1F43E}".repeat(32_768) })),
  bad(
    "Agent",
    "without instructions is refused",
    {},
    /spec\.instructions: .*undefined/,
    /spec\.instructions: Required value/,
  ),
  bad(
    "Agent",
    "with empty instructions is refused",
    agent({ instructions: "" }),
    /spec\.instructions: Too small/,
    /spec\.instructions.*at least 1 chars/,
  ),
  bad(
    "Agent",
    "with instructions over the limit is refused",
    agent({ instructions: "x".repeat(32_769) }),
    /spec\.instructions: Too big/,
    /spec\.instructions.*(may not be more than|Too long).*32768/,
  ),
  bad(
    "Agent",
    "with a misspelt field is refused",
    agent({ instruction: "x" }),
    /unknown field "spec\.instruction"/,
    /unknown field "spec\.instruction"/,
  ),
  bad(
    "Agent",
    "with a misspelt field far down is refused",
    agent(model({ baseUrl: "x" })),
    /unknown field "spec\.models\.primary\.baseUrl"/,
    /unknown field "spec\.models\.primary\.baseUrl"/,
  ),
  bad(
    "Agent",
    "with a number for a text is refused",
    agent({ instructions: 7 }),
    /spec\.instructions: .*expected string/,
    /spec\.instructions.*must be of type string/,
  ),
  bad(
    "Agent",
    "whose endpoint is no http URL is refused",
    agent(model({ baseURL: "ftp://x" })),
    /spec\.models\.primary\.baseURL/,
    /spec\.models\.primary\.baseURL.*should match/,
  ),
  bad(
    "Agent",
    "whose endpoint carries a password is refused",
    agent(model({ baseURL: "https://u:p@x.example.com" })),
    /spec\.models\.primary\.baseURL/,
    /spec\.models\.primary\.baseURL.*should match/,
  ),
  bad(
    "Agent",
    "whose model has no name is refused",
    agent({ models: { primary: { baseURL: "https://x.example.com" } } }),
    /spec\.models\.primary\.model/,
    /spec\.models\.primary\.model: Required value/,
  ),
  bad(
    "Agent",
    "whose secretRef has no key is refused",
    agent(model({ apiKeySecretRef: { name: "x" } })),
    /apiKeySecretRef\.key/,
    /apiKeySecretRef\.key: Required value/,
  ),
  bad(
    "Agent",
    "whose secretRef names no Secret that could exist is refused",
    agent(model({ apiKeySecretRef: { name: "X_Y", key: "k" } })),
    /apiKeySecretRef\.name/,
    /apiKeySecretRef\.name.*should match/,
  ),
  bad(
    "Agent",
    "with a time in words is refused",
    agent(model({ timeout: "soon" })),
    /spec\.models\.primary\.timeout/,
    /spec\.models\.primary\.timeout.*should match/,
  ),
  bad(
    "Agent",
    "with a time without a unit is refused",
    agent({ budgets: { wallClock: "90" } }),
    /spec\.budgets\.wallClock/,
    /spec\.budgets\.wallClock.*should match/,
  ),
  bad(
    "Agent",
    "with no iterations at all is refused",
    agent({ budgets: { iterations: 0 } }),
    /spec\.budgets\.iterations: Too small/,
    /spec\.budgets\.iterations.*greater than or equal to 1/,
  ),
  bad(
    "Agent",
    "with half an iteration is refused",
    agent({ budgets: { iterations: 1.5 } }),
    /spec\.budgets\.iterations.*int/,
    /spec\.budgets\.iterations.*(must be of type|should be a).*integer|cannot convert|unmarshal|spec\.budgets\.iterations/,
  ),
  bad(
    "Agent",
    "with a word for a number is refused",
    agent({ concurrency: { maxRuns: "many" } }),
    /spec\.concurrency\.maxRuns/,
    /spec\.concurrency\.maxRuns.*must be of type integer/,
  ),
  bad(
    "Agent",
    "with an interrupt mode that does not exist is refused",
    agent({ interrupt: { midTurn: "Interrupt" } }),
    /spec\.interrupt\.midTurn/,
    /spec\.interrupt\.midTurn: Unsupported value: "Interrupt": supported values: "Enqueue", "Amend", "Preempt"/,
  ),
  bad(
    "Agent",
    "that names a tool twice is refused",
    agent({ tools: { builtin: ["http_request", "http_request"] } }),
    /spec\.tools\.builtin\[1\]: Duplicate value/,
    /spec\.tools\.builtin\[1\]: Duplicate value/,
  ),
  bad(
    "Agent",
    "that declares a tool's effect twice is refused",
    agent({ tools: { effects: [{ tool: "a" }, { tool: "a" }] } }),
    /spec\.tools\.effects\[1\]: Duplicate value/,
    /spec\.tools\.effects\[1\]: Duplicate value/,
  ),
  bad(
    "Agent",
    "that lowers a tool to an own-store verb is refused",
    agent({ tools: { effects: [{ tool: "a", effect: "store.verb" }] } }),
    /spec\.tools\.effects\[0\]\.effect/,
    /spec\.tools\.effects\[0\]\.effect: Unsupported value: "store.verb"/,
  ),
  bad(
    "Agent",
    "with a list where one object belongs is refused",
    agent({ tools: [] }),
    /spec\.tools: .*expected object/,
    /spec\.tools.*must be of type object/,
  ),
  bad(
    "Agent",
    "with more MCP servers than it may have is refused",
    agent({
      tools: { mcpServers: Array.from({ length: 33 }, (_, i) => ({ name: `s${i}`, url: "https://x.example.com" })) },
    }),
    /spec\.tools\.mcpServers: Too big/,
    /spec\.tools\.mcpServers.*(Too many|at most 32)/,
  ),
  bad(
    "Agent",
    "with a Slack connector that says neither app is refused",
    agent({ connectors: { slack: {} } }),
    /either secretRef .* or useInstallApp/,
    /either secretRef .* or useInstallApp/,
  ),
  bad(
    "Agent",
    "with a Slack connector that says both apps is refused",
    agent({ connectors: { slack: { secretRef: { name: "x" }, useInstallApp: true } } }),
    /either secretRef .* or useInstallApp/,
    /either secretRef .* or useInstallApp/,
  ),
  bad(
    "Agent",
    "with an approval route to no channel is refused",
    agent({ approvals: { approvers: {}, routes: [{ tools: ["*"], to: "Channel" }] } }),
    /channel belongs to to: Channel/,
    /channel belongs to to: Channel/,
  ),
  bad(
    "Agent",
    "whose egress is an address is refused",
    agent(egress({ host: "https://x" })),
    /spec\.workspace\.egress\[0\]\.host/,
    /spec\.workspace\.egress\[0\]\.host.*should match/,
  ),
  bad(
    "Agent",
    "with a credential for every path is refused",
    agent(egress({ credential: { secretRef: secret, as: "Bearer" } })),
    /must list the paths/,
    /must list the paths/,
  ),
  bad(
    "Agent",
    "with a credential for many hosts is refused",
    agent(egress({ host: "*.example.com", paths: ["/"], credential: { secretRef: secret, as: "Bearer" } })),
    /goes to one host/,
    /goes to one host/,
  ),
  bad(
    "Agent",
    "with a credential that the proxy cannot add is refused",
    agent(egress({ tls: "Passthrough", paths: ["/"], credential: { secretRef: secret, as: "Bearer" } })),
    /use tls: Inspect/,
    /use tls: Inspect/,
  ),
  bad(
    "Agent",
    "with a credential from nowhere is refused",
    agent(egress({ paths: ["/"], credential: { as: "Bearer" } })),
    /either secretRef or githubAppRef/,
    /either secretRef or githubAppRef/,
  ),
  bad(
    "Agent",
    "with the same egress twice, once by default port, is refused",
    agent({ workspace: { egress: [{ host: "a.example.com" }, { host: "a.example.com", port: 443 }] } }),
    /egress\[1\]: Duplicate value/,
    /egress\[1\]: Duplicate value/,
  ),
  ok("Agent", "may change all of its spec", agent({ instructions: "Other." }), agent({ suspend: true })),
];

const again = /apply a new Run under another name/;

const runs: readonly Case[] = [
  ok("Run", "of an agent and a text is valid", run()),
  ok(
    "Run",
    "with all it may say is valid",
    run({
      conversation: "incident-7",
      idempotencyKey: "7/first",
      budgets: { iterations: 3 },
      ttlSecondsAfterFinished: 60,
    }),
  ),
  ok("Run", "with a text of the longest kind is valid", run({ input: { text: "ä".repeat(8_192), actor: "admin" } })),
  bad(
    "Run",
    "with a text over the limit is refused",
    run({ input: { text: "x".repeat(8_193), actor: "admin" } }),
    /spec\.input\.text: Too big/,
    /spec\.input\.text.*(may not be more than|Too long).*8192/,
  ),
  bad(
    "Run",
    "without an agent is refused",
    { input: { text: "x", actor: "admin" } },
    /spec\.agentRef/,
    /spec\.agentRef: Required value/,
  ),
  bad(
    "Run",
    "that asks nothing is refused",
    { agentRef: { name: "helper" } },
    /give input: \{text: …\}/,
    /give input: \{text: …\}/,
  ),
  bad(
    "Run",
    "with an empty text is refused",
    run({ input: { text: "", actor: "admin" } }),
    /spec\.input\.text: Too small/,
    /spec\.input\.text.*at least 1 chars/,
  ),
  bad(
    "Run",
    "with input as plain text is refused",
    run({ input: "Hello?" }),
    /spec\.input: .*expected object/,
    /spec\.input.*(must be of type object|expected map)/,
  ),
  bad(
    "Run",
    "with a conversation that is no label is refused",
    run({ conversation: "Incident 7" }),
    /spec\.conversation/,
    /spec\.conversation.*should match/,
  ),
  bad(
    "Run",
    "with a conversation over the limit is refused",
    run({ conversation: "a".repeat(64) }),
    /spec\.conversation: Too big/,
    /spec\.conversation.*(may not be more than|Too long).*63/,
  ),
  bad(
    "Run",
    "with a prompt in the wrong place is refused",
    run({ text: "Hello?" }),
    /unknown field "spec\.text"/,
    /unknown field "spec\.text"/,
  ),
  bad(
    "Run",
    "with a budget of nothing is refused",
    run({ budgets: { modelCalls: 0 } }),
    /spec\.budgets\.modelCalls/,
    /spec\.budgets\.modelCalls.*greater than or equal to 1/,
  ),
  bad(
    "Run",
    "that lives for less than no time is refused",
    run({ ttlSecondsAfterFinished: -1 }),
    /spec\.ttlSecondsAfterFinished/,
    /spec\.ttlSecondsAfterFinished.*greater than or equal to 0/,
  ),
  bad("Run", "whose text changes is refused", run({ input: { text: "Other", actor: "admin" } }), again, again, run()),
  bad("Run", "whose agent changes is refused", run({ agentRef: { name: "other" } }), again, again, run()),
  bad("Run", "that gets a conversation afterwards is refused", run({ conversation: "c" }), again, again, run()),
  bad("Run", "that loses its conversation is refused", run(), again, again, run({ conversation: "c" })),
  bad("Run", "that gets a budget afterwards is refused", run({ budgets: {} }), again, again, run()),
  bad(
    "Run",
    "whose idempotency key changes is refused",
    run({ idempotencyKey: "b" }),
    again,
    again,
    run({ idempotencyKey: "a" }),
  ),
  bad(
    "Run",
    "that gets a time to live afterwards is refused",
    run({ ttlSecondsAfterFinished: 1 }),
    again,
    again,
    run(),
  ),
  ok("Run", "may be cancelled", run({ cancel: { actor: "admin", reason: "no longer needed" } }), run()),
  ok(
    "Run",
    "that is cancelled may be applied again as it is",
    run({ cancel: { actor: "admin" } }),
    run({ cancel: { actor: "admin" } }),
  ),
  bad(
    "Run",
    "whose cancellation gets a reason afterwards is refused",
    run({ cancel: { actor: "admin", reason: "x" } }),
    /cancel is set once/,
    /cancel is set once/,
    run({ cancel: { actor: "admin" } }),
  ),
  bad(
    "Run",
    "whose cancellation is taken back is refused",
    run(),
    /cancel is set once/,
    /cancel is set once/,
    run({ cancel: { actor: "admin" } }),
  ),
];

const HASH = "0123456789abcdef".repeat(4);
const decision = (more: Record<string, unknown> = {}) => ({
  subject: { kind: "Run", name: "one" },
  request: "0190a8b0-0000-7000-8000-000000000001",
  verdict: "Approve",
  hash: HASH,
  actor: "admin",
  ...more,
});
const said = /a Decision is said once and does not change/;

const decisions: readonly Case[] = [
  ok("Decision", "that approves an exact call is valid", decision()),
  ok("Decision", "may say of whom it speaks and why", {
    ...decision({ reason: "looked at it" }),
    subject: { kind: "Run", name: "one", uid: "0190a8b0-0000-4000-8000-000000000001" },
  }),
  ok("Decision", "that rejects needs no hash", decision({ verdict: "Reject", hash: undefined })),
  ok("Decision", "that says what became of a change is valid", decision({ verdict: "NotLanded", hash: undefined })),
  ok("Decision", "that answers is valid", decision({ verdict: "Answer", hash: undefined, text: "Blue." })),
  ok("Decision", "may be applied again as it is", decision(), decision()),
  bad(
    "Decision",
    "that approves without a hash is refused",
    decision({ hash: undefined }),
    /verdict: Approve needs hash/,
    /verdict: Approve needs hash/,
  ),
  bad(
    "Decision",
    "with a shortened hash is refused",
    decision({ hash: HASH.slice(0, 12) }),
    /spec\.hash/,
    /spec\.hash.*should match/,
  ),
  bad(
    "Decision",
    "with a verdict that nobody knows is refused",
    decision({ verdict: "Maybe" }),
    /spec\.verdict/,
    /spec\.verdict.*Unsupported value/,
  ),
  bad(
    "Decision",
    "that answers without a text is refused",
    decision({ verdict: "Answer", hash: undefined }),
    /text belongs to verdict: Answer/,
    /text belongs to verdict: Answer/,
  ),
  bad(
    "Decision",
    "that approves with a text is refused: why goes into reason",
    decision({ text: "go" }),
    /text belongs to verdict: Answer/,
    /text belongs to verdict: Answer/,
  ),
  bad(
    "Decision",
    "with a reason over the limit is refused",
    decision({ reason: "x".repeat(513) }),
    /spec\.reason: Too big/,
    /spec\.reason.*(may not be more than|Too long).*512/,
  ),
  bad("Decision", "whose verdict changes is refused", decision({ verdict: "Reject" }), said, said, decision()),
  bad("Decision", "that gets a reason afterwards is refused", decision({ reason: "x" }), said, said, decision()),
  bad("Decision", "that loses its reason is refused", decision(), said, said, decision({ reason: "x" })),
];

export const CASES: readonly Case[] = [...agents, ...runs, ...decisions];

/** Manifests that only Pawl's own account may write; the schema lets them pass, admission refuses everybody else. */
export const OWN_CASES: readonly Case[] = [
  ok("Run", "that mirrors a turn is valid", {
    agentRef: { name: "helper" },
    mirror: { runID: "0190a8b0-0000-7000-8000-000000000001" },
  }),
  bad(
    "Run",
    "that mirrors and asks is refused",
    run({ mirror: { runID: "0190a8b0-0000-7000-8000-000000000001" } }),
    /mirror is written by Pawl only/,
    /mirror is written by Pawl only/,
  ),
  bad(
    "Run",
    "that mirrors no UUID is refused",
    { agentRef: { name: "helper" }, mirror: { runID: "seven" } },
    /spec\.mirror\.runID/,
    /spec\.mirror\.runID.*should match/,
  ),
];
