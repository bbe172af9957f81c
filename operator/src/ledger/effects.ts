/**
 * The effect journal and the commit boundary in SQL (I3, I5). A crossing is one statement: it locks root and run,
 * decides on what stands on those rows, and records the effect before its first byte leaves. Two effects on one open
 * target, or the same call twice, are stopped by unique indexes; which of them it was is looked up afterwards, by the
 * only process that may write in this scope.
 */
import { PawlError } from "#rules/errors.ts";
import type { JournaledKind } from "#rules/effects.ts";
import { occupied, type OccupiedBy } from "#rules/journal.ts";
import type { State } from "#rules/state.ts";
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const crossEffectStatement = statement({
  name: "cross_effect",
  guarded: true,
  params: {
    run: "uuid",
    token: "int8",
    nonce: "uuid",
    effect: "uuid",
    call: "uuid",
    kind: "text",
    is_reply: "bool",
    target: "text",
    args_hash: "text",
    repeat: "int4",
    keyed: "bool",
    send_ms: "int4",
    settle_ms: "int4",
    seen_seq: "int8",
    receipt: "jsonb?",
    compensates: "uuid?",
    built_on: "uuid[]",
    prior: "jsonb?",
  },
  columns: { verdict: "text" },
  // A reply whose delivery is its row (kubectl) comes with its receipt and is confirmed at once.
  text: `
    with turn as (
      select r.id as run_id, root.id as root_id, root.request_id, root.journal_scope, r.lease_token, r.lease_owner, r.lease_until,
             r.live, root.live as root_live, root.reply_at, root.amend_seq, root.hold_seq, root.hold_until,
             root.closed_to_interrupts or coalesce(root.deadline_at <= pawl_now(), false) as closed, coalesce(root.stop_requested_at, r.stop_requested_at) as stop_at, r.next_ordinal
      from runs root join runs r on r.root_id = root.id where r.id = :run for no key update of root, r),
    call as (
      select c.gate, c.args_hash as call_hash from turn join tool_calls c on c.run_id = turn.run_id
      where c.id = :call for no key update of c),
    locked as (select * from turn left join call on true),
    verdict as (
      select *, case
        when not live or not root_live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        when reply_at is not null then 'reply_sent'
        when stop_at is not null and not :is_reply then 'stopping'
        when stop_at is not null then 'crossed'
        when gate <> 'none' and (gate <> 'approved' or call_hash <> :args_hash) then 'approval'
        when amend_seq > :seen_seq and not closed then 'stale_input'
        when hold_seq > :seen_seq and hold_until > pawl_now() and not closed then 'hold'
        else 'crossed' end as verdict from locked),
    effect as (
      insert into commitment_effects (id, call_id, run_id, root_id, request_id, journal_scope, kind, target, args_hash, repeat, keyed,
                                      state, nonce, lease_token, dispatched_at, send_by, settle_at, settled_at, receipt, built_on, compensates, prior)
      select :effect, :call, run_id, root_id, request_id, journal_scope, :kind, :target, :args_hash, :repeat, :keyed,
             case when :receipt is null then 'dispatched' else 'confirmed' end, :nonce, lease_token, pawl_now(),
             pawl_now() + :send_ms * interval '1 ms', pawl_now() + :settle_ms * interval '1 ms',
             case when :receipt is not null then pawl_now() end, :receipt, :built_on, :compensates, :prior
      from verdict where verdict = 'crossed' on conflict do nothing returning id),
    crossed as (
      update runs r set
             committed_at = coalesce(r.committed_at, pawl_now()),
             committed_by = case when :is_reply then effect.id else coalesce(r.committed_by, effect.id) end,
             committed_step = case when :is_reply then r.next_ordinal - 1 else coalesce(r.committed_step, r.next_ordinal - 1) end,
             reply_at = case when :is_reply then pawl_now() else r.reply_at end,
             version = r.version + 1, changed_at = pawl_now()
      from verdict v, effect where r.id in (v.run_id, v.root_id) returning r.id)
    select case when verdict = 'crossed' and not exists (select from effect) then 'occupied' else verdict end as verdict
    from verdict`,
});

