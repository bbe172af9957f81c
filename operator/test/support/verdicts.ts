/** Remembers which verdict of which statement the tests of this process have met; `zz_verdicts.test.ts` compares. */
import { Database, type Runner } from "#ledger/database.ts";

export const met = new Map<string, Set<string>>();

function remember(name: string, rows: readonly object[]): void {
  for (const row of rows) {
    const verdict: unknown = "verdict" in row ? row.verdict : undefined;
    if (typeof verdict === "string") met.set(name, (met.get(name) ?? new Set()).add(verdict));
  }
}

function recording(runner: Runner): Runner {
  return {
    rows: async (statement, params) => {
      const rows = await runner.rows(statement, params);
      remember(statement.name, rows);
      return rows;
    },
    one: async (statement, params) => {
      const row = await runner.one(statement, params);
      remember(statement.name, [row]);
      return row;
    },
  };
}

/** A Database that notes the verdicts which pass through it. */
export class RecordingDatabase extends Database {
  override rows: Runner["rows"] = async (statement, params) => {
    const rows = await super.rows(statement, params);
    remember(statement.name, rows);
    return rows;
  };

  override transaction<T>(body: (tx: Runner) => Promise<T>): Promise<T> {
    return super.transaction((tx) => body(recording(tx)));
  }
}
