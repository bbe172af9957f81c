/**
 * Forward-only migrations: `migrations/NNNN_noun.sql`, each in one transaction, recorded with the hash of its text.
 * A migrator that meets another one polls for the lock: waiting inside PostgreSQL would deadlock with a concurrent
 * index build. A migration marked `-- pawl:breaking=true` makes older code refuse to start on the newer schema.
 */
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import pg from "pg";
import { PawlError } from "#rules/errors.ts";
import { CONNECT_TIMEOUT_MS, REPLY_TIMEOUT_MS } from "./database.ts";

/** pg_try_advisory_lock key: "pawl" in ASCII. */
const LOCK = 0x7061776c;
/** How often a migrator that must wait looks again. */
export const LOCK_POLL_MS = 50;
/** How long it waits for another migrator; then it says which lock to look at. */
export const LOCK_WAIT_MS = 120_000;
/** No DDL statement waits for a table longer than this; traffic behind it would wait too. */
export const DDL_LOCK_TIMEOUT = "5s";
export const MIN_SERVER_VERSION = 150_000;

export type Migration = { version: number; name: string; sha256: string; breaking: boolean; sql: string };

const DIRECTORY = join(import.meta.dirname, "../../migrations");

export async function migrations(directory: string = DIRECTORY): Promise<Migration[]> {
  const files = (await readdir(directory)).filter((file) => file.endsWith(".sql")).sort();
  const found = await Promise.all(
    files.map(async (file) => {
      const match = /^(\d{4})_[a-z_]+\.sql$/.exec(file);
      if (match === null) throw new PawlError("invariant", "MigrationName", `${file} is not named NNNN_noun.sql`);
      const sql = await readFile(join(directory, file), "utf8");
      return {
        version: Number(match[1]),
        name: file,
        sha256: createHash("sha256").update(sql).digest("hex"),
        breaking: /^-- pawl:breaking=true$/m.test(sql),
        sql,
      };
    }),
  );
  // Numbers are reserved before they are used, so one may be missing for a while; never may two share one.
  for (const [index, migration] of found.entries()) {
    const before = found[index - 1];
    if (before?.version === migration.version) {
      throw new PawlError("invariant", "MigrationTwice", `${before.name} and ${migration.name} have the same number`);
    }
  }
  return found;
}

type Applied = { version: number; name: string; sha256: string; breaking: boolean };

/** What stands between this code and that schema; null when they fit. Pure. */
export function incompatibility(known: readonly Migration[], applied: readonly Applied[]): string | null {
  for (const row of applied) {
    const mine = known.find((migration) => migration.version === row.version);
    if (mine === undefined) {
      if (row.breaking) return `the ledger was migrated by newer code (${row.name}) that this version cannot read`;
    } else if (mine.sha256 !== row.sha256) {
      return `migration ${row.name} in the ledger differs from the one in this version`;
    }
  }
  return null;
}

export type MigrateOptions = {
  readonly url: string;
  readonly directory?: string;
  readonly log?: (line: string) => void;
  readonly signal?: AbortSignal;
};

/** Brings the schema up to date and returns the versions it applied itself. Safe to run any number of times at once. */
export async function migrate(options: MigrateOptions): Promise<number[]> {
  const known = await migrations(options.directory);
  const client = new pg.Client({
    connectionString: options.url,
    application_name: "pawl-migrate",
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  });
  client.on("error", () => {});
  try {
    await client.connect();
    await checkServer(client);
    await waitForLock(client, options.signal);
    try {
      return await applyMissing(client, known, options.log ?? (() => {}));
    } finally {
      // The session ends here and gives the lock back anyway; a failed unlock must not hide what failed before it.
      await client.query("select pg_advisory_unlock($1)", [LOCK]).catch(() => {});
    }
  } catch (error) {
    if (error instanceof PawlError) throw error;
    throw new PawlError("transient", "LedgerUnavailable", `migrate: ${(error as Error).message}`, { cause: error });
  } finally {
    await client.end().catch(() => {});
  }
}

async function checkServer(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ version: number; sync: string }>(
    "select current_setting('server_version_num')::int as version, current_setting('synchronous_commit') as sync",
  );
  const server = rows[0];
  if (server === undefined || server.version < MIN_SERVER_VERSION) {
    throw new PawlError("terminal", "PostgresTooOld", `PostgreSQL 15 or newer is needed, this is ${server?.version}`);
  }
  refuseAsynchronous(server.sync);
}

