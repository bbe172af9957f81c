/**
 * One measured system in a process of its own: heaps, timers and compiled code of one do not disturb another.
 * node bench/worker.ts SYSTEM URL, spoken to over the channel of `fork`.
 */
import { randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";
import type pg from "pg";
import type { Answer, Measured, Order, System, SystemName } from "./system.ts";

const say = (answer: Answer<Measured>): void => {
  process.send?.(answer);
};

/** Thrown out of a step to end a run that takes too long. */
class Enough extends Error {}

let queries = 0;

/** The repository's driver is Pawl's, the one of the lock file here is the peers'. */
const driver = (folder: string): typeof pg => createRequire(join(import.meta.dirname, folder, "package.json"))("pg");

/** Counts what a driver sends. */
function countQueries({ Client }: typeof pg): void {
  const prototype = Client.prototype as { query: (...args: unknown[]) => unknown };
  const original = prototype.query;
  prototype.query = function counted(this: unknown, ...args: unknown[]): unknown {
    queries += 1;
    return original.apply(this, args);
  };
}

async function load(name: SystemName): Promise<System> {
  switch (name) {
    case "pawl":
      return (await import("./systems/pawl.ts")).pawl;
    case "dbos":
      return (await import("./systems/dbos.ts")).dbos;
    case "absurd":
      return (await import("./systems/absurd.ts")).absurd;
    case "langgraph":
      return (await import("./systems/langgraph.ts")).langgraph("plain");
    case "langgraph-delta":
      return (await import("./systems/langgraph.ts")).langgraph("delta");
  }
}

type Reading = { readonly queries: number; readonly xid: bigint; readonly lsn: string };

/** The server's own counts, over a connection that no system uses. */
async function read(own: pg.Client): Promise<Reading> {
  const { rows } = await own.query<{ xid: string; lsn: string }>(
    "select pg_snapshot_xmax(pg_current_snapshot())::text as xid, pg_current_wal_insert_lsn()::text as lsn",
  );
  const [row] = rows;
  return { queries, xid: BigInt(row?.xid ?? 0), lsn: row?.lsn ?? "" };
}

/** Without images of whole pages: how many of those there are depends on when the server had its last checkpoint. */
async function bytesOfRecords(own: pg.Client, first: Reading, last: Reading): Promise<number> {
  const { rows } = await own.query<{ bytes: number }>(
    "select sum(record_size)::float8 as bytes from pg_get_wal_stats($1, $2, false)",
    [first.lsn, last.lsn],
  );
  return rows[0]?.bytes ?? Number.NaN;
}

async function measure(system: System, own: pg.Client, order: Order): Promise<Measured> {
  const count = order.effects > 0 ? 2 : order.steps;
  // No compression makes these smaller, on the wire or in a row.
  const results = Array.from({ length: count }, () =>
    randomBytes(order.bytes).toString("base64").slice(0, order.bytes),
  );
  const gaps: number[] = [];
  const until = performance.now() + order.limitMs;
  let first: Reading | undefined;
  let last: Reading | undefined;
  let taken = 0;
  let before = 0;
  let cut = false;
  const step = async (): Promise<string> => {
    const now = performance.now();
    if (taken > 0) gaps.push(now - before);
    cut = now > until && taken > 1;
    taken += 1;
    if (taken === 1) first = await read(own);
    if (taken === count || cut) last = await read(own);
    if (cut) throw new Enough(`more than ${order.limitMs} ms`);
    before = performance.now();
    return results[taken - 1] ?? "";
  };
  try {
    await system.run(order, step);
  } catch (error) {
    if (!cut) throw error;
  }
  if (first === undefined || last === undefined) throw new Error(`${taken} of ${count} steps were run`);
  const steps = taken - 1;
  return {
    steps,
    gaps,
    roundTrips: (last.queries - first.queries) / steps,
    commits: Number(last.xid - first.xid) / steps,
    wal: (await bytesOfRecords(own, first, last)) / steps,
    cut,
  };
}

const [, , name, url] = process.argv;
if (name === undefined || url === undefined) throw new Error("usage: worker.ts SYSTEM URL");
try {
  const [measured, other] = name === "pawl" ? ["..", "."] : [".", ".."];
  countQueries(driver(measured));
  const system = await load(name as SystemName);
  await system.open(url);
  // The other driver: reading the counts is no query of the system.
  const own = new (driver(other).Client)({ connectionString: url });
  await own.connect();
  await own.query("create extension if not exists pg_walinspect");
  process.on("message", (order: Order) => {
    void measure(system, own, order).then(
      (measured) => say({ kind: "measured", measured }),
      (error: Error) => say({ kind: "unavailable", why: error.message }),
    );
  });
  process.on("disconnect", () => process.exit());
  say({ kind: "ready" });
} catch (error) {
  say({ kind: "unavailable", why: (error as Error).message });
  process.disconnect();
}
