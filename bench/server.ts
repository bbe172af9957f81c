/**
 * The PostgreSQL that everything is measured on: as it comes, with `fsync`, but for what it does by itself at a time of its
 * own. Its autovacuum went through gigabytes of one system's rows, for minutes and at 35 MB of log a second, while the
 * next systems were measured; and a checkpoint in the middle of a run makes that run write whole pages again.
 */
import { chmod, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "../hack/lib/run.ts";
import { Postgres } from "../operator/test/support/postgres.ts";

/** The largest run writes 5 GB of log before it is cut. */
const SETTINGS = { autovacuum: "off", checkpoint_timeout: "1h", max_wal_size: "16GB" } as const;

/** `fsyncUs`: how long every fsync takes at the least, microseconds. Absent: as long as it takes here. */
export async function startServer(fsyncUs?: number): Promise<Postgres> {
  const preload = fsyncUs === undefined ? {} : { LD_PRELOAD: await slowFsync(), BENCH_FSYNC_US: String(fsyncUs) };
  // The server is a child that inherits them; what is started later does not.
  Object.assign(process.env, preload);
  const postgres = await Postgres.start();
  for (const name of Object.keys(preload)) delete process.env[name];
  for (const [name, value] of Object.entries(SETTINGS)) await postgres.admin(`alter system set ${name} = '${value}'`);
  await postgres.admin("select pg_reload_conf()");
  return postgres;
}

async function slowFsync(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "pawl-fsync-"));
  await chmod(folder, 0o755); // the server runs as a user of its own
  const library = join(folder, "slow-fsync.so");
  await run("cc", ["-shared", "-fPIC", "-O2", "-o", library, join(import.meta.dirname, "slow-fsync.c"), "-ldl"]);
  return library;
}

/** What autovacuum would have done by now. `url`: of one system's database. */
export async function tidy(postgres: Postgres, url: string): Promise<void> {
  await postgres.admin("vacuum (analyze)", new URL(url).pathname.slice(1));
}