/** With synchronous_commit=off an acknowledged commit can vanish with the server, and an effect would leave twice. */
export function refuseAsynchronous(setting: string): void {
  if (setting !== "off") return;
  throw new PawlError(
    "terminal",
    "SynchronousCommitOff",
    "synchronous_commit is off: a confirmed commit could be lost and an effect repeated; set it to on for this database",
  );
}

async function waitForLock(client: pg.Client, signal: AbortSignal | undefined): Promise<void> {
  const deadline = performance.now() + LOCK_WAIT_MS;
  for (;;) {
    const { rows } = await client.query<{ got: boolean }>("select pg_try_advisory_lock($1) as got", [LOCK]);
    if (rows[0]?.got === true) return;
    if (signal?.aborted === true) throw new PawlError("cancelled", "Cancelled", "migrate: cancelled");
    if (performance.now() > deadline) {
      throw new PawlError("transient", "MigrationLock", `another migrator holds advisory lock ${LOCK} for too long`);
    }
    await new Promise((resolve) => setTimeout(resolve, LOCK_POLL_MS));
  }
}

async function applyMissing(
  client: pg.Client,
  known: readonly Migration[],
  log: (line: string) => void,
): Promise<number[]> {
  await client.query(`create table if not exists schema_migrations (
    version int primary key, name text not null, sha256 text not null, breaking boolean not null,
    applied_at timestamptz not null default clock_timestamp())`);
  const { rows } = await client.query<Applied>("select version, name, sha256, breaking from schema_migrations");
  const reason = incompatibility(known, rows);
  if (reason !== null) throw new PawlError("terminal", "SchemaIncompatible", reason);
  const done: number[] = [];
  for (const migration of known) {
    if (rows.some((row) => row.version === migration.version)) continue;
    log(`applying ${migration.name}`);
    try {
      await apply(client, migration);
    } catch (error) {
      await client.query("rollback").catch(() => {});
      throw failure(migration, error);
    }
    done.push(migration.version);
  }
  return done;
}

async function apply(client: pg.Client, migration: Migration): Promise<void> {
  await client.query("begin");
  await client.query(`set local lock_timeout = '${DDL_LOCK_TIMEOUT}'`);
  await client.query(migration.sql);
  await client.query("insert into schema_migrations (version, name, sha256, breaking) values ($1, $2, $3, $4)", [
    migration.version,
    migration.name,
    migration.sha256,
    migration.breaking,
  ]);
  const tag = await client.query("commit");
  if (tag.command !== "COMMIT") throw new Error(`${migration.name} was rolled back`);
}

/** A text that the server refuses is refused again; a lock that was busy or a server that left is not. */
function failure(migration: Migration, error: unknown): PawlError {
  const state = (error as { code?: string }).code ?? "";
  const refused = /^(0A|2|42)/.test(state);
  return new PawlError(
    refused ? "terminal" : "transient",
    refused ? "MigrationFailed" : "LedgerUnavailable",
    `${migration.name}: ${(error as Error).message}; nothing of it was applied`,
    { cause: error },
  );
}

/** Throws when the schema is missing, behind this code, or ahead of it by a breaking migration. */
export async function checkSchema(url: string): Promise<void> {
  const client = new pg.Client({
    connectionString: url,
    application_name: "pawl-check",
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: REPLY_TIMEOUT_MS,
  });
  client.on("error", () => {});
  try {
    await client.connect();
    await checkServer(client);
    const known = await migrations();
    const { rows } = await client.query<Applied>("select version, name, sha256, breaking from schema_migrations");
    const reason = incompatibility(known, rows);
    if (reason !== null) throw new PawlError("terminal", "SchemaIncompatible", reason);
    if (rows.length < known.length) {
      throw new PawlError(
        "transient",
        "SchemaBehind",
        "the ledger's schema is older than this version: run `pawl migrate`",
      );
    }
  } catch (error) {
    if (error instanceof PawlError) throw error;
    if ((error as { code?: string }).code === "42P01") {
      throw new PawlError("transient", "SchemaBehind", "the ledger has no schema yet: run `pawl migrate`");
    }
    throw new PawlError("transient", "LedgerUnavailable", `ledger: ${(error as Error).message}`, { cause: error });
  } finally {
    await client.end().catch(() => {});
  }
}
