/**
 * Calls that wait for a person (I5): the run gives its lease back and is due when the request expires, a decision makes
 * it due at once. Whoever decides waits for the root run, so that expiry, a stop and two decisions have one order; the
 * first valid one counts, and each that was made is a row, whatever became of it.
 */
import { ofRun } from "./chain.ts";
import type { Runner } from "./database.ts";
import { untilKnown } from "./looks.ts";
import { givesLeaseWhen } from "./work.ts";
import { statement } from "./statement.ts";
import { isSubject, REQUEST_ID } from "./subject.ts";

const parkForApprovalStatement = statement({
  name: "park_for_approval",
  guarded: true,
  params: {
    run: "uuid",
    token: "int8",
    nonce: "uuid",
    call: "uuid",
    requests: "jsonb",
    approvers: "jsonb?",
    requester_may_approve: "bool",
    expires_ms: "int8",
    message: "text",
    seen_seq: "int8",
  },
  columns: { verdict: "text", amend_seq: "int8" },
  // `expires_at` is of a row that nobody changes but in its state, and its state is the call's gate, which is locked.
  text: `
    with locked as (
      select r.id, r.root_id, r.live, r.lease_token, r.lease_owner, r.lease_until, r.last_nonce, r.stop_requested_at, r.amend_seq, c.id as call_id, c.gate,
             (select a.expires_at from approvals a where a.call_id = c.id) as expires_at, pawl_now() as at
      from runs r join tool_calls c on c.run_id = r.id and c.id = :call
      where r.id = :run for no key update of r, c),
    verdict as (
      select *, case
        when last_nonce = :nonce then 'already'
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        when gate <> 'open' then 'decided'
        when amend_seq > :seen_seq then 'newer_input' -- nobody would wake it for what is there already
        when expires_at <= at then 'expired'
        else 'parked' end as verdict from locked),
    asked as ( -- all open ones of the response, so that a person sees all of them
      insert into approvals (id, call_id, run_id, root_id, conversation_id, hash, args_hash, tool, target, approvers,
                             requester_may_approve, requested_at, expires_at)
      select q.id, c.id, v.id, v.root_id, root.conversation_id, q.hash, c.args_hash, c.tool, c.target, :approvers,
             :requester_may_approve, v.at, v.at + :expires_ms * interval '1 ms'
      from verdict v join runs root on root.id = v.root_id
      cross join jsonb_to_recordset(:requests) as q (id uuid, call uuid, hash text)
      join tool_calls c on c.id = q.call and c.run_id = v.id and c.gate = 'open' and c.outcome is null
      where v.verdict = 'parked' on conflict (call_id) do nothing),
    lapsed as (
      update approvals a set state = 'expired', decided_at = v.at from verdict v
      where a.call_id = v.call_id and v.verdict = 'expired'),
    closed as (
      update tool_calls c set gate = 'expired' from verdict v where c.id = v.call_id and v.verdict = 'expired'),
    parked as (
      update runs r set${givesLeaseWhen("v.verdict = 'parked'")},
             due_at = case when v.verdict = 'parked' then case -- one that was told to stop has nothing to wait for
                        when v.stop_requested_at is not null then v.at else coalesce(v.expires_at, v.at + :expires_ms * interval '1 ms') end end,
             status = case when v.verdict = 'parked' then 'awaiting_tool' else r.status end,
             parked_at = case when v.verdict = 'parked' then v.at else r.parked_at end,
             reason = case when v.verdict = 'parked' then 'WaitingForApproval' end,
             message = case when v.verdict = 'parked' then :message end,
             last_nonce = case when v.verdict = 'parked' then :nonce else r.last_nonce end,
             version = r.version + 1, changed_at = v.at
      from verdict v where r.id = v.id and v.verdict in ('parked', 'expired'))
    select verdict, amend_seq from verdict`,
});

const withdrawApprovalStatement = statement({
  name: "withdraw_approval",
  guarded: true,
  params: { run: "uuid", token: "int8", call: "uuid" },
  columns: { verdict: "text" },
  // A call that nobody was asked about has no row that could say so: its result does.
  text: `
    with locked as (
      select r.id, r.live, r.lease_token, r.lease_owner, r.lease_until, c.id as call_id, c.gate, pawl_now() as at
      from runs r join tool_calls c on c.run_id = r.id and c.id = :call
      where r.id = :run for no key update of r, c),
    verdict as (
      select *, case
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        when gate = 'withdrawn' then 'already'
        when gate <> 'open' then 'decided'
        else 'withdrawn' end as verdict from locked),
    request as (
      update approvals a set state = 'withdrawn', decided_at = v.at from verdict v
      where a.call_id = v.call_id and v.verdict = 'withdrawn' returning a.call_id),
    gate as (
      update tool_calls c set gate = 'withdrawn' from request q where c.id = q.call_id),
    shown as (
      update runs r set version = r.version + 1, changed_at = v.at from verdict v where r.id = v.id and v.verdict = 'withdrawn')
    select verdict from verdict`,
});

