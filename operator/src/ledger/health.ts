/** What an operator of PostgreSQL would want to be told before it hurts. */
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const oldestSnapshotStatement = statement({
  name: "oldest_snapshot",
  params: {},
  columns: { ms: "int8" },
  // A session of another role shows no times to us; those of our own role (pools, psql, dumps as that role) do.
  text: `
    select coalesce(max((extract(epoch from clock_timestamp() - xact_start) * 1000)::bigint), 0) as ms
    from pg_stat_activity
    where datname = current_database() and backend_xmin is not null and xact_start is not null and pid <> pg_backend_pid()`,
});

/**
 * Milliseconds since the oldest open transaction with a snapshot began; 0 = none. While it lives no dead row version
 * can be cleaned away, and the hot rows of runs and conversations grow slow chains of them.
 */
export async function oldestSnapshotMs(db: Runner): Promise<number> {
  return (await db.one(oldestSnapshotStatement, {})).ms;
}
