/** Two writers in an order that a test chooses: one holds its locks, the other is seen to wait for them. */
import { Client } from "pg";
import type { Database, Runner } from "#ledger/database.ts";

export type Held<T> = {
  /** Commits, and gives what the transaction did. */
  commit(): Promise<T>;
  /** What it did so far; nobody else can see it yet. */
  readonly result: T;
};

/** Runs `body` in a transaction and keeps it open: every row it locked stays locked until `commit`. */
export async function hold<T>(db: Database, body: (tx: Runner) => Promise<T>): Promise<Held<T>> {
  const go = Promise.withResolvers<void>();
  const ready = Promise.withResolvers<T>();
  const done = db.transaction(async (tx) => {
    const result = await body(tx);
    ready.resolve(result);
    await go.promise;
    return result;
  });
  done.catch(ready.reject);
  const result = await ready.promise;
  return {
    result,
    commit: () => {
      go.resolve();
      return done;
    },
  };
}

/** Comes back when `count` connections of this database wait for a lock of another one. Asks, never sleeps. */
export async function untilBlocked(url: string, count = 1): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    for (;;) {
      const { rows } = await client.query<{ waiting: number }>(
        `select count(*)::int as waiting from pg_stat_activity
         where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0`,
      );
      if ((rows[0]?.waiting ?? 0) >= count) return;
    }
  } finally {
    await client.end();
  }
}

/**
 * `first` is done but not committed when `second` starts; `second` waits for a row of it, then it commits.
 * Both outcomes, in that order.
 */
export async function overlap<A, B>(
  first: { db: Database; body: (tx: Runner) => Promise<A> },
  second: () => Promise<B>,
): Promise<[A, B]> {
  const held = await hold(first.db, first.body);
  const later = second();
  later.catch(() => {});
  await untilBlocked(first.db.url);
  const earlier = await held.commit();
  return [earlier, await later];
}

/** A runner that stops in front of one statement, once, until it is told to go on. */
export function pausedBefore(db: Runner, name: string): { runner: Runner; arrived: Promise<void>; go: () => void } {
  const arrived = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  const gate = async (statement: { name: string }) => {
    if (statement.name !== name) return;
    arrived.resolve();
    await go.promise;
  };
  return {
    runner: {
      rows: async (statement, params) => {
        await gate(statement);
        return db.rows(statement, params);
      },
      one: async (statement, params) => {
        await gate(statement);
        return db.one(statement, params);
      },
    },
    arrived: arrived.promise,
    go: () => go.resolve(),
  };
}
