/** Who works on a run: a fenced lease on the run's own row, on database time (I4, I7). */
import { DEFAULT_MAX_RUNS } from "#rules/limits.ts";
import type { Database, Runner } from "./database.ts";
import { MAX_LOOKS } from "./looks.ts";
import { statement } from "./statement.ts";
import { GIVES_LEASE, TAKES_LEASE, UNPARKS } from "./work.ts";

/**
 * Which agents, and whether the install, may have another lease: counted from the leases themselves. Only claims add
 * any, and a claim locks its agent's row (and, with a ceiling of the install, the row `admission`) and raises its count
 * of claims: one that had to wait for it counted in vain, and says `again`.
 */
const CEILINGS = `
    leased as materialized (
      select agent_id, count(*) as held from runs where live and lease_owner is not null group by agent_id),
    full_agents as materialized (
      select l.agent_id from leased l join agents a on a.id = l.agent_id
      join agent_generations g on g.agent_id = a.id and g.generation = a.generation
      where l.held >= coalesce((g.spec #>> '{concurrency,maxRuns}')::int, ${DEFAULT_MAX_RUNS})),
    install as materialized (select :max_runs = 0 or coalesce(sum(held), 0) < :max_runs as has_room from leased)`;

const MAY_TAKE = `due_at <= (select pawl_now()) and min_code <= :code
        and (select has_room from install) and agent_id not in (select agent_id from full_agents)`;

const claimRunStatement = statement({
  name: "claim_run",
  guarded: true,
  params: { owner: "text", lease_ms: "int4", code: "int4", max_runs: "int4" },
  columns: { verdict: "text", run_id: "uuid?", token: "int8?", takeover: "bool?", attempts: "int4?" },
  // A lapsed lease is taken over in the place that it has. Then what was begun, then what waits: the longest due first.
  text: `
    with lapsed as (
      select id, agent_id, true as takeover from runs
      where live and lease_owner is not null and lease_until < (select pawl_now()) and min_code <= :code
      order by lease_until limit 1 for no key update skip locked),
    ${CEILINGS},
    begun as (
      select id, agent_id, false as takeover from runs
      where live and due_at is not null and started_at is not null and ${MAY_TAKE}
      order by due_at limit 1 for no key update skip locked),
    waiting as (
      select id, agent_id, false as takeover from runs
      where live and due_at is not null and started_at is null and ${MAY_TAKE}
      order by due_at limit 1 for no key update skip locked),
    picked as (select * from lapsed union all select * from begun union all select * from waiting limit 1),
    agent as (
      select a.id, a.claims <> (select s.claims from agents s where s.id = a.id) as stale
      from picked p join agents a on a.id = p.agent_id where not p.takeover for no key update of a),
    admission as (
      select l.name, l.token <> (select s.token from leases s where s.name = l.name) as stale
      from agent join leases l on l.name = 'admission' where :max_runs > 0 for no key update of l),
    locked as (
      select p.id, p.takeover, coalesce(a.stale, false) or coalesce(m.stale, false) as stale
      from picked p left join agent a on true left join admission m on true),
    verdict as (select id, takeover, case when stale then 'again' else 'claimed' end as verdict from locked),
    claimed as (
      update runs r set lease_token = r.lease_token + 1, lease_owner = :owner, due_at = null,
             lease_until = pawl_now() + :lease_ms * interval '1 ms', status = 'running',
             started_at = coalesce(r.started_at, pawl_now()), interrupted = r.interrupted or v.takeover, streamed = 0, version = r.version + 1, changed_at = pawl_now(),${TAKES_LEASE},${UNPARKS}
      from verdict v where r.id = v.id and v.verdict = 'claimed' returning r.id, r.lease_token, r.attempts),
    counted as (
      update agents a set claims = a.claims + 1 from agent, verdict v where a.id = agent.id and v.verdict = 'claimed'),
    admitted as (
      update leases l set token = l.token + 1 from admission m, verdict v where l.name = m.name and v.verdict = 'claimed')
    select coalesce(v.verdict, 'none') as verdict, c.id as run_id, c.lease_token as token, v.takeover, c.attempts
    from (select 1) one left join verdict v on true left join claimed c on true`,
});

