/**
 * Questions that a turn asks a person: the run gives its lease back and is due when the question expires, an answer
 * makes it due at once. Whoever answers holds the conversation and the run, so that an answer, the expiry, a stop and
 * another answer have one order: the first counts. Whoever says it gains nothing by it.
 */
import { v7 as uuidv7 } from "uuid";
import { answers } from "./answers.ts";
import type { Runner } from "./database.ts";
import { untilKnown } from "./looks.ts";
import { statement } from "./statement.ts";
import { isSubject, REQUEST_ID } from "./subject.ts";
import { ensureActor } from "./turns.ts";
import { givesLeaseWhen } from "./work.ts";

const parkForInputStatement = statement({
  name: "park_for_input",
  guarded: true,
  params: {
    run: "uuid",
    token: "int8",
    nonce: "uuid",
    call: "uuid",
    seen_seq: "int8",
    question: "uuid",
    text: "text",
    options: "jsonb",
    expires_ms: "int8",
    message: "text",
    emission: "uuid",
    post_ms: "int4",
  },
  columns: { verdict: "text", reserved: "bool" },
  // `expires_at` is of a row that nobody changes but in its state. One question of a response is asked, and ordinals
  // never repeat in a request: so its emission has the ordinal as its sequence, whoever resumes it.
  text: `
    with locked as (
      select r.id, r.conversation_id, r.request_id, r.live, r.lease_token, r.lease_owner, r.lease_until, r.last_nonce, r.stop_requested_at,
             r.amend_seq, r.hold_seq, r.hold_until, r.closed_to_interrupts, c.id as call_id, c.ordinal,
             (select q.expires_at from questions q where q.call_id = c.id) as expires_at,
             (select q.id from questions q where q.call_id = c.id) as known, pawl_now() as at
      from runs r join tool_calls c on c.run_id = r.id and c.id = :call
      where r.id = :run for no key update of r, c),
    verdict as (
      select *, case
        when last_nonce = :nonce then 'already'
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        when stop_requested_at is not null then 'stopping'
        when expires_at <= at then 'expired'
        when amend_seq > :seen_seq and not closed_to_interrupts then 'newer_input'
        when hold_seq > :seen_seq and hold_until > at and not closed_to_interrupts then 'hold'
        else 'parked' end as verdict from locked),
    asked as (
      insert into questions (id, call_id, run_id, conversation_id, request_id, text, options, asked_at, expires_at)
      select :question, call_id, id, conversation_id, request_id, :text, :options, at, at + :expires_ms * interval '1 ms'
      from verdict where verdict = 'parked' on conflict (call_id) do nothing),
    emission as (
      insert into emissions (request_id, kind, sequence, run_id, text, nonce, reserved_at, due_at)
      select request_id, 'question', ordinal, id, :text, :emission, at, at + :post_ms * interval '1 ms'
      from verdict where verdict = 'parked' on conflict do nothing returning nonce),
    ended_question as (
      update questions q set state = case v.verdict when 'expired' then 'expired' else 'withdrawn' end, closed_at = v.at from verdict v
      where q.call_id = v.call_id and q.state = 'open' and v.verdict in ('expired', 'newer_input', 'stopping')),
    parked as (
      update runs r set${givesLeaseWhen("v.verdict = 'parked'")},
             due_at = case when v.verdict = 'parked' then coalesce(v.expires_at, v.at + :expires_ms * interval '1 ms') end,
             status = case when v.verdict = 'parked' then 'awaiting_input' else r.status end,
             reason = case when v.verdict = 'parked' then 'Question' end,
             message = case when v.verdict = 'parked' then :message || coalesce(known, :question) end,
             parked_at = case when v.verdict = 'parked' then v.at else r.parked_at end,
             last_nonce = case when v.verdict = 'parked' then :nonce else r.last_nonce end,
             version = r.version + 1, changed_at = v.at
      from verdict v where r.id = v.id and v.verdict in ('parked', 'expired'))
    select v.verdict, exists (select from emission) or exists (
             select from emissions e where e.request_id = v.request_id and e.kind = 'question' and e.sequence = v.ordinal and e.nonce = :emission) as reserved
    from verdict v`,
});

