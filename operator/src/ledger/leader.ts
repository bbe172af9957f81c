/**
 * Which of several controllers works. A convenience, not a guard: it keeps two from doing the same reads; what must
 * happen once is guarded where it happens (the ledger's keys, resourceVersion, the order of versions in a status).
 */
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const openLeadership = statement({
  name: "open_leadership",
  params: { name: "text", owner: "text" },
  columns: { name: "text" },
  text: `
    insert into leases (name, token, owner, until) values (:name, 0, :owner, pawl_now())
    on conflict (name) do nothing returning name`,
});

const holdLeadershipStatement = statement({
  name: "hold_leadership",
  guarded: true,
  params: { name: "text", owner: "text", lease_ms: "int4" },
  columns: { verdict: "text", owner: "text?" },
  text: `
    with locked as (select * from leases where name = :name for no key update),
    verdict as (
      select name, owner, case
        when owner = :owner and until >= pawl_now() then 'held'
        when until < pawl_now() then 'taken'
        else 'standby' end as verdict from locked),
    held as (
      update leases l set owner = :owner, until = pawl_now() + :lease_ms * interval '1 ms',
             token = l.token + case when v.verdict = 'taken' then 1 else 0 end
      from verdict v where l.name = v.name and v.verdict <> 'standby')
    select coalesce(v.verdict, 'missing') as verdict, v.owner from (select 1) one left join verdict v on true`,
});

const releaseLeadershipStatement = statement({
  name: "release_leadership",
  params: { name: "text", owner: "text" },
  columns: { name: "text" },
  text: `update leases set until = pawl_now() where name = :name and owner = :owner and until > pawl_now() returning name`,
});

export type Leadership = { readonly held: boolean; readonly owner: string };

/** Takes or renews; call it again well within `leaseMs`. `owner` is unique per process start. */
export async function holdLeadership(db: Runner, name: string, owner: string, leaseMs: number): Promise<Leadership> {
  const row = await db.one(holdLeadershipStatement, { name, owner, lease_ms: leaseMs });
  if (row.verdict !== "missing") {
    return row.verdict === "standby" ? { held: false, owner: row.owner ?? "" } : { held: true, owner };
  }
  await db.rows(openLeadership, { name, owner });
  return holdLeadership(db, name, owner, leaseMs);
}

/** Lets another one take over at once. */
export async function releaseLeadership(db: Runner, name: string, owner: string): Promise<void> {
  await db.rows(releaseLeadershipStatement, { name, owner });
}
