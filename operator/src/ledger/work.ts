/**
 * What a lease costs its run: time at work and the model call that is reserved under it. Every statement that takes or
 * gives a lease writes these columns with it; `r` is the run that is updated (docs/budgets.md).
 */

/** A worker that died worked until its lease lapsed, not until somebody noticed. */
const HELD_MS = `greatest(0, coalesce(ceil(extract(epoch from least(pawl_now(), r.lease_until) - r.leased_at) * 1000), 0))::bigint`;

/** Of the new holder. What the last one had reserved when it died is used up; nobody can tell whether it was. */
export const TAKES_LEASE = `
             worked_ms = r.worked_ms + ${HELD_MS}, leased_at = pawl_now(),
             charged_calls = r.charged_calls + r.reserved_calls, model_calls = r.model_calls + r.reserved_calls,
             cost_micros = case when r.reserved_calls = 0 then r.cost_micros end,
             reserved_calls = case when v.takeover then r.reserved_calls when r.status in ('awaiting_tool', 'awaiting_input') then 0 else 1 end`;

/** Of a run that waited for a person: that time is not its request's. `r` as above. */
export const UNPARKS = `
             parked_at = null, deadline_at = r.deadline_at + coalesce(pawl_now() - r.parked_at, interval '0')`;

/** Given back by its holder, or ended by a person: what was reserved is free again. */
export const GIVES_LEASE = `
             lease_owner = null, lease_until = null, leased_at = null, reserved_calls = 0,
             worked_ms = r.worked_ms + ${HELD_MS}`;

/** The same in a statement that may also leave the lease where it is. */
export const givesLeaseWhen = (condition: string): string => `
             lease_owner = case when ${condition} then null else r.lease_owner end,
             lease_until = case when ${condition} then null else r.lease_until end,
             leased_at = case when ${condition} then null else r.leased_at end,
             reserved_calls = case when ${condition} then 0 else r.reserved_calls end,
             worked_ms = r.worked_ms + case when ${condition} then ${HELD_MS} else 0 end`;
