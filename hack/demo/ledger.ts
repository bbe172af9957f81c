// What a killed Run waits for, from the rows that decide it. Read inside the controller's pod, which has the ledger's
// URL and a client.
import type { Kubectl } from "./kubectl.ts";
import { SYSTEM } from "./places.ts";

export type Waits = {
  status: string;
  /** Grows with every takeover. */
  token: number;
  owner: string | null;
  /** Seconds until the lease lapses; negative: it has. Null: nobody holds one. */
  lease: number | null;
  /** The newest effect, null while there is none. */
  effect: {
    id: string;
    state: string;
    attempt: number;
    /** Seconds until its fate may be settled. Null: it is. */
    settle: number | null;
  } | null;
};

const QUERY = `
  select r.status, r.lease_token::float8 as token, r.lease_owner as owner, extract(epoch from r.lease_until - now())::float8 as lease,
         e.id, e.state, e.attempt, extract(epoch from e.settle_at - now())::float8 as settle
  from runs r
  left join lateral (select * from commitment_effects where run_id = r.id and kind = 'tool.effect'
                     order by id desc limit 1) e on true
  where r.id = $1`;

const PROGRAM = `
  import pg from "pg";
  const client = new pg.Client({ connectionString: process.env.PAWL_LEDGER_URL });
  await client.connect();
  const { rows } = await client.query(process.argv[1], [process.argv[2]]);
  console.log(JSON.stringify(rows[0] ?? null));
  await client.end();`;

/** Null when it cannot be asked at this moment: the demo goes on without. */
export async function waitsOf(kubectl: Kubectl, runId: string): Promise<Waits | null> {
  const node = ["node", "--input-type=module", "--eval", PROGRAM, "--", QUERY, runId];
  const asked = await kubectl.try(["exec", "-n", SYSTEM, "deploy/pawl-controller", "--", ...node], { timeout: 15_000 });
  if (asked.code !== 0) return null;
  const found = JSON.parse(asked.stdout) as (Omit<Waits, "effect"> & Record<string, unknown>) | null;
  if (found === null) return null;
  const { id, state, attempt, settle } = found as Record<string, unknown>;
  const effect = typeof id === "string" ? ({ id, state, attempt, settle } as NonNullable<Waits["effect"]>) : null;
  return { status: found.status, token: found.token, owner: found.owner, lease: found.lease, effect };
}