const settleEffectStatement = statement({
  name: "settle_effect",
  guarded: true,
  params: {
    effect: "uuid",
    nonce: "uuid",
    state: "text",
    receipt: "jsonb?",
    observation: "text?",
    resolved_by: "text?",
    unsent: "bool",
    post: "jsonb?",
  },
  columns: { verdict: "text" },
  // Needs no lease: the outcome is a fact that only its sender knows (I4). Final states never change (I5). The run is
  // locked for the order of locks alone: the next crossing often shares this transaction, and needs it.
  text: `
    with locked as (
      select e.* from commitment_effects e join runs r on r.id = e.run_id join runs root on root.id = e.root_id
      where e.id = :effect for no key update of root, r, e),
    verdict as (
      select *, case
        when nonce <> :nonce then 'conflict'
        when state = :state then 'already'
        when state in ('confirmed', 'failed') then 'conflict'
        else 'settled' end as verdict from locked),
    settled as (
      update commitment_effects e set state = :state, receipt = :receipt, observation = :observation,
             resolved_by = :resolved_by, unsent = :unsent, post = :post, settled_at = pawl_now()
      from verdict v where e.id = v.id and v.verdict = 'settled')
    select verdict from verdict`,
});

const resolveEffectStatement = statement({
  name: "resolve_effect",
  guarded: true,
  params: { effect: "uuid", state: "text", receipt: "jsonb?", observation: "text", by: "text" },
  columns: { verdict: "text", state: "text?", target: "text?", resolved_by: "text?", settle_at: "timestamptz?" },
  // Needs no lease either, and takes none: of the run only its version moves, so that the mirror follows. The columns
  // are those of before. An id that nobody knows is a verdict too.
  text: `
    with locked as (
      select r.id as run_id, root.id as root_id, e.id as effect_id, e.state, e.target, e.resolved_by, e.settle_at
      from commitment_effects e join runs r on r.id = e.run_id join runs root on root.id = e.root_id
      where e.id = :effect for no key update of root, r, e),
    verdict as (
      select *, case
        when state = :state then 'already'
        when state in ('confirmed', 'failed') then 'conflict'
        when state = 'dispatched' and settle_at > pawl_now() then 'too_early'
        else 'resolved' end as verdict from locked),
    resolved as (
      update commitment_effects e set state = :state, receipt = :receipt, resolved_by = :by, settled_at = pawl_now(),
             observation = :observation || coalesce(chr(10) || 'Seen before: ' || e.observation, '')
      from verdict v where e.id = v.effect_id and v.verdict = 'resolved'),
    changed as (
      update runs r set version = r.version + 1, changed_at = pawl_now()
      from verdict v where r.id in (v.run_id, v.root_id) and v.verdict = 'resolved')
    select coalesce(v.verdict, 'unknown_effect') as verdict, v.state, v.target, v.resolved_by, v.settle_at
    from (select 1) one left join verdict v on true`,
});

const redispatchEffectStatement = statement({
  name: "redispatch_effect",
  guarded: true,
  params: {
    run: "uuid",
    token: "int8",
    effect: "uuid",
    nonce: "uuid",
    send_ms: "int4",
    settle_ms: "int4",
    max_attempts: "int4",
    absent: "bool",
  },
  columns: { verdict: "text", attempt: "int4", wait_ms: "int8" },
  text: `
    with locked as (
      select r.id as run_id, r.live, r.lease_token, r.lease_owner, r.lease_until, r.stop_requested_at,
             e.id as effect_id, e.state, e.nonce, e.attempt, e.keyed, e.settle_at
      from runs r join commitment_effects e on e.id = :effect and e.run_id = r.id
      where r.id = :run for no key update of r, e),
    verdict as (
      select *, case
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        when nonce = :nonce then 'already'
        when state not in ('dispatched', 'unknown') or not (keyed or :absent) or attempt >= :max_attempts or stop_requested_at is not null then 'refused'
        when settle_at > pawl_now() then 'too_early'
        else 'crossed' end as verdict from locked),
    sent as (
      update commitment_effects e set state = 'dispatched', attempt = e.attempt + 1, nonce = :nonce, lease_token = :token,
             dispatched_at = pawl_now(), send_by = pawl_now() + :send_ms * interval '1 ms',
             settle_at = pawl_now() + :settle_ms * interval '1 ms', settled_at = null, observation = null
      from verdict v where e.id = v.effect_id and v.verdict = 'crossed')
    select verdict, attempt, greatest(0, ceil(extract(epoch from settle_at - pawl_now()) * 1000))::bigint as wait_ms from verdict`,
});

