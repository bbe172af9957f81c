/** A whole turn with its times, for a person who asks why. One statement, so that everything is of one moment. */
import { ofChain } from "./chain.ts";
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";
import { QUESTIONS_COLUMN, type StoryQuestion } from "./story-questions.ts";
import { MAIL_COLUMNS, type StoryInterrupt, type StoryLink, type StoryMessage, type StoryRun } from "./story-mail.ts";

export type { StoryQuestion } from "./story-questions.ts";
export type { StoryInterrupt, StoryLink, StoryMessage, StoryRun } from "./story-mail.ts";

const readStoryStatement = statement({
  name: "read_story",
  params: { run: "uuid" },
  columns: {
    id: "uuid",
    namespace: "text",
    agent: "text",
    generation: "int8",
    status: "text",
    live: "bool",
    reason: "text?",
    message: "text?",
    lease_token: "int8",
    lease_owner: "text?",
    lease_until: "timestamptz?",
    due_at: "timestamptz?",
    queued_at: "timestamptz",
    started_at: "timestamptz?",
    ended_at: "timestamptz?",
    stop_requested_at: "timestamptz?",
    committed_at: "timestamptz?",
    messages: "jsonb",
    steps: "jsonb",
    calls: "jsonb",
    effects: "jsonb",
    interrupts: "jsonb",
    approvals: "jsonb",
    questions: "jsonb",
    inherits: "uuid[]",
    runs: "jsonb",
    reconciles: "jsonb?",
    reconciled_by: "jsonb",
  },
  // Effects in the order of their calls, which is the order of their crossings; `dispatched_at` is of the last attempt.
  text: `
    select r.id, a.namespace, a.name as agent, r.agent_generation as generation, r.status, r.live, r.reason, r.message,
      r.lease_token, r.lease_owner, r.lease_until, r.due_at, r.queued_at, r.started_at, r.ended_at, r.stop_requested_at, r.committed_at,
      (select coalesce(jsonb_agg(jsonb_build_object('ordinal', s.ordinal, 'token', s.lease_token, 'at', s.committed_at,
           'text', s.response ->> 'text', 'run', s.run_id) order by s.ordinal), '[]') from run_steps s where ${ofChain("s.run_id", "r")}) as steps,
      (select coalesce(jsonb_agg(jsonb_build_object('id', c.id, 'ordinal', c.ordinal, 'tool', c.tool, 'class', c.class, 'args', c.args,
           'outcome', c.outcome, 'result', c.result, 'at', c.closed_at) order by c.ordinal, c.idx), '[]')
         from tool_calls c where ${ofChain("c.run_id", "r")}) as calls,
      (select coalesce(jsonb_agg(jsonb_build_object('id', f.id, 'run', f.run_id, 'call', f.call_id, 'kind', f.kind, 'target', f.target, 'state', f.state,
           'attempt', f.attempt, 'unsent', f.unsent, 'keyed', f.keyed, 'token', f.lease_token, 'dispatchedAt', f.dispatched_at, 'settleAt', f.settle_at,
           'settledAt', f.settled_at, 'observation', f.observation, 'resolvedBy', f.resolved_by, 'compensates', f.compensates,
           'sources', (select coalesce(jsonb_agg(distinct e.source), '[]') from tool_source_evidence e where e.id = any (f.built_on))) order by c.ordinal, c.idx, f.part, f.dispatched_at), '[]')
         from commitment_effects f join tool_calls c on c.id = f.call_id where ${ofChain("f.run_id", "r")}) as effects,
      (select coalesce(jsonb_agg(jsonb_build_object('id', p.id, 'call', p.call_id, 'state', p.state, 'requestedAt', p.requested_at,
           'expiresAt', p.expires_at, 'decidedAt', p.decided_at, 'decisions',
           (select coalesce(jsonb_agg(jsonb_build_object('actor', d.actor, 'asked', d.asked, 'done', d.done, 'why', d.why,
                'reason', d.reason, 'at', d.at) order by d.at), '[]') from approval_decisions d where d.approval_id = p.id)) order by p.id), '[]')
         from approvals p where ${ofChain("p.run_id", "r")}) as approvals, r.inherits,${QUESTIONS_COLUMN},${MAIL_COLUMNS}
    from runs r join agents a on a.id = r.agent_id where r.id = :run`,
});

