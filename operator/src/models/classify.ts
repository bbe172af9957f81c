/**
 * What a failure of a model endpoint means and what a person should do about it. One ordered table over status, code,
 * type and, where providers give nothing better, the wording of the message: the first rule that fits wins. Pure.
 */
import type { ModelOutcome } from "#engine/ports.ts";
import { MAX_QUOTE } from "./limits.ts";

export type ModelFailure = Extract<ModelOutcome, { kind: "failed" }>;

export type ErrorFacts = {
  /** Host of the endpoint, for the message. */
  readonly host: string;
  /** HTTP status; undefined when the error came inside a 200 answer or a stream. */
  readonly status?: number | undefined;
  readonly code?: string | undefined;
  readonly type?: string | undefined;
  /** The provider's own words. */
  readonly message: string;
  readonly retryAfterMs?: number | undefined;
};

type Rule = {
  readonly when: (facts: ErrorFacts, name: string) => boolean;
  readonly class: ModelFailure["class"];
  readonly reason: string;
  readonly advice: string;
};

/** Context overflow as OpenAI and vLLM, Anthropic, llama.cpp, Gemini, Bedrock and Mistral word it. */
const OVERFLOW =
  /maximum context length|context.?length.?exceeded|prompt is too long|exceeds? the available context size|exceed_context_size|input token count .*exceeds|input is too long for requested model|context window|too many tokens|too large for model with \d+ maximum context/i;
const QUOTA = /insufficient_quota|billing|quota_exceeded|credit_balance|insufficient_(credits|funds|balance)/i;
const QUOTA_WORDS =
  /exceeded your current quota|credit balance is too low|insufficient (credits|balance|funds)|billing/i;
const UNAUTHORIZED =
  /^(invalid_api_key|authentication_error|permission_error|permission_denied|unauthorized|forbidden|invalid_authentication)$/i;
const RATE = /^(rate_limit_exceeded|rate_limit_error|rate_limited|too_many_requests|tokens|requests)$/i;
const OVERLOADED = /^(overloaded_error|overloaded|slow_down|engine_overloaded)$/i;
const SERVER =
  /^(server_error|internal_server_error|internal_error|api_error|service_unavailable|timeout_error|timeout)$/i;
const NOT_FOUND = /^(model_not_found|not_found_error|unknown_url)$/i;
const REJECTED = /^(invalid_request_error|invalid_request|badrequesterror|unsupported_parameter|unsupported_value)$/i;

const status =
  (...expected: number[]) =>
  (facts: ErrorFacts): boolean =>
    facts.status !== undefined && expected.includes(facts.status);
const named = (pattern: RegExp) => (_facts: ErrorFacts, name: string) =>
  name.split(" ").some((part) => pattern.test(part));
const clientError = (facts: ErrorFacts): boolean => facts.status === undefined || facts.status < 500;

const RULES: readonly Rule[] = [
  {
    // Before everything else: providers send it as 400, 413, 422 and even 429, and it has its own cure.
    when: (facts, name) => status(413)(facts) || (clientError(facts) && OVERFLOW.test(`${name} ${facts.message}`)),
    class: "overflow",
    reason: "ContextOverflow",
    advice:
      "The conversation is longer than the model takes: start a new one, have tools return less, or name a model with a larger context.",
  },
  {
    // Providers answer an exhausted account with 429 too; waiting does not help, paying does.
    when: (facts, name) =>
      status(402)(facts) ||
      (clientError(facts) && (QUOTA.test(name) || (facts.status === 429 && QUOTA_WORDS.test(facts.message)))),
    class: "terminal",
    reason: "ModelQuotaExhausted",
    advice: "The account's quota or credit is used up: add credit or raise the limit at the provider.",
  },
  {
    when: (facts, name) => status(401, 403)(facts) || (facts.status === undefined && named(UNAUTHORIZED)(facts, name)),
    class: "terminal",
    reason: "ModelUnauthorized",
    advice: "Check the key in the Secret that apiKeySecretRef names, and that it may use this model.",
  },
  {
    when: (facts, name) => status(429)(facts) || (facts.status === undefined && named(RATE)(facts, name)),
    class: "transient",
    reason: "ModelRateLimited",
    advice: "It takes no more requests with this key for now.",
  },
  {
    when: (facts, name) => status(503, 529)(facts) || named(OVERLOADED)(facts, name),
    class: "transient",
    reason: "ModelOverloaded",
    advice: "It has more to do than it can for now.",
  },
  {
    when: status(408, 504, 524),
    class: "transient",
    reason: "ModelTimeout",
    advice: "It took too long.",
  },
  {
    when: (facts, name) => status(404)(facts) || named(NOT_FOUND)(facts, name),
    class: "terminal",
    reason: "ModelNotFound",
    advice: "Check the model's name and the baseURL (it usually ends in /v1).",
  },
  {
    when: (facts) => facts.status !== undefined && facts.status >= 300 && facts.status < 400,
    class: "terminal",
    reason: "ModelRejected",
    advice: "It redirects elsewhere, and keys do not follow redirects: set baseURL to the final address.",
  },
  {
    when: (facts) =>
      status(409, 425)(facts) || (facts.status !== undefined && facts.status >= 500 && !status(501, 505)(facts)),
    class: "transient",
    reason: "ModelUnavailable",
    advice: "It is out of order for now.",
  },
  {
    when: (facts, name) => facts.status !== undefined || named(REJECTED)(facts, name),
    class: "terminal",
    reason: "ModelRejected",
    advice: "The request was refused and would be refused again: check the Agent's model settings.",
  },
  {
    when: named(SERVER),
    class: "transient",
    reason: "ModelUnavailable",
    advice: "It is out of order for now.",
  },
];