const decideApprovalStatement = statement({
  name: "decide_approval",
  guarded: true,
  params: {
    request: "uuid",
    decision: "text",
    namespace_uid: "text",
    object: "text",
    object_uid: "text?",
    connector: "text",
    actor: "text",
    groups: "text[]",
    approve: "bool",
    hash: "text?",
    reason: "text?",
  },
  columns: {
    verdict: "text",
    why: "text?",
    over: "text?",
    done: "text?",
    run_id: "uuid?",
    state: "text?",
    decided_by: "text?",
    notified: "bool",
  },
  // Who asked and which Run this is are facts of other tables: `stale` = the run changed between this statement's
  // snapshot and its locks, so they may be older than the rows it got, and the same statement looks again.
  // A request of another Run than the one that the person may decide about is one that he does not know.
  text: `
    with locked as (
      select a.*, r.live, root.live as root_live, c.outcome, pawl_now() as at,
${isSubject("a.root_id")} as is_subject,
             exists (select from run_triggers t join message_events e on e.id = t.event_id join actors w on w.id = e.actor_id
                     where t.run_id = a.root_id and w.connector = :connector and w.ext_id = :actor) as is_requester,
             root.version <> (select s.version from runs s where s.id = root.id) as stale,
             (select d.done from approval_decisions d where d.decision = :decision) as known,
             (select d.why from approval_decisions d where d.decision = :decision) as known_why
      from approvals a join runs root on root.id = a.root_id join runs r on r.id = a.run_id join tool_calls c on c.id = a.call_id
      where a.id = :request for no key update of root, r, c, a),
    judged as (
      select *, case
        when hash is distinct from :hash and (:approve or :hash is not null) then 'HashDiffers'
        when is_requester and :approve and not requester_may_approve then 'RequesterMayNotApprove'
        when approvers is not null and not coalesce(approvers -> 'users' ? :actor, false)
             and not coalesce(approvers -> 'groups' ?| :groups, false) and not (is_requester and not :approve) then 'NotAnApprover'
        end as why, case
        when state in ('approved', 'rejected') then 'AlreadyDecided'
        when state = 'withdrawn' then 'Withdrawn'
        when state = 'expired' or expires_at <= at then 'Expired'
        else 'TurnEnded' end as over from locked),
    verdict as (
      select *, case
        when not is_subject and not stale then 'unknown'
        when decision = :decision or known is not null then 'already'
        when stale then 'again'
        when why is not null then 'refused'
        when state <> 'open' or outcome is not null or not live or not root_live or expires_at <= at then 'late'
        when :approve then 'approved'
        else 'rejected' end as verdict from judged),
    noted as (
      insert into approval_decisions (decision, approval_id, actor, asked, done, why, reason, at)
      select :decision, id, :actor, case when :approve then 'approve' else 'reject' end, verdict,
             case when verdict = 'refused' then why end, :reason, at
      from verdict where verdict in ('approved', 'rejected', 'late', 'refused') on conflict do nothing),
    decided as (
      update approvals a set state = v.verdict, decision = :decision, decided_by = :actor, decided_at = v.at, reason = :reason
      from verdict v where a.id = v.id and v.verdict in ('approved', 'rejected')),
    gate as (
      update tool_calls c set gate = v.verdict from verdict v where c.id = v.call_id and v.verdict in ('approved', 'rejected')),
    woken as (
      update runs r set due_at = case when r.id = v.run_id and r.due_at is not null then v.at else r.due_at end,
             reason = case when r.reason = 'WaitingForApproval' then null else r.reason end,
             message = case when r.reason = 'WaitingForApproval' then null else r.message end,
             version = r.version + 1, changed_at = v.at
      from verdict v where r.id in (v.run_id, v.root_id) and v.verdict in ('approved', 'rejected'))
    select coalesce(v.verdict, 'unknown') as verdict, coalesce(v.known_why, v.why) as why, v.over, coalesce(v.known, v.state) as done,
           v.run_id, v.state, v.decided_by,
           (select pg_notify('pawl_due', '') from verdict n where n.verdict in ('approved', 'rejected'))::text is not null as notified
    from (select 1) one left join verdict v on true`,
});

const readApprovalsStatement = statement({
  name: "read_approvals",
  params: { run: "uuid" },
  columns: {
    id: "uuid",
    call_id: "uuid",
    hash: "text",
    state: "text",
    decided_by: "text?",
    decided_at: "timestamptz?",
    reason: "text?",
  },
  text: `select id, call_id, hash, state, decided_by, decided_at, reason from approvals where ${ofRun("run_id")} order by id`,
});

export type Approvers = { readonly users: readonly string[]; readonly groups: readonly string[] };