const occupantsStatement = statement({
  name: "read_occupants",
  params: { run: "uuid", effect: "uuid", target: "text", args_hash: "text" },
  columns: {
    id: "uuid",
    nonce: "uuid",
    call_id: "uuid",
    kind: "text",
    target: "text",
    args_hash: "text",
    repeat: "int4",
    state: "text",
    observation: "text?",
    wait_ms: "int8",
    order_us: "int8",
  },
  text: `
    select e.id, e.nonce, e.call_id, e.kind, e.target, e.args_hash, e.repeat, e.state, e.observation,
           greatest(0, ceil(extract(epoch from coalesce(e.settle_at, pawl_now()) - pawl_now()) * 1000))::bigint as wait_ms,
           (extract(epoch from coalesce(e.settled_at, e.dispatched_at)) * 1000000)::bigint as order_us
    from runs r join commitment_effects e on e.journal_scope = r.journal_scope
    where r.id = :run and e.state <> 'failed'
      and (e.id = :effect or e.target = :target or e.args_hash = :args_hash or e.kind = 'reply')
    order by coalesce(e.settled_at, e.dispatched_at), e.id`,
});

export type CrossRequest = {
  readonly runId: string;
  readonly token: number;
  /** New for each dispatch; the row keeps it, settling must name it. */
  readonly nonce: string;
  readonly effectId: string;
  readonly callId: string;
  readonly kind: JournaledKind;
  readonly target: string;
  readonly argsHash: string;
  readonly keyed: boolean;
  /** The first byte leaves within this, or never. */
  readonly sendMs: number;
  /** After this the sender has closed its connection, whatever happened. */
  readonly settleMs: number;
  readonly seenSeq: number;
  /** Only for a reply that is delivered by being recorded. */
  readonly receipt?: Readonly<Record<string, unknown>>;
  /** Only for a compensation: the effect that it undoes. */
  readonly compensates?: string;
  /** What was there before, where it is to be known. */
  readonly prior?: State | null;
  /** Evidence that a reply was built on. */
  readonly builtOn?: readonly string[];
};

export type Crossed =
  | { readonly kind: "crossed" | "already" }
  | OccupiedBy
  | { readonly kind: "fenced" | "ended" | "reply_sent" | "stopping" | "approval" | "stale_input" | "hold" };

/** Repeats of one call that A-B-A may open in one scope before it is called a loop and refused. */
export const MAX_REPEATS = 100;

export async function crossEffect(db: Runner, request: CrossRequest): Promise<Crossed> {
  for (let repeat = 0; repeat <= MAX_REPEATS; ) {
    const row = await db.one(crossEffectStatement, {
      run: request.runId,
      token: request.token,
      nonce: request.nonce,
      effect: request.effectId,
      call: request.callId,
      kind: request.kind,
      is_reply: request.kind === "reply",
      target: request.target,
      args_hash: request.argsHash,
      repeat,
      keyed: request.keyed,
      send_ms: request.sendMs,
      settle_ms: request.settleMs,
      seen_seq: request.seenSeq,
      receipt: request.receipt ?? null,
      compensates: request.compensates ?? null,
      built_on: request.builtOn ?? [],
      prior: request.prior ?? null,
    });
    const { verdict } = row;
    if (verdict === "crossed" || verdict === "fenced" || verdict === "ended") return { kind: verdict };
    // A crossing whose reply was lost is not decided anew by what came after it: first look for our own row.
    const rows = await db.rows(occupantsStatement, {
      run: request.runId,
      effect: request.effectId,
      target: request.target,
      args_hash: request.argsHash,
    });
    const found = occupied(
      rows.map((effect) => ({
        id: effect.id,
        nonce: effect.nonce,
        kind: effect.kind,
        target: effect.target,
        argsHash: effect.args_hash,
        repeat: effect.repeat,
        state: effect.state as "dispatched" | "confirmed" | "unknown",
        observation: effect.observation,
        waitMs: effect.wait_ms,
        callId: effect.call_id,
      })),
      request,
    );
    if (verdict !== "occupied" && found.kind !== "already") {
      return { kind: verdict as "reply_sent" | "stopping" | "approval" | "stale_input" | "hold" };
    }
    if (found.kind !== "repeat") return found;
    repeat = found.repeat;
  }
  throw new PawlError("invariant", "EffectLoop", `the same call came back more than ${MAX_REPEATS} times`);
}

