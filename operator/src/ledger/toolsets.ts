/**
 * The tools of servers elsewhere that a run was shown when it began. They are pinned: a server that changes a description
 * or a schema in the middle of a run (or between two workers of it) changes nothing about that run.
 */
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const readToolsetStatement = statement({
  name: "read_toolset",
  params: { run: "uuid" },
  columns: { tools: "jsonb" },
  text: "select tools from run_toolsets where run_id = :run",
});

const pinToolsetStatement = statement({
  name: "pin_toolset",
  guarded: true,
  params: { run: "uuid", token: "int8", tools: "jsonb" },
  columns: { verdict: "text" },
  // Only the holder of the lease pins, and only what nobody has pinned yet: the same words again change nothing.
  text: `
    with locked as (
      select id, live, lease_token, lease_owner, lease_until from runs where id = :run for no key update),
    verdict as (
      select *, case
        when not live then 'ended'
        when lease_token <> :token or lease_owner is null or lease_until < pawl_now() then 'fenced'
        else 'pinned' end as verdict from locked),
    pinned as (
      insert into run_toolsets (run_id, tools, pinned_at) select id, :tools, pawl_now() from verdict where verdict = 'pinned'
      on conflict do nothing)
    select verdict from verdict`,
});

/** Null: nothing was pinned yet. */
export async function readToolset(db: Runner, runId: string): Promise<unknown> {
  const [row] = await db.rows(readToolsetStatement, { run: runId });
  return row?.tools ?? null;
}

export async function pinToolset(
  db: Runner,
  run: { readonly runId: string; readonly token: number },
  tools: unknown,
): Promise<"pinned" | "fenced" | "ended"> {
  const row = await db.one(pinToolsetStatement, { run: run.runId, token: run.token, tools });
  return row.verdict as "pinned" | "fenced" | "ended";
}
