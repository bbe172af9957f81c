// What a Node image has above the base: Node, the dependencies, our source. Each is a layer of its own, the one that
// changes most often last, so that a changed source costs one small layer.
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { delimiter, dirname, join, relative } from "node:path";
import { childEnvironment, repository } from "../lib/environment.ts";
import { run } from "../lib/run.ts";
import { type Log, UserError, withProgress } from "../lib/say.ts";
import { architecture, type Blob, hashOf, layer } from "./oci.ts";

const read = (...path: string[]) => readFileSync(join(repository, ...path), "utf8");

/** The Node that this repository brings with it, at /usr/local/bin/node. */
export async function nodeLayer(): Promise<Blob> {
  const folder = join(repository, "node_modules", "node");
  if (!existsSync(join(folder, "bin", "node")))
    throw new UserError("Node 24 is not in node_modules: run `npm ci` first.");
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { version: string };
  return layer(hashOf("node", version, architecture), async (root) => {
    const target = join(root, "usr/local/bin");
    mkdirSync(target, { recursive: true });
    copyFileSync(join(folder, "bin", "node"), join(target, "node"));
    chmodSync(join(target, "node"), 0o755);
  });
}

/** The folders of the npm workspaces. */
function workspaces(): string[] {
  return (JSON.parse(read("package.json")) as { workspaces: string[] }).workspaces;
}

/**
 * The production dependencies of some workspaces, at /app/node_modules. Installed by npm from the lock file into an
 * empty folder: what is not in the lock file cannot get in, and neither can what only development needs.
 */
export async function dependenciesLayer(chosen: readonly string[], log: Log): Promise<Blob> {
  const manifests = [
    "package.json",
    "package-lock.json",
    ".npmrc",
    ...workspaces().map((name) => join(name, "package.json")),
  ];
  const present = manifests.filter((file) => existsSync(join(repository, file)));
  const key = hashOf("dependencies", architecture, ...chosen, ...present.flatMap((file) => [file, read(file)]));
  return layer(key, async (root) => {
    const app = join(root, "app");
    for (const file of present) {
      mkdirSync(dirname(join(app, file)), { recursive: true });
      copyFileSync(join(repository, file), join(app, file));
    }
    const flags = ["--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
    const path = [join(repository, "node_modules", ".bin"), childEnvironment().PATH ?? ""].join(delimiter);
    await withProgress(log, `installing the dependencies of ${chosen.join(", ")}`, () =>
      run("npm", ["ci", ...flags, ...chosen.flatMap((name) => ["--workspace", name])], {
        cwd: app,
        env: { PATH: path },
      }),
    );
    // The manifests come again, with the source, in the next layer.
    for (const file of present) rmSync(join(app, file));
    rmSync(join(app, "node_modules", ".package-lock.json"), { force: true });
  });
}

const NOT_SHIPPED = new Set(["node_modules", "test"]);

/** Files of a workspace that an image needs; tests are not among them. */
function filesOf(folder: string): string[] {
  const found: string[] = [];
  for (const entry of readdirSync(join(repository, folder), { withFileTypes: true })) {
    if (NOT_SHIPPED.has(entry.name) || entry.name.startsWith(".")) continue;
    const path = join(folder, entry.name);
    if (entry.isDirectory()) found.push(...filesOf(path));
    else if (entry.isFile()) found.push(path);
  }
  return found.sort();
}

/**
 * Our source at /app, laid out as in the repository: Node runs TypeScript only outside node_modules, and the links in
 * node_modules lead to these folders. `commands` are programs for people who `kubectl exec` into a pod.
 */
export async function sourceLayer(folders: readonly string[], commands: Record<string, string>): Promise<Blob> {
  const files = ["package.json", ...folders.flatMap(filesOf)];
  const hash = createHash("sha256").update(JSON.stringify(commands));
  for (const file of files) hash.update(`${file}\n`).update(readFileSync(join(repository, file)));
  return layer(hashOf("source", hash.digest("hex")), async (root) => {
    for (const file of files) cpSync(join(repository, file), join(root, "app", relative(".", file)));
    for (const [name, script] of Object.entries(commands)) {
      const path = join(root, "usr/local/bin", name);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, script, { mode: 0o755 });
    }
  });
}
