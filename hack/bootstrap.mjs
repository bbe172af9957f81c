// The door of every npm script: runs on whatever Node (20 or newer) the machine has, installs what the lock file says
// if that was not done yet, and goes on under the Node that the project brings.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const COMMANDS = {
  check: ["hack/check.ts"],
  test: ["hack/test.ts"],
  try: ["hack/try/main.ts"],
  demo: ["hack/demo/main.ts"],
  cluster: ["hack/cluster/main.ts"],
  images: ["hack/images/main.ts"],
  e2e: ["hack/e2e.ts"],
  "crash-sweep": ["operator/test/sweep/main.ts"],
  soak: ["operator/test/soak/main.ts"],
  bench: ["bench/main.ts"],
  generate: ["crds/src/generate.ts"],
};
const MINIMUM = 20;
const root = join(dirname(fileURLToPath(import.meta.url)), "..");

function fail(sentence) {
  console.error(sentence);
  process.exit(1);
}

const [name, ...rest] = process.argv.slice(2);
const command = COMMANDS[name ?? ""];
if (command === undefined) fail(`usage: node hack/bootstrap.mjs ${Object.keys(COMMANDS).join("|")} [arguments]`);
if (Number(process.versions.node.split(".")[0]) < MINIMUM) {
  fail(
    `Node ${MINIMUM} or newer is needed to start with, this is ${process.versions.node}: install it from nodejs.org or your system's packages.`,
  );
}

// The lock file's hash stands in node_modules after a complete install; a broken or older one is made anew.
const marker = join(root, "node_modules/.pawl-installed");
const wanted = createHash("sha256")
  .update(readFileSync(join(root, "package-lock.json")))
  .digest("hex");
if (!existsSync(marker) || readFileSync(marker, "utf8") !== wanted) {
  console.error("installing npm packages (npm ci) …");
  const npm = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (npm.error !== undefined)
    fail(`npm could not be started (${npm.error.message}): it comes with Node, install both.`);
  if (npm.status !== 0) fail("npm ci failed (see above); with a working registry, run the same command again.");
  writeFileSync(marker, wanted);
}

const bin = join(root, "node_modules/.bin");
const child = spawn(
  join(bin, "node"),
  ["--disable-warning=ExperimentalWarning", ...command.map((file) => join(root, file)), ...rest],
  {
    stdio: "inherit",
    cwd: root,
    env: { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH ?? ""}` },
  },
);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) =>
  fail(
    `the project's own Node could not be started (${error.message}): remove node_modules and run the command again.`,
  ),
);
child.on("exit", (code, signal) => process.exit(code ?? (signal === null ? 1 : 128)));
