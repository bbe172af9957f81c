/** Every invariant in one question: a property asks after each of thousands of operations. */
import type { Database } from "#ledger/database.ts";
import { INVARIANTS, type Violation } from "#ledger/invariants.ts";

const TEXT = INVARIANTS.map(
  ({ name, statement }) => `select '${name}' as invariant, offender from (${statement.compiled}) ${name}`,
).join("\nunion all ");

/** As `checkInvariants`, which asks them one by one. */
export async function checkAtOnce(db: Database): Promise<Violation[]> {
  return (await db.pool.query<Violation>({ name: "every_invariant", text: TEXT, values: [] })).rows;
}
