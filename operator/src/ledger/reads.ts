/** Reading a run back, whole: what a worker that just claimed it needs to go on where the last commit stands. */
import type { Evidence } from "#rules/provenance.ts";
import { ofRun, triggersOf } from "./chain.ts";
import type { Runner } from "./database.ts";
import { readEvidence } from "./evidence.ts";
import { statement } from "./statement.ts";
import { CROSSED_ANEW, TIMES_UNSENT } from "./unsent.ts";

const readRunStatement = statement({
  name: "read_run",
  params: { run: "uuid" },
  columns: {
    id: "uuid",
    conversation_id: "uuid",
    request_id: "uuid",
    reconciles: "uuid?",
    agent_id: "uuid",
    connector: "text",
    conversation_key: "text",
    namespace: "text",
    agent_name: "text",
    suspended: "bool",
    spec: "jsonb",
    slice: "jsonb",
    status: "text",
    next_ordinal: "int4",
    attempts: "int4",
    amend_seq: "int8",
    stop: "bool",
    interrupted: "bool",
    committed: "bool",
    replied: "bool",
    model_calls: "int4",
    tool_calls: "int4",
    input_tokens: "int8",
    output_tokens: "int8",
    spent_micros: "int8",
    worked_ms: "int8",
    inherits: "uuid[]",
    continued_through: "int4",
  },
  text: `
    select r.id, r.conversation_id, r.request_id,
           (select q.reconciles from runs x join logical_requests q on q.id = x.request_id
            where x.id = any (r.inherits || r.id) and q.reconciles is not null limit 1) as reconciles,
           r.agent_id, c.connector, c.ext_key as conversation_key, a.namespace, a.name as agent_name, a.suspended,
           g.spec, r.slice, r.status, r.next_ordinal, r.attempts, r.amend_seq, r.stop_requested_at is not null as stop, r.interrupted,
           r.committed_at is not null as committed, r.reply_at is not null as replied,
           r.model_calls, r.tool_calls, r.input_tokens, r.output_tokens, r.spent_micros,
           r.worked_ms + coalesce(ceil(extract(epoch from pawl_now() - r.leased_at) * 1000), 0)::bigint as worked_ms, r.inherits,
           coalesce((select max(x.next_ordinal) - 1 from runs x where x.id = any (r.inherits) and x.request_id <> r.request_id), 0) as continued_through
    from runs r join conversations c on c.id = r.conversation_id join agents a on a.id = r.agent_id
    join agent_generations g on g.agent_id = r.agent_id and g.generation = r.agent_generation
    where r.id = :run`,
});

const readTriggersStatement = statement({
  name: "read_triggers",
  params: { run: "uuid" },
  columns: {
    event_id: "uuid",
    seq: "int8",
    body: "text?",
    actor: "text",
    kind: "text",
    edits: "jsonb",
    delivered_ordinal: "int4?",
    role: "text",
  },
  // Of a message that was edited before it was read, the newest words count.
  text: `
    with t as (${triggersOf("(select z.inherits || z.id from runs z where z.id = :run)::uuid[]")})
    select t.event_id, e.seq, e.body, coalesce(a.display, a.ext_id) as actor, e.kind, t.delivered_ordinal, t.role,
           (select coalesce(jsonb_agg(jsonb_build_object('seq', d.seq, 'text', coalesce(d.body, '')) order by d.seq), '[]')
              from message_events d where d.about = e.id and d.kind = 'edit' and d.state = 'applied') as edits
    from t join message_events e on e.id = t.event_id join actors a on a.id = e.actor_id
    where e.state in ('in_turn', 'accounted') order by e.order_key, e.seq`,
});

const readStepsStatement = statement({
  name: "read_steps",
  params: { run: "uuid" },
  columns: {
    ordinal: "int4",
    seen_seq: "int8",
    response: "jsonb",
    compaction: "int4",
    resumed: "bool",
    edits: "jsonb?",
  },
  text: `
    select ordinal, seen_seq, response, coalesce((request ->> 'compaction')::int, 0) as compaction,
           coalesce((request ->> 'resumed')::bool, false) as resumed, request #> '{rows,edits}' as edits
    from run_steps where ${ofRun("run_id")} order by ordinal`,
});

const readCallsStatement = statement({
  name: "read_calls",
  params: { run: "uuid" },
  columns: {
    id: "uuid",
    run_id: "uuid",
    ordinal: "int4",
    idx: "int4",
    tool: "text",
    class: "text",
    kind: "text",
    args: "jsonb",
    args_hash: "text",
    target: "text?",
    gate: "text",
    outcome: "text?",
    result: "text?",
  },
  text: `
    select id, run_id, ordinal, idx, tool, class, kind, args, args_hash, target, gate, outcome, result
    from tool_calls where ${ofRun("run_id")} order by ordinal, idx`,
});