export type ApprovalRequest = {
  readonly runId: string;
  readonly token: number;
  readonly nonce: string;
  /** The call whose turn it is. */
  readonly callId: string;
  /** For it and for every later one: the id that people name, and the hash that they must repeat. */
  readonly requests: readonly { readonly id: string; readonly call: string; readonly hash: string }[];
  /** Null: whoever may say so in the cluster. */
  readonly approvers: Approvers | null;
  readonly requesterMayApprove: boolean;
  readonly expiresMs: number;
  readonly message: string;
  /** The newest message that the request contained which led to the call. */
  readonly seenSeq: number;
};

/** decided: a person was faster · expired: nobody was, and from now on nobody can be · newer_input: read that first. */
export type Parked = {
  readonly kind: "parked" | "already" | "decided" | "expired" | "newer_input" | "fenced" | "ended";
  readonly amendSeq: number;
};

/** Gives the lease back until somebody decides or the request expires. */
export async function parkForApproval(db: Runner, request: ApprovalRequest): Promise<Parked> {
  const row = await db.one(parkForApprovalStatement, {
    run: request.runId,
    token: request.token,
    nonce: request.nonce,
    call: request.callId,
    requests: request.requests,
    approvers: request.approvers,
    requester_may_approve: request.requesterMayApprove,
    expires_ms: request.expiresMs,
    message: request.message,
    seen_seq: request.seenSeq,
  });
  return { kind: row.verdict as Parked["kind"], amendSeq: row.amend_seq };
}

/** A call that nobody has approved and that is not run any more; a decision about it comes too late from now on. */
export async function withdrawApproval(
  db: Runner,
  call: { runId: string; token: number; callId: string },
): Promise<"withdrawn" | "already" | "decided" | "fenced" | "ended"> {
  const row = await db.one(withdrawApprovalStatement, { run: call.runId, token: call.token, call: call.callId });
  return row.verdict as "withdrawn" | "already" | "decided" | "fenced" | "ended";
}

export type Verdict = {
  /** As the person wrote it. */
  readonly request: string;
  /** Names this decision once; applying it again answers what became of it. */
  readonly decision: string;
  /** The Run that it speaks of, and that its author may decide about. */
  readonly subject: { readonly namespaceUid: string; readonly name: string; readonly uid?: string };
  readonly actor: { readonly connector: string; readonly extId: string; readonly groups: readonly string[] };
  readonly approve: boolean;
  readonly hash: string | null;
  readonly reason: string | null;
};
export type RefusedBecause = "HashDiffers" | "RequesterMayNotApprove" | "NotAnApprover";
/** What came first. */
export type Over = "AlreadyDecided" | "Expired" | "Withdrawn" | "TurnEnded";
export type Decided =
  | { readonly kind: "approved" | "rejected"; readonly runId: string }
  | { readonly kind: "refused"; readonly why: RefusedBecause }
  /** By whom it had been decided before; null: it expired, or its turn ended. */
  | { readonly kind: "late"; readonly state: string; readonly by: string | null; readonly over: Over }
  | { readonly kind: "unknown" };

/** A decision about one call. The same one again answers what it did the first time. */
export async function decideApproval(db: Runner, verdict: Verdict): Promise<Decided & { readonly already: boolean }> {
  if (!REQUEST_ID.test(verdict.request)) return { kind: "unknown", already: false };
  return untilKnown(async () => {
    const row = await db.one(decideApprovalStatement, {
      request: verdict.request,
      decision: verdict.decision,
      namespace_uid: verdict.subject.namespaceUid,
      object: verdict.subject.name,
      object_uid: verdict.subject.uid ?? null,
      connector: verdict.actor.connector,
      actor: verdict.actor.extId,
      groups: verdict.actor.groups,
      approve: verdict.approve,
      hash: verdict.hash,
      reason: verdict.reason,
    });
    if (row.verdict === "again") return undefined;
    const already = row.verdict === "already";
    const kind = already ? row.done : row.verdict;
    switch (kind) {
      case "approved":
      case "rejected":
        return { kind, runId: row.run_id ?? "", already };
      case "refused":
        return { kind, why: row.why as RefusedBecause, already };
      case "late":
        return {
          kind,
          state: row.state ?? "open",
          by: row.decided_by,
          over: (row.over ?? "TurnEnded") as Over,
          already,
        };
      default:
        return { kind: "unknown", already };
    }
  }, "run");
}

export type Approval = {
  /** The id that people name. */
  readonly id: string;
  readonly callId: string;
  readonly hash: string;
  readonly state: "open" | "approved" | "rejected" | "expired" | "withdrawn";
  readonly decidedBy: string | null;
  readonly decidedAt: Date | null;
  readonly reason: string | null;
};

export async function readApprovals(db: Runner, runId: string): Promise<Approval[]> {
  return (await db.rows(readApprovalsStatement, { run: runId })).map((row) => ({
    id: row.id,
    callId: row.call_id,
    hash: row.hash,
    state: row.state as Approval["state"],
    decidedBy: row.decided_by,
    decidedAt: row.decided_at,
    reason: row.reason,
  }));
}