export type Settlement = {
  readonly effectId: string;
  readonly nonce: string;
  readonly state: "confirmed" | "failed" | "unknown";
  readonly receipt: Readonly<Record<string, unknown>> | null;
  readonly observation: string;
  /** Null: its own sender saw it. */
  readonly resolvedBy?: string;
  /** Failed, because its sender gave it up before its first byte: its call may cross anew. */
  readonly unsent?: boolean;
  /** What a confirmed write left behind, where that is to be known. */
  readonly post?: State | null;
};

export async function settleEffect(db: Runner, settlement: Settlement): Promise<"settled" | "already" | "conflict"> {
  const row = await db.one(settleEffectStatement, {
    effect: settlement.effectId,
    nonce: settlement.nonce,
    state: settlement.state,
    receipt: settlement.receipt,
    observation: settlement.observation,
    resolved_by: settlement.resolvedBy ?? null,
    unsent: settlement.unsent ?? false,
    post: settlement.post ?? null,
  });
  return row.verdict as "settled" | "already" | "conflict";
}

export type Redispatch =
  | { readonly kind: "crossed" | "already"; readonly attempt: number }
  | { readonly kind: "too_early"; readonly waitMs: number }
  | { readonly kind: "refused" | "fenced" | "ended" };

/**
 * The same request again under the same row: only after `settle_at`, only where the receiver honours the key or a look
 * after that time proved that nothing is there (`absent`).
 */
export async function redispatchEffect(
  db: Runner,
  request: {
    runId: string;
    token: number;
    effectId: string;
    nonce: string;
    sendMs: number;
    settleMs: number;
    maxAttempts: number;
    absent?: boolean;
  },
): Promise<Redispatch> {
  const row = await db.one(redispatchEffectStatement, {
    run: request.runId,
    token: request.token,
    effect: request.effectId,
    nonce: request.nonce,
    send_ms: request.sendMs,
    settle_ms: request.settleMs,
    max_attempts: request.maxAttempts,
    absent: request.absent ?? false,
  });
  switch (row.verdict) {
    case "crossed":
      return { kind: "crossed", attempt: row.attempt + 1 };
    case "already":
      return { kind: "already", attempt: row.attempt };
    case "too_early":
      return { kind: "too_early", waitMs: row.wait_ms };
    default:
      return { kind: row.verdict as "refused" | "fenced" | "ended" };
  }
}

export type Resolution = {
  readonly effectId: string;
  /** What the person found: it took place, or it did not. */
  readonly landed: boolean;
  readonly by: string;
  readonly reason: string | null;
};
/** `resolvedBy` null: its own sender saw the outcome. */
type Final = { readonly state: "confirmed" | "failed"; readonly resolvedBy: string | null };
export type Resolved =
  | { readonly kind: "resolved"; readonly target: string }
  | ({ readonly kind: "already" | "conflict" } & Final)
  | { readonly kind: "too_early"; readonly settleAt: Date }
  | { readonly kind: "unknown_effect" };

/** A person's word about an effect whose outcome nobody saw; never before its sender has certainly let go of it. */
export async function resolveEffect(db: Runner, { effectId, landed, by, reason }: Resolution): Promise<Resolved> {
  const found = landed ? "it took place" : "it did not take place";
  const row = await db.one(resolveEffectStatement, {
    effect: effectId,
    state: landed ? "confirmed" : "failed",
    receipt: landed ? { resolvedBy: by, reason } : null,
    observation: `${by} looked and says: ${found}.${reason === null ? "" : ` ${reason}`}`,
    by,
  });
  switch (row.verdict) {
    case "resolved":
      return { kind: "resolved", target: row.target ?? "" };
    case "already":
    case "conflict":
      return { kind: row.verdict, state: row.state as Final["state"], resolvedBy: row.resolved_by };
    case "too_early":
      return { kind: "too_early", settleAt: row.settle_at ?? new Date(0) };
    default:
      return { kind: "unknown_effect" };
  }
}