const renewLeaseStatement = statement({
  name: "renew_lease",
  guarded: true,
  params: { run: "uuid", token: "int8", lease_ms: "int4", streamed: "int4" },
  columns: { verdict: "text", stop: "bool", amend_seq: "int8" },
  // What has been streamed is shown in the status, so a change of it is a version.
  text: `
    with locked as (select * from runs where id = :run for no key update),
    verdict as (
      select id, stop_requested_at, amend_seq, (streamed <> :streamed)::int as moved, case
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'lost'
        else 'renewed' end as verdict from locked),
    renewed as (
      update runs r set lease_until = pawl_now() + :lease_ms * interval '1 ms', streamed = :streamed,
             version = r.version + v.moved, changed_at = case when v.moved = 1 then pawl_now() else r.changed_at end
      from verdict v where r.id = v.id and v.verdict = 'renewed' returning r.id)
    select verdict, stop_requested_at is not null as stop, amend_seq from verdict`,
});

const lookAtRunStatement = statement({
  name: "look_at_run",
  params: { run: "uuid", token: "int8" },
  columns: { live: "bool", held: "bool", stop: "bool" },
  text: `
    select live, lease_token = :token and lease_owner is not null as held, stop_requested_at is not null as stop
    from runs where id = :run`,
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
      (select min(due_at) from runs where live and due_at is not null and min_code <= :code),
      (select min(lease_until) from runs where live and lease_owner is not null and min_code <= :code)) - pawl_now()) * 1000))::bigint as in_ms`,
});

export type Claim = { runId: string; token: number; takeover: boolean; attempts: number };

/** pg_advisory_xact_lock key: "pawq", the one after the migrators'. */
const QUEUE = 0x70617771;

const queueForClaim = statement({
  name: "queue_for_claim",
  params: {},
  columns: { waited: "bool" },
  text: `select pg_advisory_xact_lock(${QUEUE})::text is not null as waited`,
});

/**
 * Takes the longest due run that a ceiling lets in, or one whose lease lapsed. `code` is the newest run format this
 * process can read; `maxRuns` the most leases in the install, 0 = as many as there is work for. Nobody waits for the
 * lock `admission` who had no need to: only a claim that counted in vain queues with others of its kind.
 */
export async function claimRun(
  db: Database | Runner,
  owner: string,
  leaseMs: number,
  code: number,
  maxRuns = 0,
): Promise<Claim | null> {
  const claim = (runner: Runner) =>
    runner.one(claimRunStatement, { owner, lease_ms: leaseMs, code, max_runs: maxRuns });
  const inTurn = async () =>
    "transaction" in db
      ? db.transaction(async (tx) => {
          await tx.one(queueForClaim, {});
          return claim(tx);
        })
      : claim(db);
  for (let look = 0; look < MAX_LOOKS; look += 1) {
    const row = look === 0 ? await claim(db) : await inTurn();
    if (row.verdict === "again") continue;
    if (row.run_id === null || row.token === null) return null;
    return { runId: row.run_id, token: row.token, takeover: row.takeover === true, attempts: row.attempts ?? 0 };
  }
  // Others claim faster than this one can: there will be another look.
  return null;
}

export type Renewal = { kind: "renewed"; stop: boolean; amendSeq: number } | { kind: "lost" } | { kind: "ended" };

/** `streamed`: characters of the answer that is coming in, 0 when none is. Shown, never acted on. */
export async function renewLease(
  db: Runner,
  runId: string,
  token: number,
  leaseMs: number,
  streamed = 0,
): Promise<Renewal> {
  const row = await db.one(renewLeaseStatement, { run: runId, token, lease_ms: leaseMs, streamed });
  if (row.verdict === "renewed") return { kind: "renewed", stop: row.stop, amendSeq: row.amend_seq };
  return { kind: row.verdict === "ended" ? "ended" : "lost" };
}

/** What became of a run that somebody holds: read, and nothing is renewed by it. */
export async function lookAtRun(
  db: Runner,
  runId: string,
  token: number,
): Promise<{ kind: "held"; stop: boolean } | { kind: "lost" } | { kind: "ended" }> {
  const row = await db.one(lookAtRunStatement, { run: runId, token });
  if (!row.live) return { kind: "ended" };
  return row.held ? { kind: "held", stop: row.stop } : { kind: "lost" };
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
