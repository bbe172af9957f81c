/**
 * A PostgreSQL that the machine has, by the folder of its programs: the ledger's tests run on the oldest version that
 * we support, too. The server is a child of this process and runs as the user `postgres`.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "pg";

export type Server = { stop(): Promise<void> };

const idOf = (flag: "-u" | "-g"): number => Number(execFileSync("id", [flag, "postgres"], { encoding: "utf8" }));

export async function startInstalled(options: {
  bin: string;
  folder: string;
  port: number;
  password: string;
  flags: readonly string[];
}): Promise<Server> {
  const user = process.getuid?.() === 0 ? { uid: idOf("-u"), gid: idOf("-g") } : undefined;
  const data = join(options.folder, "data");
  const password = join(options.folder, "password");
  mkdirSync(data);
  writeFileSync(password, options.password);
  if (user !== undefined) for (const path of [data, password]) chownSync(path, user.uid, user.gid);
  execFileSync(
    join(options.bin, "initdb"),
    ["-D", data, "-U", "postgres", "--auth=scram-sha-256", `--pwfile=${password}`, "--encoding=UTF8", "--locale=C"],
    { ...user, stdio: ["ignore", "ignore", "inherit"], cwd: options.folder },
  );
  rmSync(password);
  const server = spawn(join(options.bin, "postgres"), ["-D", data, "-p", String(options.port), ...options.flags], {
    ...user,
    stdio: "ignore",
    cwd: options.folder,
  });
  await answering(server, options);
  return {
    stop: async () => {
      if (server.exitCode !== null) return;
      server.kill("SIGINT"); // fast shutdown
      await once(server, "exit");
    },
  };
}

async function answering(server: ChildProcess, options: { port: number; password: string }): Promise<void> {
  for (;;) {
    if (server.exitCode !== null) throw new Error(`postgres ended with ${server.exitCode}`);
    const client = new Client({
      connectionString: `postgres://postgres:${options.password}@127.0.0.1:${options.port}/postgres`,
    });
    try {
      await client.connect();
      await client.end();
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