const answerQuestionStatement = statement({
  name: "answer_question",
  guarded: true,
  params: {
    request: "uuid",
    decision: "text",
    namespace_uid: "text",
    object: "text",
    object_uid: "text?",
    actor: "uuid",
    who: "text",
    event: "uuid",
    text: "text",
  },
  columns: { verdict: "text", over: "text?", by: "text?", run_id: "uuid?", notified: "bool" },
  // As decide_approval: which Run this is stands in other tables, so a run that changed meanwhile is looked at again.
  text: `
    with conversation_row as (
      select c.id, c.head_seq from questions q join conversations c on c.id = q.conversation_id where q.id = :request for no key update of c),
    locked as (
      select q.id, q.state, q.expires_at, q.answered_by, r.id as run_id, r.live, r.status, r.stop_requested_at,
             c.id as conversation_id, c.head_seq, pawl_now() as at,
${isSubject("r.id")} as is_subject,
             r.version <> (select s.version from runs s where s.id = r.id) as stale,
             (select d.done from question_decisions d where d.decision = :decision) as known,
             (select d.over from question_decisions d where d.decision = :decision) as known_over
      from conversation_row c join questions q on q.id = :request join runs r on r.id = q.run_id for no key update of r, q),
    judged as (
      select *, case
        when state = 'answered' then 'AlreadyAnswered'
        when state = 'expired' or (live and expires_at <= at) then 'Expired'
        else 'TurnEnded' end as over from locked),
    verdict as (
      select *, case
        when not is_subject and not stale then 'unknown'
        when known is not null then 'already'
        when stale then 'again'
        when state <> 'open' or not live or status <> 'awaiting_input' or stop_requested_at is not null then 'late'
        else 'answered' end as verdict from judged),
    noted as (
      insert into question_decisions (decision, question_id, actor, done, over, text, at)
      select :decision, id, :who, verdict, case when verdict = 'late' then over end, :text, at
      from verdict where verdict in ('answered', 'late') on conflict do nothing),
    answering as (
      select run_id, :event as event_id, head_seq + 1 as seq, :actor as actor_id, :text as body, at from verdict where verdict = 'answered'),
    event as (
      insert into message_events (id, conversation_id, seq, kind, ext_id, order_key, actor_id, body, state, run_id, received_at)
      select :event, v.conversation_id, v.head_seq + 1, 'decision', :decision, '', :actor, :text, 'in_turn', v.run_id, v.at
      from verdict v where v.verdict = 'answered'),
    ${answers()},
    conversation as (
      update conversations c set head_seq = c.head_seq + 1, mail_version = c.mail_version + 1
      from verdict v where c.id = v.conversation_id and v.verdict = 'answered')
    select coalesce(v.verdict, 'unknown') as verdict,
           case when v.verdict = 'already' then v.known_over when v.verdict = 'late' then v.over end as over,
           (select w.ext_id from actors w where w.id = v.answered_by) as by, v.run_id,
           (select pg_notify('pawl_due', '') from answering)::text is not null as notified
    from (select 1) one left join verdict v on true`,
});

const readQuestionsStatement = statement({
  name: "read_questions",
  params: { run: "uuid" },
  columns: {
    id: "uuid",
    call_id: "uuid",
    text: "text",
    options: "jsonb",
    state: "text",
    asked_at: "timestamptz",
    expires_at: "timestamptz",
    answered_by: "text?",
    closed_at: "timestamptz?",
  },
  text: `
    select q.id, q.call_id, q.text, q.options, q.state, q.asked_at, q.expires_at, w.ext_id as answered_by, q.closed_at
    from questions q left join actors w on w.id = q.answered_by where q.run_id = :run order by q.asked_at, q.id`,
});

