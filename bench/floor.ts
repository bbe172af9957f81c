/**
 * What one durable step costs at the very least here: an insert of the result and its commit, by pgbench, on the same
 * server in the same minutes. Without pgbench on the machine a loop over our own driver stands in, and is called that.
 */
import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { run, which } from "../hack/lib/run.ts";

const TABLE = "create table floor (run int, ordinal bigserial, result text not null, primary key (run, ordinal))";
const INSERT = "insert into floor (run, result) values (1,";

export type Floor = { readonly name: string; measure(steps: number, bytes: number): Promise<number[]> };

const text = (bytes: number): string => randomBytes(bytes).toString("base64").slice(0, bytes);

/** `url`: an empty database of its own. */
export async function openFloor(url: string): Promise<Floor> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(TABLE);
  await client.end();
  const pgbench = which("pgbench");
  return pgbench === undefined
    ? { name: "floor (driver loop)", measure: (steps, bytes) => driverLoop(url, steps, bytes) }
    : { name: "floor (pgbench)", measure: (steps, bytes) => byPgbench(pgbench, url, steps, bytes) };
}

/** Milliseconds of each transaction, as pgbench logged them. */
async function byPgbench(pgbench: string, url: string, steps: number, bytes: number): Promise<number[]> {
  const folder = mkdtempSync(join(tmpdir(), "pawl-floor-"));
  try {
    writeFileSync(join(folder, "insert.sql"), `${INSERT} :result);\n`);
    const options = ["--no-vacuum", "--protocol=prepared", "--log", "--log-prefix=log", "--file=insert.sql"];
    const amount = [`--transactions=${steps}`, `--define=result=${text(bytes)}`];
    await run(pgbench, [...options, ...amount, url], { cwd: folder });
    const logs = readdirSync(folder).filter((name) => name.startsWith("log."));
    const lines = logs.flatMap((name) => readFileSync(join(folder, name), "utf8").trim().split("\n"));
    return lines.map((line) => Number(line.split(" ")[2]) / 1000);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function driverLoop(url: string, steps: number, bytes: number): Promise<number[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const values = [text(bytes)];
  const times: number[] = [];
  for (let index = 0; index < steps; index += 1) {
    const before = performance.now();
    await client.query({ name: "floor", text: `${INSERT} $1)`, values });
    times.push(performance.now() - before);
  }
  await client.end();
  return times;
}
