/** Steps and calls: the response whole before any call runs, results before the next request is built (I6). */
import type { Runner } from "./database.ts";
import { insertEvidence, type Provenance, PROVENANCE_COLUMNS, provenanceColumns } from "./evidence.ts";
import { statement } from "./statement.ts";

const commitResponseStatement = statement({
  name: "commit_response",
  guarded: true,
  params: {
    run: "uuid",
    token: "int8",
    nonce: "uuid",
    ordinal: "int4",
    seen_seq: "int8",
    request: "jsonb",
    toolset: "jsonb?",
    response: "jsonb",
    usage: "jsonb?",
    replayability: "text",
    calls: "jsonb",
    open: "bool",
    gated: "bool",
    model_calls: "int4",
    tool_calls: "int4",
    input_tokens: "int8",
    output_tokens: "int8",
    cost: "int8?",
    spent: "int8",
    reserve: "bool",
  },
  columns: { verdict: "text", stop: "bool", amend_seq: "int8" },
  text: `
    with locked as ( -- by name: all of its columns through all of these parts would be a tenth of what a step costs
      select id, root_id, agent_id, conversation_id, live, next_ordinal, last_nonce, lease_token, lease_owner, lease_until,
             stop_requested_at, amend_seq
      from runs where id = :run for no key update),
    verdict as (
      select id, root_id, agent_id, conversation_id, stop_requested_at, amend_seq, case
        when last_nonce = :nonce then 'already'
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() or next_ordinal <> :ordinal then 'fenced'
        else 'committed' end as verdict from locked),
    step as (
      insert into run_steps (run_id, ordinal, lease_token, nonce, seen_seq, request, response, usage, cost_micros, replayability, committed_at)
      select id, :ordinal, :token, :nonce, :seen_seq, :request, :response, :usage, :cost, :replayability, pawl_now()
      from verdict where verdict = 'committed'),
    toolset as (
      insert into toolsets (hash, tools, at) select t.hash, t.tools, pawl_now()
      from verdict v, jsonb_to_record(:toolset) as t (hash text, tools jsonb)
      where v.verdict = 'committed' and t.hash is not null on conflict (hash) do nothing),
    calls as (
      insert into tool_calls (id, run_id, ordinal, idx, provider_id, tool, class, kind, args, args_hash, target, gate, outcome, result,
                              evidence, closed_at)
      select c.id, v.id, :ordinal, c.idx, c.provider_id, c.tool, c.class, c.kind, c.args, c.args_hash, c.target, c.gate, c.outcome, c.result,
             coalesce(c.evidence, '{}'), case when c.outcome is not null then pawl_now() end
      from verdict v, jsonb_to_recordset(:calls) as c (id uuid, idx int, provider_id text, tool text, class text, kind text,
             args jsonb, args_hash text, target text, gate text, outcome text, result text, ${PROVENANCE_COLUMNS})
      where v.verdict = 'committed'),
    sources as (${insertEvidence(`jsonb_to_recordset(:calls) as c (id uuid, ${PROVENANCE_COLUMNS})`, "v.verdict = 'committed'")}),
    delivered as (
      update run_triggers t set delivered_ordinal = :ordinal from verdict v, message_events e
      where v.verdict = 'committed' and t.run_id = v.id and t.delivered_ordinal is null
        and e.id = t.event_id and e.seq <= :seen_seq),
    advanced as (
      update runs r set next_ordinal = :ordinal + 1, last_nonce = :nonce, attempts = 0, interrupted = false, streamed = 0, reason = null, message = null,
             status = case when :open then 'awaiting_tool' else 'running' end,
             min_code = case when :gated then greatest(r.min_code, 2) else r.min_code end, -- older code would not wait
             model_calls = r.model_calls + :model_calls, tool_calls = r.tool_calls + :tool_calls,
             input_tokens = r.input_tokens + :input_tokens, output_tokens = r.output_tokens + :output_tokens,
             cost_micros = r.cost_micros + :cost, spent_micros = r.spent_micros + :spent,
             reserved_calls = case when :reserve then 1 else 0 end,
             version = r.version + 1, changed_at = pawl_now()
      from verdict v where r.id = v.id and v.verdict = 'committed')
    select verdict, stop_requested_at is not null as stop, amend_seq from verdict`,
});

const commitResultsStatement = statement({
  name: "commit_results",
  guarded: true,
  params: { run: "uuid", token: "int8", nonce: "uuid", results: "jsonb", bound: "int4?" },
  columns: { verdict: "text", stop: "bool", amend_seq: "int8" },
  text: `
    with locked as (select * from runs where id = :run for no key update),
    verdict as (
      select *, case
        when last_nonce = :nonce then 'already'
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        else 'committed' end as verdict from locked),
    closed as (
      update tool_calls c set outcome = r.outcome, result = r.result, evidence = coalesce(r.evidence, '{}'), closed_at = pawl_now()
      from verdict v, jsonb_to_recordset(:results) as r (id uuid, outcome text, result text, ${PROVENANCE_COLUMNS})
      where v.verdict = 'committed' and c.run_id = v.id and c.id = r.id and c.outcome is null
      returning c.id, r.source_id, r.source, r.audience),
    sources as (${insertEvidence("closed c", "v.verdict = 'committed'")}),
    rest as ( -- not the last open call: still where it was
      select exists (select from tool_calls c where c.run_id = v.id and c.outcome is null and c.class <> 'reply'
                       and not exists (select from jsonb_to_recordset(:results) as o (id uuid) where o.id = c.id)) as open
      from verdict v where v.verdict = 'committed'),
    advanced as (
      update runs r set last_nonce = :nonce, version = r.version + 1, changed_at = pawl_now(),
             interruptions = r.interruptions + (:bound is not null)::int,
             closed_to_interrupts = r.closed_to_interrupts or coalesce(r.interruptions + 1 >= :bound, false),
             status = case when rest.open then r.status else 'running' end,
             reserved_calls = case when rest.open then r.reserved_calls else 1 end
      from verdict v, rest where r.id = v.id),
    interrupted as (
      update logical_requests q set interruptions = q.interruptions + 1 from verdict v
      where q.id = v.request_id and v.verdict = 'committed' and :bound is not null)
    select verdict, stop_requested_at is not null as stop, amend_seq from verdict`,
});