export type StoryStep = {
  readonly ordinal: number;
  readonly token: number;
  readonly at: Date;
  readonly text: string | null;
  /** The run that made it: this one, or one that it inherits. */
  readonly run: string;
};
export type StoryCall = {
  readonly id: string;
  readonly ordinal: number;
  readonly tool: string;
  readonly class: string;
  readonly args: unknown;
  readonly outcome: string | null;
  readonly result: string | null;
  readonly at: Date | null;
};
export type StoryEffect = {
  readonly id: string;
  readonly run: string;
  readonly call: string;
  readonly kind: string;
  readonly target: string;
  readonly state: "dispatched" | "confirmed" | "failed" | "unknown";
  readonly attempt: number;
  /** Failed, because its sender gave it up before its first byte. */
  readonly unsent: boolean;
  readonly keyed: boolean;
  readonly token: number | null;
  /** Of the last attempt. */
  readonly dispatchedAt: Date;
  readonly settleAt: Date | null;
  readonly settledAt: Date | null;
  readonly observation: string | null;
  /** Null: its own sender saw the outcome. */
  readonly resolvedBy: string | null;
  /** From where came what a reply was built on. */
  readonly sources: readonly string[];
  /** The effect that this one undoes. */
  readonly compensates: string | null;
};
export type StoryDecision = {
  readonly actor: string;
  readonly asked: "approve" | "reject";
  readonly done: "approved" | "rejected" | "late" | "refused";
  readonly why: string | null;
  readonly reason: string | null;
  readonly at: Date;
};
/** A call that waited for a person, with everything that anybody said about it. */
export type StoryApproval = {
  readonly id: string;
  readonly call: string;
  readonly state: "open" | "approved" | "rejected" | "expired" | "withdrawn";
  readonly requestedAt: Date;
  readonly expiresAt: Date;
  readonly decidedAt: Date | null;
  readonly decisions: readonly StoryDecision[];
};

export type Story = {
  readonly id: string;
  readonly namespace: string;
  readonly agent: string;
  readonly generation: number;
  readonly status: string;
  readonly live: boolean;
  readonly reason: string | null;
  readonly message: string | null;
  /** Claims so far: each raises it by one. */
  readonly leaseToken: number;
  readonly leaseOwner: string | null;
  readonly leaseUntil: Date | null;
  readonly dueAt: Date | null;
  readonly queuedAt: Date;
  readonly startedAt: Date | null;
  readonly endedAt: Date | null;
  readonly stopRequestedAt: Date | null;
  readonly committedAt: Date | null;
  readonly messages: readonly StoryMessage[];
  readonly steps: readonly StoryStep[];
  readonly calls: readonly StoryCall[];
  readonly effects: readonly StoryEffect[];
  readonly interrupts: readonly StoryInterrupt[];
  readonly approvals: readonly StoryApproval[];
  /** The runs whose steps it goes on with, oldest first. */
  readonly inherits: readonly string[];
  /** All of them and itself, oldest first. */
  readonly runs: readonly StoryRun[];
  readonly questions: readonly StoryQuestion[];
  /** The turn that was too late to be corrected, and is put right in this one. */
  readonly reconciles: StoryLink | null;
  /** Turns that put this one right. */
  readonly reconciledBy: readonly StoryLink[];
};

const TIMES = new Set([
  "at",
  "said",
  "queuedAt",
  "startedAt",
  "endedAt",
  "requestedAt",
  "askedAt",
  "closedAt",
  "expiresAt",
  "decidedAt",
  "dispatchedAt",
  "settleAt",
  "settledAt",
]);

/** Rows that came as JSON: their times are text there. */
function dated<T>(rows: unknown): T[] {
  return (rows as Record<string, unknown>[]).map(
    (row) =>
      Object.fromEntries(
        Object.entries(row).map(([key, value]) => [
          key,
          TIMES.has(key) && typeof value === "string" ? new Date(value) : value,
        ]),
      ) as T,
  );
}

export async function readStory(db: Runner, runId: string): Promise<Story | null> {
  const [row] = await db.rows(readStoryStatement, { run: runId });
  if (row === undefined) return null;
  return {
    id: row.id,
    namespace: row.namespace,
    agent: row.agent,
    generation: row.generation,
    status: row.status,
    live: row.live,
    reason: row.reason,
    message: row.message,
    leaseToken: row.lease_token,
    leaseOwner: row.lease_owner,
    leaseUntil: row.lease_until,
    dueAt: row.due_at,
    queuedAt: row.queued_at,
    startedAt: row.started_at,
    endedAt: row.ended_at,
    stopRequestedAt: row.stop_requested_at,
    committedAt: row.committed_at,
    messages: dated<StoryMessage>(row.messages),
    steps: dated<StoryStep>(row.steps),
    calls: dated<StoryCall>(row.calls),
    effects: dated<StoryEffect>(row.effects),
    interrupts: dated<StoryInterrupt>(row.interrupts),
    inherits: row.inherits,
    runs: dated<StoryRun>(row.runs),
    reconciles: row.reconciles as StoryLink | null,
    reconciledBy: row.reconciled_by as StoryLink[],
    questions: dated<StoryQuestion>(row.questions).map((question) => ({
      ...question,
      late: dated<StoryQuestion["late"][number]>(question.late),
    })),
    approvals: dated<StoryApproval>(row.approvals).map((approval) => ({
      ...approval,
      decisions: dated<StoryDecision>(approval.decisions),
    })),
  };
}