const readEffectsStatement = statement({
  name: "read_effects",
  params: { run: "uuid" },
  columns: {
    id: "uuid",
    call_id: "uuid",
    kind: "text",
    target: "text",
    state: "text",
    attempt: "int4",
    nonce: "uuid",
    keyed: "bool",
    observation: "text?",
    wait_ms: "int8",
    unsent: "int4",
  },
  text: `
    select e.id, e.call_id, e.kind, e.target, e.state, e.attempt, e.nonce, e.keyed, e.observation,
           greatest(0, ceil(extract(epoch from coalesce(e.settle_at, pawl_now()) - pawl_now()) * 1000))::bigint as wait_ms,
           ${TIMES_UNSENT} as unsent
    from commitment_effects e where ${ofRun("e.run_id")} and not ${CROSSED_ANEW} order by e.dispatched_at, e.id`,
});

const readHistoryStatement = statement({
  name: "read_history",
  params: { run: "uuid", turns: "int4" },
  columns: { run_id: "uuid", actor: "text?", body: "text?", reply: "text?", status: "text" },
  // Earlier turns of the conversation as messages and replies only, oldest first. One that this run goes on with is no
  // history: its steps are this run's own.
  text: `
    with earlier as (
      select p.id, p.queued_at, p.status from runs r join runs p on p.conversation_id = r.conversation_id and not p.live and p.id <> r.id
      where r.id = :run and p.superseded_by is null and p.id <> all (r.inherits) order by p.queued_at desc, p.id desc limit :turns)
    select p.id as run_id, coalesce(a.display, a.ext_id) as actor, coalesce(e.shown, e.body) as body, p.status,
      (select c.args ->> 'text' from tool_calls c where c.run_id = p.id and c.class = 'reply' and c.outcome = 'real') as reply
    from earlier p left join run_triggers t on t.run_id = p.id
      left join message_events e on e.id = t.event_id and e.state = 'accounted' left join actors a on a.id = e.actor_id
    order by p.queued_at, p.id, e.order_key, e.seq`,
});

export type TriggerRow = {
  readonly eventId: string;
  readonly seq: number;
  /** As it was edited last. */
  readonly text: string;
  /** `seq` of that edit; null: as it was sent. */
  readonly edit: number | null;
  readonly edits: readonly { readonly seq: number; readonly text: string }[];
  readonly actor: string;
  /** message, or edit: new words for a message that was read already. */
  readonly kind: string;
  /** How it came into this turn first. answer: the model reads it as the result of its question. */
  readonly role: string;
  /** The first step whose request contained it; null: none has been recorded yet. */
  readonly deliveredOrdinal: number | null;
};
export type RecordedStep = {
  readonly ordinal: number;
  readonly seenSeq: number;
  readonly response: unknown;
  /** How hard tool results were shortened in its request. */
  readonly compaction: number;
  /** Its request said that another worker goes on. */
  readonly resumed: boolean;
  /** Of the messages in its request that had been edited: which edit. */
  readonly edits: readonly (readonly [seq: number, edit: number])[];
};
export type RecordedCall = {
  readonly id: string;
  /** The run that made it: this one, or one that it inherits. */
  readonly runId: string;
  readonly ordinal: number;
  readonly idx: number;
  readonly tool: string;
  readonly class: string;
  readonly kind: string;
  readonly args: unknown;
  readonly argsHash: string;
  readonly target: string | null;
  readonly gate: string;
  readonly outcome: string | null;
  readonly result: string | null;
};
export type RecordedEffect = {
  readonly id: string;
  readonly callId: string;
  readonly kind: string;
  readonly target: string;
  readonly state: "dispatched" | "confirmed" | "failed" | "unknown";
  readonly attempt: number;
  readonly nonce: string;
  readonly keyed: boolean;
  readonly observation: string | null;
  readonly waitMs: number;
  /** How often its call has crossed and was given up before its first byte; 0: this effect was not. */
  readonly unsent: number;
};
export type EarlierTurn = {
  readonly runId: string;
  readonly messages: readonly { actor: string; text: string }[];
  readonly reply: string | null;
  readonly status: string;
};