/** An error answer, or an error inside a 200 answer, classified. An error nobody knows is a malformed answer. */
export function classifyError(facts: ErrorFacts): ModelFailure {
  const numeric = facts.status ?? statusIn(facts.code);
  const known = { ...facts, status: numeric };
  const name = `${facts.code ?? ""} ${facts.type ?? ""}`.trim();
  const rule = RULES.find((candidate) => candidate.when(known, name));
  const label = [numeric === undefined ? "an error" : `${numeric}`, name === "" ? undefined : `(${name})`];
  const said = `The model endpoint ${facts.host} answered ${label.filter(Boolean).join(" ")}: “${quote(facts.message)}”.`;
  if (rule === undefined)
    return malformed(facts.host, `an error of an unknown kind ${name}: “${quote(facts.message)}”`);
  return failure(rule.class, rule.reason, `${said} ${rule.advice}`, facts.retryAfterMs);
}

/** Some proxies put the HTTP status of the model behind them into `error.code` of a 200 answer. */
function statusIn(code: string | undefined): number | undefined {
  return code !== undefined && /^[345]\d\d$/.test(code) ? Number(code) : undefined;
}

const CERTIFICATE = /^(CERT_|ERR_TLS_CERT|DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED_CERT|UNABLE_TO_(VERIFY|GET_ISSUER))/;
const NAME_ERRORS = new Set(["ENOTFOUND", "EAI_AGAIN", "EAI_NODATA", "EAI_FAIL"]);
const TIMEOUTS = new Set(["ETIMEDOUT", "UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT"]);

/** The connection failed: `code` is Node's or undici's error code, if there is one. */
export function classifyNetwork(host: string, code: string | undefined): ModelFailure {
  const label = code === undefined ? "" : ` (${code})`;
  if (code !== undefined && CERTIFICATE.test(code)) {
    const advice = "Have it present one that is valid for its name and signed by a known authority.";
    return failure(
      "terminal",
      "ModelCertificateRejected",
      `The certificate of ${host} is not trusted${label}. ${advice}`,
    );
  }
  if (code !== undefined && NAME_ERRORS.has(code)) {
    const text = `The name of the model endpoint ${host} does not resolve${label}: check baseURL and the cluster's DNS.`;
    return failure("transient", "ModelUnreachable", text);
  }
  if (code !== undefined && TIMEOUTS.has(code)) {
    return failure("transient", "ModelTimeout", `The model endpoint ${host} did not answer in time${label}.`);
  }
  const text = `No connection to the model endpoint ${host}, or it was lost${label}: check that it runs and can be reached.`;
  return failure("transient", "ModelUnreachable", text);
}

/** The answer is not what the dialect promises. Transient: proxies and restarts cause it, and attempts are bounded. */
export function malformed(host: string, what: string): ModelFailure {
  return failure("transient", "ModelMalformed", `The model endpoint ${host} sent ${what}.`);
}

export function timedOut(host: string, what: string): ModelFailure {
  return failure("transient", "ModelTimeout", `The model endpoint ${host} ${what}.`);
}

export function failure(
  failureClass: ModelFailure["class"],
  reason: string,
  message: string,
  retryAfter?: number,
): ModelFailure {
  return {
    kind: "failed",
    class: failureClass,
    reason,
    message,
    ...(retryAfter === undefined ? {} : { retryAfterMs: retryAfter }),
  };
}

/** One line, at most MAX_QUOTE characters. */
export function quote(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length > MAX_QUOTE ? `${line.slice(0, MAX_QUOTE).toWellFormed()}…` : line;
}

/** The outcome without the key, whoever echoed it, and without anything that looks like one. */
export function withoutKey(outcome: ModelFailure, key: string | undefined): ModelFailure {
  const scrubbed = key === undefined || key === "" ? outcome.message : withoutText(outcome.message, key);
  return { ...outcome, message: scrubbed.replaceAll(/\b(sk|pk|rk|key)-[A-Za-z0-9_*.-]{8,}/g, "[key]") };
}

/** A key that a quote was cut in is a key, too: most of one is enough to guess the rest. */
const MIN_CUT_KEY = 6;

function withoutText(message: string, key: string): string {
  let text = message.replaceAll(key, "[key]");
  for (let length = key.length - 1; length >= MIN_CUT_KEY; length -= 1) {
    text = text.replaceAll(`${key.slice(0, length)}…`, "[key]…");
  }
  return text;
}
