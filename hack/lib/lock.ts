// A lock file that holds its owner's process id and start time, so that a lock whose owner has died is taken over.
import { linkSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { identify, isRunning, type ProcessId } from "./processes.ts";
import { duration, type Log } from "./say.ts";

/** Removing a dead owner's lock takes a millisecond; a guard this old was left by a process that died doing it. */
const GUARD_STALE_MS = 10_000;
const POLL_MS = 200;

function ownerOf(path: string): ProcessId | "none" | "unreadable" {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return "none";
  }
  try {
    return JSON.parse(text) as ProcessId;
  } catch {
    return "unreadable";
  }
}

function isDead(owner: ReturnType<typeof ownerOf>): boolean {
  return owner === "unreadable" || (owner !== "none" && !isRunning(owner));
}

/** link() either creates the whole lock, content included, or fails: nobody ever reads half a lock. */
function createWith(path: string, content: string): boolean {
  const draft = `${path}.${process.pid}`;
  writeFileSync(draft, content);
  try {
    linkSync(draft, path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    rmSync(draft, { force: true });
  }
}

/**
 * Removes the lock if its owner is dead. Two processes may see the same dead owner; without the guard the slower one
 * would remove the lock that the faster one has just made.
 */
function removeIfDead(path: string, me: string): void {
  if (!isDead(ownerOf(path))) return;
  const guard = `${path}.takeover`;
  if (!createWith(guard, me)) {
    const made = statSync(guard, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
    if (Date.now() - made > GUARD_STALE_MS) rmSync(guard, { force: true });
    return;
  }
  if (isDead(ownerOf(path))) rmSync(path, { force: true });
  rmSync(guard, { force: true });
}

/** Runs `work` while holding the lock; waits for a living owner, and says so. */
export async function withLock<T>(path: string, what: string, log: Log, work: () => Promise<T>): Promise<T> {
  mkdirSync(dirname(path), { recursive: true });
  const me = JSON.stringify(identify(process.pid) ?? { pid: process.pid, start: "" });
  const start = Date.now();
  let nextWord = 0;
  while (!createWith(path, me)) {
    removeIfDead(path, me);
    if (Date.now() - start >= nextWord) {
      const owner = ownerOf(path);
      if (typeof owner === "object") {
        log(`waiting for process ${owner.pid}, which has ${what} (${duration(Date.now() - start)})`);
        nextWord += 15_000;
      }
    }
    await delay(POLL_MS);
  }
  try {
    return await work();
  } finally {
    rmSync(path, { force: true });
  }
}