export type CallOutcome = "real" | "rejected" | "skipped" | "cancelled" | "unknown" | "withheld";

export type CallGate = "none" | "open" | "approved" | "rejected" | "expired" | "withdrawn";

export type CallRow = Provenance & {
  readonly id: string;
  readonly idx: number;
  readonly providerId: string | null;
  readonly tool: string;
  readonly class: string;
  readonly kind: string;
  readonly args: unknown;
  readonly argsHash: string;
  readonly target: string | null;
  /** open: it runs only after a person has approved it. Absent: none, nobody has to. */
  readonly gate?: CallGate;
  /** Both null: the call still has to run. */
  readonly outcome: CallOutcome | null;
  readonly result: string | null;
};

export type Step = {
  readonly runId: string;
  readonly token: number;
  readonly nonce: string;
  readonly ordinal: number;
  readonly seenSeq: number;
  readonly request: unknown;
  /** The tools of the request, where the ledger may not have them yet. */
  readonly toolset?: unknown;
  readonly response: unknown;
  readonly usage: { inputTokens: number; outputTokens: number; cachedInputTokens?: number } | null;
  /** Millionths of a US dollar; null when a price or the usage is not known. */
  readonly costMicros: number | null;
  /** What the limit counts: the cost, or an estimate of it. */
  readonly spentMicros: number;
  readonly calls: readonly CallRow[];
  /** False for the closing message, which Pawl words itself. */
  readonly modelCall: boolean;
};

/** What came back with a commit: a decision point without a round trip of its own. */
export type Signals = { readonly stop: boolean; readonly amendSeq: number };
export type Committed =
  | ({ readonly kind: "committed" | "already" } & Signals)
  | { readonly kind: "fenced" }
  | { readonly kind: "ended" };

const committed = (row: { verdict: string; stop: boolean; amend_seq: number }): Committed =>
  row.verdict === "committed" || row.verdict === "already"
    ? { kind: row.verdict, stop: row.stop, amendSeq: row.amend_seq }
    : { kind: row.verdict === "ended" ? "ended" : "fenced" };

export async function commitResponse(db: Runner, step: Step): Promise<Committed> {
  const effectful = step.calls.some(
    (call) => call.class === "effectful" || call.class === "coarse" || call.class === "reply",
  );
  return committed(
    await db.one(commitResponseStatement, {
      run: step.runId,
      token: step.token,
      nonce: step.nonce,
      ordinal: step.ordinal,
      seen_seq: step.seenSeq,
      request: step.request,
      toolset: step.toolset ?? null,
      response: step.response,
      usage: step.usage,
      replayability: effectful ? "effectful" : "pure",
      calls: step.calls.map((call) => ({
        id: call.id,
        idx: call.idx,
        provider_id: call.providerId,
        tool: call.tool,
        class: call.class,
        kind: call.kind,
        args: call.args,
        args_hash: call.argsHash,
        target: call.target,
        gate: call.gate ?? "none",
        outcome: call.outcome,
        result: call.result,
        ...provenanceColumns(call),
      })),
      gated: step.calls.some((call) => call.gate === "open"),
      open: step.calls.some((call) => call.outcome === null && call.class !== "reply"),
      model_calls: step.modelCall ? 1 : 0,
      tool_calls: step.calls.filter((call) => call.class !== "reply").length,
      input_tokens: step.usage?.inputTokens ?? 0,
      output_tokens: step.usage?.outputTokens ?? 0,
      cost: step.costMicros,
      spent: step.spentMicros,
      // Nothing is open: what comes next is a model call.
      reserve: step.calls.every((call) => call.outcome !== null),
    }),
  );
}

export type CallResult = Provenance & { readonly id: string; readonly outcome: CallOutcome; readonly result: string };

/** `interruptedOf`: among them is an answer that newer input kept back, and so many interruptions are one request's. */
export async function commitResults(
  db: Runner,
  run: { runId: string; token: number; nonce: string },
  results: readonly CallResult[],
  interruptedOf: number | null = null,
): Promise<Committed> {
  const rows = results.map((result) => ({
    id: result.id,
    outcome: result.outcome,
    result: result.result,
    ...provenanceColumns(result),
  }));
  return committed(
    await db.one(commitResultsStatement, {
      run: run.runId,
      token: run.token,
      nonce: run.nonce,
      results: rows,
      bound: interruptedOf,
    }),
  );
}
