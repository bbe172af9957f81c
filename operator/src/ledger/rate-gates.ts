/** How long endpoints want to be left alone, per credential, for every worker. Hints: nothing decides on these rows alone. */
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

/** A row is kept this long after its time: long enough for any clock, short enough to stay few. */
const KEPT_MS = 3_600_000;

const closeGateStatement = statement({
  name: "close_gate",
  params: { credential: "text", wait_ms: "int8", kept_ms: "int8" },
  columns: {},
  // Rows whose time is long over go with the next refusal; rows that somebody else works on are left to him.
  text: `
    with over as (
      select credential from rate_gates where not_before < pawl_now() - :kept_ms * interval '1 ms' and credential <> :credential
      order by credential for update skip locked),
    gone as (delete from rate_gates g using over o where g.credential = o.credential)
    insert into rate_gates as g (credential, not_before) values (:credential, pawl_now() + :wait_ms * interval '1 ms')
    on conflict (credential) do update set not_before = greatest(g.not_before, excluded.not_before)`,
});

const closedGatesStatement = statement({
  name: "closed_gates",
  params: {},
  columns: { credential: "text", wait_ms: "int8" },
  text: `
    select credential, ceil(extract(epoch from not_before - pawl_now()) * 1000)::bigint as wait_ms
    from rate_gates where not_before > pawl_now() order by not_before desc limit 1000`,
});

/** `credential` is a hash. The longest wait wins; said again after a lost reply it only grows by that time. */
export async function closeGate(db: Runner, credential: string, waitMs: number): Promise<void> {
  await db.rows(closeGateStatement, { credential, wait_ms: Math.ceil(waitMs), kept_ms: KEPT_MS });
}

export async function closedGates(db: Runner): Promise<{ credential: string; waitMs: number }[]> {
  return (await db.rows(closedGatesStatement, {})).map((row) => ({ credential: row.credential, waitMs: row.wait_ms }));
}