export type QuestionRequest = {
  readonly runId: string;
  readonly token: number;
  readonly nonce: string;
  readonly callId: string;
  readonly seenSeq: number;
  /** The id that people name. */
  readonly questionId: string;
  readonly text: string;
  readonly options: readonly string[];
  readonly expiresMs: number;
  /** Ends before the id, which people have to repeat. */
  readonly message: string;
  /** Who says it outside; and for how long he may be at it. */
  readonly emission: string;
  readonly postMs: number;
};

/** expired: nobody answered in time · newer_input, hold: somebody says something that the question knows nothing of. */
export type ParkedForInput =
  | "parked"
  | "already"
  | "expired"
  | "newer_input"
  | "hold"
  | "stopping"
  | "fenced"
  | "ended";

/** Gives the lease back until somebody answers or the question expires. `reserved`: whoever asked has to say it. */
export async function parkForInput(
  db: Runner,
  request: QuestionRequest,
): Promise<{ readonly kind: ParkedForInput; readonly reserved: boolean }> {
  const row = await db.one(parkForInputStatement, {
    run: request.runId,
    token: request.token,
    nonce: request.nonce,
    call: request.callId,
    seen_seq: request.seenSeq,
    question: request.questionId,
    text: request.text,
    options: request.options,
    expires_ms: request.expiresMs,
    message: request.message,
    emission: request.emission,
    post_ms: request.postMs,
  });
  return { kind: row.verdict as ParkedForInput, reserved: row.reserved };
}

export type Answer = {
  /** As the person wrote it. */
  readonly request: string;
  /** Names this answer once; applying it again tells what became of it. */
  readonly decision: string;
  /** The Run that it speaks of, and that its author may answer for. */
  readonly subject: { readonly namespaceUid: string; readonly name: string; readonly uid?: string };
  readonly actor: { readonly connector: string; readonly extId: string };
  readonly text: string;
};
/** What came first. */
export type AnswerOver = "AlreadyAnswered" | "Expired" | "TurnEnded";
export type Answered =
  | { readonly kind: "answered"; readonly runId: string }
  | { readonly kind: "late"; readonly over: AnswerOver; readonly by: string | null }
  | { readonly kind: "unknown" };

/** What somebody says to one question. The same answer again tells what it did the first time. */
export async function answerQuestion(db: Runner, answer: Answer): Promise<Answered & { readonly already: boolean }> {
  if (!REQUEST_ID.test(answer.request)) return { kind: "unknown", already: false };
  const { connector, extId } = answer.actor;
  const actor = await db.one(ensureActor, { actor: uuidv7(), connector, ext_id: extId });
  const event = uuidv7();
  return untilKnown(async () => {
    const row = await db.one(answerQuestionStatement, {
      request: answer.request,
      decision: answer.decision,
      namespace_uid: answer.subject.namespaceUid,
      object: answer.subject.name,
      object_uid: answer.subject.uid ?? null,
      actor: actor.id,
      who: extId,
      event,
      text: answer.text,
    });
    if (row.verdict === "again") return undefined;
    const already = row.verdict === "already";
    if (row.verdict === "unknown") return { kind: "unknown", already };
    if (row.over !== null) return { kind: "late", over: row.over as AnswerOver, by: row.by, already };
    return { kind: "answered", runId: row.run_id ?? "", already };
  }, "run");
}

export type Question = {
  /** The id that people name. */
  readonly id: string;
  readonly callId: string;
  readonly text: string;
  readonly options: readonly string[];
  readonly state: "open" | "answered" | "expired" | "withdrawn";
  readonly askedAt: Date;
  readonly expiresAt: Date;
  readonly answeredBy: string | null;
  readonly closedAt: Date | null;
};

export async function readQuestions(db: Runner, runId: string): Promise<Question[]> {
  return (await db.rows(readQuestionsStatement, { run: runId })).map((row) => ({
    id: row.id,
    callId: row.call_id,
    text: row.text,
    options: row.options as string[],
    state: row.state as Question["state"],
    askedAt: row.asked_at,
    expiresAt: row.expires_at,
    answeredBy: row.answered_by,
    closedAt: row.closed_at,
  }));
}