export type RunRecord = {
  /** The Agent takes no new turns now. */
  readonly suspended: boolean;
  readonly stopRequested: boolean;
  /** Its lease lapsed, and no response has been committed since. */
  readonly interrupted: boolean;
  readonly committed: boolean;
  readonly replied: boolean;
  readonly id: string;
  readonly conversationId: string;
  readonly requestId: string;
  /** The earlier request whose effects it puts right. */
  readonly reconciles: string | null;
  readonly agentId: string;
  readonly connector: string;
  readonly conversationKey: string;
  readonly namespace: string;
  readonly agentName: string;
  readonly spec: unknown;
  readonly slice: unknown;
  readonly status: string;
  readonly nextOrdinal: number;
  readonly attempts: number;
  readonly amendSeq: number;
  readonly modelCalls: number;
  readonly toolCalls: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Millionths of a US dollar that count against its limit. */
  readonly spentMicros: number;
  /** Time at work, up to this read. */
  readonly workedMs: number;
  /** The runs whose steps are its own, oldest first. */
  readonly inherits: readonly string[];
  /** Steps up to this one are of an earlier request that it goes on with: they count against no limit of its own. */
  readonly continuedThrough: number;
  readonly triggers: readonly TriggerRow[];
  readonly steps: readonly RecordedStep[];
  readonly calls: readonly RecordedCall[];
  readonly effects: readonly RecordedEffect[];
  readonly earlier: readonly EarlierTurn[];
  /** What its requests contain of the outside. */
  readonly evidence: readonly Evidence[];
};

/** Earlier turns that are read for a request; what does not fit its share of the context is left out from the oldest. */
export const MAX_EARLIER_TURNS = 50;

/** Oldest first; of a call that crossed more than once, the newest. */
export async function readEffects(db: Runner, runId: string): Promise<RecordedEffect[]> {
  return (await db.rows(readEffectsStatement, { run: runId })).map((row) => ({
    id: row.id,
    callId: row.call_id,
    kind: row.kind,
    target: row.target,
    state: row.state as RecordedEffect["state"],
    attempt: row.attempt,
    nonce: row.nonce,
    keyed: row.keyed,
    observation: row.observation,
    waitMs: row.wait_ms,
    unsent: row.unsent,
  }));
}

/** All messages of a turn, in the order in which they were sent. */
export async function readTriggers(db: Runner, runId: string): Promise<TriggerRow[]> {
  return (await db.rows(readTriggersStatement, { run: runId })).map((row) => {
    const edits = row.edits as { seq: number; text: string }[];
    const edit = edits.at(-1);
    return {
      eventId: row.event_id,
      seq: row.seq,
      text: edit?.text ?? row.body ?? "",
      edit: edit?.seq ?? null,
      edits: [{ seq: 0, text: row.body ?? "" }, ...edits],
      actor: row.actor,
      kind: row.kind,
      role: row.role,
      deliveredOrdinal: row.delivered_ordinal,
    };
  });
}

export async function readRun(db: Runner, runId: string): Promise<RunRecord> {
  const run = await db.one(readRunStatement, { run: runId });
  const [triggers, steps, calls, effects, history, evidence] = [
    await readTriggers(db, runId),
    await db.rows(readStepsStatement, { run: runId }),
    await db.rows(readCallsStatement, { run: runId }),
    await readEffects(db, runId),
    await db.rows(readHistoryStatement, { run: runId, turns: MAX_EARLIER_TURNS }),
    await readEvidence(db, runId, MAX_EARLIER_TURNS),
  ];
  return {
    id: run.id,
    conversationId: run.conversation_id,
    requestId: run.request_id,
    reconciles: run.reconciles,
    agentId: run.agent_id,
    connector: run.connector,
    conversationKey: run.conversation_key,
    namespace: run.namespace,
    agentName: run.agent_name,
    spec: run.spec,
    slice: run.slice,
    status: run.status,
    nextOrdinal: run.next_ordinal,
    attempts: run.attempts,
    amendSeq: run.amend_seq,
    suspended: run.suspended,
    stopRequested: run.stop,
    interrupted: run.interrupted,
    committed: run.committed,
    replied: run.replied,
    modelCalls: run.model_calls,
    toolCalls: run.tool_calls,
    inputTokens: run.input_tokens,
    outputTokens: run.output_tokens,
    spentMicros: run.spent_micros,
    workedMs: run.worked_ms,
    inherits: run.inherits,
    continuedThrough: run.continued_through,
    triggers,
    steps: steps.map((row) => ({
      ordinal: row.ordinal,
      seenSeq: row.seen_seq,
      response: row.response,
      compaction: row.compaction,
      resumed: row.resumed,
      edits: (row.edits ?? []) as RecordedStep["edits"],
    })),
    calls: calls.map(({ args_hash, run_id, ...row }) => ({ ...row, runId: run_id, argsHash: args_hash })),
    effects,
    earlier: turnsOf(history),
    evidence,
  };
}

/** Rows of one query, in its order. */
export function turnsOf(
  rows: readonly { run_id: string; actor: string | null; body: string | null; reply: string | null; status: string }[],
): EarlierTurn[] {
  const turns = new Map<
    string,
    { runId: string; messages: { actor: string; text: string }[]; reply: string | null; status: string }
  >();
  for (const row of rows) {
    const turn = turns.get(row.run_id) ?? { runId: row.run_id, messages: [], reply: row.reply, status: row.status };
    if (row.body !== null && row.actor !== null) turn.messages.push({ actor: row.actor, text: row.body });
    turns.set(row.run_id, turn);
  }
  return [...turns.values()];
}
