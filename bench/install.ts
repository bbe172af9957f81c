/** Installs what Pawl is measured beside, as the lock file here says, when that was not done yet. */
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../hack/lib/run.ts";
import { type Log, UserError, withProgress } from "../hack/lib/say.ts";
import { PYTHON_FOLDER } from "./systems/absurd.ts";

const FOLDER = import.meta.dirname;
const MARKER = join(FOLDER, "node_modules/.pawl-installed");

const wanted = (): string =>
  ["package-lock.json", "requirements.txt"]
    .reduce((hash, name) => hash.update(readFileSync(join(FOLDER, name))), createHash("sha256"))
    .digest("hex");

export async function installPeers(log: Log): Promise<void> {
  if (existsSync(MARKER) && readFileSync(MARKER, "utf8") === wanted()) return;
  await withProgress(log, "installing the systems to measure beside (bench/package-lock.json)", async () => {
    const npm = await run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
      cwd: FOLDER,
      allowFailure: true,
    });
    if (npm.code !== 0)
      throw new UserError(
        `npm ci in bench/ failed; with a working registry, run the same command again:\n${npm.stderr}`,
      );
    // Absurd's schema is part of its command line; without Python this one system is left out, and said so.
    const pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", PYTHON_FOLDER];
    const python = await run("python3", [...pip, "-r", "requirements.txt"], { cwd: FOLDER, allowFailure: true });
    if (python.code === 0) writeFileSync(MARKER, wanted());
    else log("Absurd is left out: its schema needs python3 with pip.");
  });
}
