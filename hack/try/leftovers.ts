// Everything that a try starts or writes, so that it is gone afterwards: at the end, after a failure, on Ctrl-C.
import type { ChildProcess } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Together longer than PostgreSQL takes to end at once. */
const REMOVE_ATTEMPTS = 60;
const REMOVE_PAUSE_MS = 50;

export class Leftovers {
  /** The one folder that is written to. */
  readonly folder: string;
  readonly #children = new Set<ChildProcess>();
  readonly #closers: (() => Promise<void>)[] = [];
  readonly #atExit = (): void => this.#removeNow();
  #removed = false;

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "pawl-try-"));
    chmodSync(this.folder, 0o711); // as root, PostgreSQL runs as a user of its own and has to reach its data
    // Whoever calls process.exit (a signal's handler, a bug) leaves time for nothing but this.
    process.on("exit", this.#atExit);
  }

  child<T extends ChildProcess>(child: T): T {
    this.#children.add(child);
    child.once("exit", () => this.#children.delete(child));
    return child;
  }

  /** Closed in reverse order. */
  onRemove(close: () => Promise<void>): void {
    this.#closers.push(close);
  }

  async remove(): Promise<void> {
    for (const child of this.#children) child.kill("SIGKILL");
    for (const close of this.#closers.reverse()) await close().catch(() => undefined);
    this.#removeNow();
    process.removeListener("exit", this.#atExit);
  }

  #removeNow(): void {
    if (this.#removed) return;
    this.#removed = true;
    for (const child of this.#children) child.kill("SIGKILL");
    quitPostgres(this.folder);
    removeFolder(this.folder);
  }
}

/**
 * Without `await`, for a process that is on its way out. A server that is ending still writes in between, and removes by
 * itself: with `force` a file that is gone already ends the removal early, without an error.
 */
function removeFolder(folder: string): void {
  for (let attempt = 1; existsSync(folder); attempt += 1) {
    try {
      rmSync(folder, { recursive: true, force: true });
    } catch (error) {
      if (attempt >= REMOVE_ATTEMPTS) throw error;
    }
    if (attempt >= REMOVE_ATTEMPTS) return;
    if (existsSync(folder)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, REMOVE_PAUSE_MS);
  }
}

export const dataFolder = (folder: string): string => join(folder, "postgres");

/** Its own way to end at once, and its children with it; found by the file that a running server keeps. */
function quitPostgres(folder: string): void {
  try {
    const pid = Number(readFileSync(join(dataFolder(folder), "postmaster.pid"), "utf8").split("\n")[0]);
    if (pid > 1) process.kill(pid, "SIGQUIT");
  } catch {
    // No file: no server.
  }
}
