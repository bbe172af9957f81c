// Runs the layers of a check or a test one after the other, says how long each took, and counts what mocha counted.
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { childEnvironment, repository } from "./environment.ts";
import { duration } from "./say.ts";

export type Counts = { passed: number; failed: number; skipped: number };

export type Layer = {
  readonly name: string;
  /** Throws when the layer as a whole failed; its tests are counted by the reporter. */
  readonly run: () => Promise<void>;
};

export class LayerFailed extends Error {}

/** Runs a command with the terminal's output; throws LayerFailed on any other end than 0. */
export function command(
  file: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, { cwd: repository, stdio: "inherit", env: childEnvironment(env) });
    child.on("error", (error) => reject(new LayerFailed(`${file}: ${error.message}`)));
    child.on("exit", (code, signal) => {
      if (code === 0) resolve();
      else reject(new LayerFailed(`${[file, ...args].join(" ")} ended with ${signal ?? code}`));
    });
  });
}

/** Mocha over these globs, in a process of its own. Its counts go to the folder that `runLayers` reads. */
export function mocha(
  globs: readonly string[],
  env: Readonly<Record<string, string>> = {},
  flags: readonly string[] = [],
): Promise<void> {
  return command(
    process.execPath,
    ["node_modules/mocha/bin/mocha.js", "--reporter", "hack/lib/reporter.cjs", ...flags, ...globs],
    {
      ...(counting === undefined ? {} : { PAWL_COUNTS: counting }),
      ...env,
    },
  );
}

let counting: string | undefined;

function readCounts(folder: string): Counts {
  const sum: Counts = { passed: 0, failed: 0, skipped: 0 };
  for (const file of readdirSync(folder)) {
    const counts = JSON.parse(readFileSync(join(folder, file), "utf8")) as Counts;
    sum.passed += counts.passed;
    sum.failed += counts.failed;
    sum.skipped += counts.skipped;
  }
  return sum;
}

/** Every layer runs, whatever an earlier one did; the last line is the count, the exit code says whether all is well. */
export async function runLayers(layers: readonly Layer[]): Promise<void> {
  counting = mkdtempSync(join(tmpdir(), "pawl-counts-"));
  const times: string[] = [];
  let broken = 0;
  for (const layer of layers) {
    console.log(`\n=== ${layer.name}`);
    const started = performance.now();
    const before = readCounts(counting).failed;
    try {
      await layer.run();
    } catch (error) {
      console.error(error instanceof LayerFailed ? error.message : error);
      // A layer that broke without a failed test of its own (a crash, a linter) counts as one.
      if (readCounts(counting).failed === before) broken += 1;
    }
    times.push(`${layer.name} ${duration(performance.now() - started)}`);
  }
  const counts = readCounts(counting);
  rmSync(counting, { recursive: true, force: true });
  const failed = counts.failed + broken;
  console.log(`\n${times.join(" · ")}`);
  console.log(`${counts.passed} passed, ${failed} failed${counts.skipped > 0 ? `, ${counts.skipped} skipped` : ""}`);
  process.exitCode = failed === 0 ? 0 : 1;
}
