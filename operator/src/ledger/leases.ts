/** Who works on a run: a fenced lease on the run's own row, on database time (I4, I7). */
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";
import { GIVES_LEASE, TAKES_LEASE } from "./work.ts";

const claimRunStatement = statement({
  name: "claim_run",
  guarded: true,
  params: { owner: "text", lease_ms: "int4", code: "int4" },
  columns: { verdict: "text", run_id: "uuid?", token: "int8?", takeover: "bool?", attempts: "int4?" },
  text: `
    with lapsed as (
      select id, true as takeover from runs
      where live and lease_owner is not null and lease_until < (select pawl_now()) and min_code <= :code
      order by lease_until limit 1 for no key update skip locked),
    due as (
      select id, false as takeover from runs
      where live and due_at is not null and due_at <= (select pawl_now()) and min_code <= :code and status <> 'awaiting_input'
      order by due_at limit 1 for no key update skip locked),
    locked as (select * from lapsed union all select * from due limit 1),
    verdict as (select id, takeover, 'claimed' as verdict from locked),
    claimed as (
      update runs r set lease_token = r.lease_token + 1, lease_owner = :owner, due_at = null,
             lease_until = pawl_now() + :lease_ms * interval '1 ms', status = 'running',
             started_at = coalesce(r.started_at, pawl_now()), interrupted = r.interrupted or v.takeover, version = r.version + 1, changed_at = pawl_now(),${TAKES_LEASE}
      from verdict v where r.id = v.id returning r.id, r.lease_token, r.attempts)
    select coalesce(v.verdict, 'none') as verdict, c.id as run_id, c.lease_token as token, v.takeover, c.attempts
    from (select 1) one left join verdict v on true left join claimed c on true`,
});

const renewLeaseStatement = statement({
  name: "renew_lease",
  guarded: true,
  params: { run: "uuid", token: "int8", lease_ms: "int4" },
  columns: { verdict: "text", stop: "bool", amend_seq: "int8" },
  text: `
    with locked as (select * from runs where id = :run for no key update),
    verdict as (
      select id, stop_requested_at, amend_seq, case
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'lost'
        else 'renewed' end as verdict from locked),
    renewed as (
      update runs r set lease_until = pawl_now() + :lease_ms * interval '1 ms' from verdict v
      where r.id = v.id and v.verdict = 'renewed' returning r.id)
    select verdict, stop_requested_at is not null as stop, amend_seq from verdict`,
});

const releaseLeaseStatement = statement({
  name: "release_lease",
  guarded: true,
  params: { run: "uuid", token: "int8", delay_ms: "int4", reason: "text?", message: "text?", failed: "bool" },
  columns: { verdict: "text" },
  text: `
    with locked as (select * from runs where id = :run for no key update),
    verdict as (
      select id, case
        when not live then 'ended'
        when lease_token = :token and lease_owner is null and status in ('running', 'awaiting_tool') then 'already'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        else 'released' end as verdict from locked),
    released as (
      update runs r set${GIVES_LEASE}, due_at = pawl_now() + :delay_ms * interval '1 ms',
             status = case when exists (select from tool_calls c where c.run_id = r.id and c.outcome is null and c.class <> 'reply')
                           then 'awaiting_tool' else 'running' end,
             reason = :reason, message = :message, attempts = r.attempts + case when :failed then 1 else 0 end,
             version = r.version + 1, changed_at = pawl_now()
      from verdict v where r.id = v.id and v.verdict = 'released' returning r.id)
    select verdict from verdict`,
});

const nextDueStatement = statement({
  name: "next_due",
  params: { code: "int4" },
  columns: { in_ms: "int8?" },
  text: `
    select greatest(0, ceil(extract(epoch from least(
      (select min(due_at) from runs where live and due_at is not null and min_code <= :code and status <> 'awaiting_input'),
      (select min(lease_until) from runs where live and lease_owner is not null and min_code <= :code)) - pawl_now()) * 1000))::bigint as in_ms`,
});

export type Claim = { runId: string; token: number; takeover: boolean; attempts: number };

/** Takes the longest due run, or one whose lease lapsed. `code` is the newest run format this process can read. */
export async function claimRun(db: Runner, owner: string, leaseMs: number, code: number): Promise<Claim | null> {
  const row = await db.one(claimRunStatement, { owner, lease_ms: leaseMs, code });
  if (row.run_id === null || row.token === null) return null;
  return { runId: row.run_id, token: row.token, takeover: row.takeover === true, attempts: row.attempts ?? 0 };
}

export type Renewal = { kind: "renewed"; stop: boolean; amendSeq: number } | { kind: "lost" } | { kind: "ended" };

export async function renewLease(db: Runner, runId: string, token: number, leaseMs: number): Promise<Renewal> {
  const row = await db.one(renewLeaseStatement, { run: runId, token, lease_ms: leaseMs });
  if (row.verdict === "renewed") return { kind: "renewed", stop: row.stop, amendSeq: row.amend_seq };
  return { kind: row.verdict === "ended" ? "ended" : "lost" };
}

export type Release = {
  readonly runId: string;
  readonly token: number;
  /** Due again after so many milliseconds. */
  readonly delayMs: number;
  /** What the run waits for, shown in its status; null = nothing in particular. */
  readonly reason: string | null;
  readonly message: string | null;
  /** Counts against the bound of attempts. */
  readonly failed: boolean;
};

/** already: the same token gave it back before, its reply was lost; nobody has claimed the run since. */
export type Released = "released" | "already" | "fenced" | "ended";

export async function releaseLease(db: Runner, release: Release): Promise<Released> {
  const row = await db.one(releaseLeaseStatement, {
    run: release.runId,
    token: release.token,
    delay_ms: Math.ceil(release.delayMs),
    reason: release.reason,
    message: release.message?.slice(0, 1024) ?? null,
    failed: release.failed,
  });
  return row.verdict as Released;
}

/** Milliseconds until some run is due or some lease lapses, null when nothing is in sight. */
export async function nextDue(db: Runner, code: number): Promise<number | null> {
  return (await db.one(nextDueStatement, { code })).in_ms;
}
