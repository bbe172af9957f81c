/** The configuration: the only file that reads the environment. Every value has a name, a default and a check. */
import { hostname } from "node:os";
import { z } from "zod";
import { LEASE_MS, POLL_MS, RENEW_MS, SEND_MS, SETTLE_SLACK_MS, WAIT_FOR_PERSON_MS } from "#rules/limits.ts";
import { PawlError } from "#rules/errors.ts";

const ms = (fallback: number) => z.coerce.number().int().positive().max(3_600_000).default(fallback);
const words = z
  .string()
  .default("")
  .transform((text) =>
    text
      .split(",")
      .map((word) => word.trim())
      .filter((word) => word !== ""),
  );
const json = z
  .string()
  .default("{}")
  .transform((text, context): unknown => {
    const refuse = (message: string) => {
      context.addIssue({ code: "custom", message });
      return z.NEVER;
    };
    try {
      const value: unknown = JSON.parse(text);
      return typeof value === "object" && value !== null && !Array.isArray(value) ? value : refuse("is no JSON object");
    } catch {
      return refuse("is not valid JSON");
    }
  });

const environment = z.object({
  /** postgres://user:password@host:port/database */
  PAWL_LEDGER_URL: z.string().optional(),
  /** Health, readiness and metrics. */
  PAWL_LISTEN: z.string().default("0.0.0.0:8080"),
  PAWL_INSTANCE: z.string().optional(),
  PAWL_LOG_LEVEL: z.enum(["debug", "info", "warn", "error"]).default("info"),
  /** Namespaces whose Agents are served, or `*`. */
  PAWL_AGENT_NAMESPACES: z.string().default("*"),
  /** JSON: what an Agent means where it says nothing ({models, interrupt, budgets}). */
  PAWL_DEFAULTS: json,
  /** Key of the install's default model endpoint; sent to that endpoint only. */
  PAWL_DEFAULT_MODEL_KEY: z.string().optional(),
  /** Hosts and CIDRs that http_request may reach although they are not public. */
  PAWL_OUTBOUND_ALLOW: words,
  /** `cluster`, `kubeconfig` (PAWL_CONTEXT names the context) or `none`. */
  PAWL_KUBERNETES: z.enum(["cluster", "kubeconfig", "none"]).optional(),
  KUBERNETES_SERVICE_HOST: z.string().optional(),
  KUBECONFIG: z.string().optional(),
  PAWL_CONTEXT: z.string().optional(),
  PAWL_CONCURRENCY: z.coerce.number().int().min(1).max(1_000).default(16),
  /** Runs of the whole install at work at once; 0 = what the workers take (PAWL_CONCURRENCY each). */
  PAWL_MAX_RUNS: z.coerce.number().int().min(0).max(100_000).default(0),
  PAWL_LEASE_MS: ms(LEASE_MS),
  PAWL_RENEW_MS: ms(RENEW_MS),
  PAWL_SEND_MS: ms(SEND_MS),
  PAWL_SETTLE_SLACK_MS: ms(SETTLE_SLACK_MS),
  PAWL_POLL_MS: ms(POLL_MS),
  PAWL_HTTP_TIMEOUT_MS: ms(30_000),
  /** One call of a tool of an MCP server, from its first byte on. */
  PAWL_MCP_TIMEOUT_MS: ms(60_000),
  /** Tests only: name:occurrence:kill|stop|swallow. */
  PAWL_FAILPOINT: z.string().optional(),
  /** Tests only: appends the name of every failpoint that is passed. */
  PAWL_FAILPOINT_LOG: z.string().optional(),
});

export type Config = ReturnType<typeof readConfig>;

/** Throws PawlError(terminal, ConfigInvalid) naming every variable that cannot be used. */
export function readConfig(env: Readonly<Record<string, string | undefined>> = process.env) {
  const parsed = environment.safeParse(env);
  if (!parsed.success) {
    const issues = parsed.error.issues.map((issue) => `${issue.path.join(".")} ${issue.message}`);
    throw new PawlError("terminal", "ConfigInvalid", `configuration: ${issues.join("; ")}`);
  }
  const value = parsed.data;
  const listen = /^(.*):(\d+)$/.exec(value.PAWL_LISTEN);
  if (listen === null)
    throw new PawlError("terminal", "ConfigInvalid", "configuration: PAWL_LISTEN must read host:port");
  if (value.PAWL_RENEW_MS * 2 >= value.PAWL_LEASE_MS) {
    throw new PawlError(
      "terminal",
      "ConfigInvalid",
      "configuration: PAWL_RENEW_MS must be less than half of PAWL_LEASE_MS",
    );
  }
  return {
    ledgerUrl: value.PAWL_LEDGER_URL,
    listen: { host: listen[1] ?? "0.0.0.0", port: Number(listen[2]) },
    instance: value.PAWL_INSTANCE ?? `${hostname()}-${process.pid}`,
    logLevel: value.PAWL_LOG_LEVEL,
    agentNamespaces:
      value.PAWL_AGENT_NAMESPACES === "*"
        ? ("*" as const)
        : value.PAWL_AGENT_NAMESPACES.split(",").map((name) => name.trim()),
    defaults: value.PAWL_DEFAULTS,
    defaultModelKey: value.PAWL_DEFAULT_MODEL_KEY,
    outboundAllow: value.PAWL_OUTBOUND_ALLOW,
    kubernetes:
      value.PAWL_KUBERNETES ?? (value.KUBERNETES_SERVICE_HOST === undefined ? ("none" as const) : ("cluster" as const)),
    kubeconfig: value.KUBECONFIG,
    context: value.PAWL_CONTEXT,
    concurrency: value.PAWL_CONCURRENCY,
    maxRuns: value.PAWL_MAX_RUNS,
    leaseMs: value.PAWL_LEASE_MS,
    renewMs: value.PAWL_RENEW_MS,
    sendMs: value.PAWL_SEND_MS,
    settleSlackMs: value.PAWL_SETTLE_SLACK_MS,
    pollMs: value.PAWL_POLL_MS,
    waitForPersonMs: WAIT_FOR_PERSON_MS,
    httpTimeoutMs: value.PAWL_HTTP_TIMEOUT_MS,
    mcpTimeoutMs: value.PAWL_MCP_TIMEOUT_MS,
    failpoint: value.PAWL_FAILPOINT,
    failpointLog: value.PAWL_FAILPOINT_LOG,
  };
}
