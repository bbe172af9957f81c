/**
 * What a request says outside besides its answer (I8): its acknowledgement, questions, progress, notices. The key is the
 * logical request, so that neither a run that is resumed nor one that takes another's place says a thing twice. The row
 * is there before anything leaves; one whose sayer died stays unknown, and nobody says it again.
 */
import type { Runner } from "./database.ts";
import { untilKnown } from "./looks.ts";
import { statement } from "./statement.ts";

const reserveEmissionStatement = statement({
  name: "reserve_emission",
  guarded: true,
  params: {
    request: "uuid",
    kind: "text",
    sequence: "int4",
    run: "uuid",
    token: "int8?",
    text: "text",
    nonce: "uuid",
    post_ms: "int4",
  },
  columns: { verdict: "text" },
  // Without a token: by somebody who has no lease, for whom the key alone decides. `lost`: seen here, not yet in our
  // snapshot, so the insert finds it and the same statement looks again.
  text: `
    with locked as (
      select q.id as request_id, r.id as run_id, r.live, r.lease_token, r.lease_owner, r.lease_until, pawl_now() as at,
             (select e.nonce from emissions e where e.request_id = q.id and e.kind = :kind and e.sequence = :sequence) as by
      from runs r join logical_requests q on q.id = r.request_id
      where r.id = :run and q.id = :request for no key update of r, q),
    verdict as (
      select *, case
        when by = :nonce then 'already'
        when by is not null then 'taken'
        when :token is not null and not live then 'ended'
        when :token is not null and (lease_token <> :token or lease_owner is null or lease_until < pawl_now()) then 'fenced'
        else 'reserved' end as verdict from locked),
    lapsed as (
      update emissions e set state = 'unknown', settled_at = v.at from verdict v
      where v.verdict = 'taken' and e.request_id = v.request_id and e.kind = :kind and e.sequence = :sequence
        and e.state = 'reserved' and e.due_at <= v.at),
    reserved as (
      insert into emissions (request_id, kind, sequence, run_id, text, nonce, reserved_at, due_at)
      select request_id, :kind, :sequence, run_id, :text, :nonce, at, at + :post_ms * interval '1 ms'
      from verdict where verdict = 'reserved' on conflict do nothing returning nonce)
    select case when v.verdict = 'reserved' and not exists (select from reserved) then 'again' else v.verdict end as verdict
    from verdict v`,
});

const settleEmissionStatement = statement({
  name: "settle_emission",
  guarded: true,
  params: { request: "uuid", kind: "text", sequence: "int4", nonce: "uuid", state: "text", receipt: "jsonb?" },
  columns: { verdict: "text" },
  // A fact, whoever holds the run by now (I4). What counted as unknown because it came late is known after all.
  text: `
    with locked as (
      select * from emissions where request_id = :request and kind = :kind and sequence = :sequence for no key update),
    verdict as (
      select *, case
        when nonce <> :nonce then 'conflict'
        when state = :state then 'already'
        when state in ('reserved', 'unknown') then 'settled'
        else 'conflict' end as verdict from locked),
    settled as (
      update emissions e set state = :state, receipt = :receipt, settled_at = pawl_now() from verdict v
      where v.verdict = 'settled' and e.request_id = v.request_id and e.kind = v.kind and e.sequence = v.sequence)
    select verdict from verdict`,
});

const readEmissionsStatement = statement({
  name: "read_emissions",
  params: { request: "uuid" },
  columns: { kind: "text", sequence: "int4", text: "text", state: "text", reserved_at: "timestamptz" },
  text: `
    select kind, sequence, text, case when state = 'reserved' and due_at <= pawl_now() then 'unknown' else state end as state, reserved_at
    from emissions where request_id = :request order by reserved_at, kind, sequence`,
});

export type EmissionKind = "ack" | "question" | "progress" | "notice";
export type EmissionKey = { readonly requestId: string; readonly kind: EmissionKind; readonly sequence: number };

export type Reservation = EmissionKey & {
  readonly runId: string;
  /** Of the worker's lease; null: of somebody who has none. */
  readonly token: number | null;
  readonly text: string;
  readonly nonce: string;
  /** How long it may take to be said. */
  readonly postMs: number;
};

/** reserved, already: say it, and nobody else will · taken: it was said, or somebody is at it, or nobody knows. */
export type Reserved = "reserved" | "already" | "taken" | "fenced" | "ended";

export async function reserveEmission(db: Runner, emission: Reservation): Promise<Reserved> {
  const params = {
    request: emission.requestId,
    kind: emission.kind,
    sequence: emission.sequence,
    run: emission.runId,
    token: emission.token,
    text: emission.text,
    nonce: emission.nonce,
    post_ms: emission.postMs,
  };
  return untilKnown(async () => {
    const { verdict } = await db.one(reserveEmissionStatement, params);
    return verdict === "again" ? undefined : (verdict as Reserved);
  }, "request");
}

export async function settleEmission(
  db: Runner,
  emission: EmissionKey & {
    readonly nonce: string;
    readonly state: "landed" | "failed" | "unknown";
    readonly receipt: Readonly<Record<string, unknown>> | null;
  },
): Promise<"settled" | "already" | "conflict"> {
  const { verdict } = await db.one(settleEmissionStatement, {
    request: emission.requestId,
    kind: emission.kind,
    sequence: emission.sequence,
    nonce: emission.nonce,
    state: emission.state,
    receipt: emission.receipt,
  });
  return verdict as "settled" | "already" | "conflict";
}

export type Emitted = {
  readonly kind: EmissionKind;
  readonly sequence: number;
  readonly text: string;
  readonly state: "reserved" | "landed" | "failed" | "unknown";
  readonly at: Date;
};

export async function readEmissions(db: Runner, requestId: string): Promise<Emitted[]> {
  return (await db.rows(readEmissionsStatement, { request: requestId })).map((row) => ({
    kind: row.kind as EmissionKind,
    sequence: row.sequence,
    text: row.text,
    state: row.state as Emitted["state"],
    at: row.reserved_at,
  }));
}
