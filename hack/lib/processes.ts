// Processes by id *and* start time: an id alone may by now belong to somebody else's process.
import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { childEnvironment } from "./environment.ts";

/** `start` is in clock ticks since boot, together with the boot's own id. */
export type ProcessId = { pid: number; start: string };
export type RecordedProcess = ProcessId & { name: string; log: string };

function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim().slice(0, 8);
  } catch {
    return "";
  }
}

/** The start time in a line of /proc/PID/stat. The command's name may hold spaces and brackets: count from its end. */
export function startTimeInStat(stat: string): string | undefined {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, start] = [fields[0], fields[19]];
  // A zombie has ended; only its parent has not looked yet.
  return state === "Z" || state === "X" ? undefined : start;
}

/** Undefined when no such process runs, or when it is a zombie. */
export function identify(pid: number): ProcessId | undefined {
  try {
    const start = startTimeInStat(readFileSync(`/proc/${pid}/stat`, "utf8"));
    return start === undefined ? undefined : { pid, start: `${start}@${bootId()}` };
  } catch (error) {
    if (process.platform === "linux") return undefined;
    // Elsewhere there is no /proc; the id alone has to do.
    void error;
    return alive(pid) ? { pid, start: "" } : undefined;
  }
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** True while the very process that was recorded runs. */
export function isRunning(recorded: ProcessId): boolean {
  return identify(recorded.pid)?.start === recorded.start;
}

/** Sends a signal, to the recorded process only. */
export function signal(recorded: ProcessId, name: NodeJS.Signals): boolean {
  if (!isRunning(recorded)) return false;
  try {
    process.kill(recorded.pid, name);
    return true;
  } catch {
    return false;
  }
}

/** Waits until `done` holds; false after `timeout` ms. */
export async function waitUntil(done: () => boolean | Promise<boolean>, timeout: number, every = 50): Promise<boolean> {
  const end = Date.now() + timeout;
  for (;;) {
    if (await done()) return true;
    if (Date.now() >= end) return false;
    await delay(every);
  }
}

/** Asks the process to end, and after `grace` ms makes it. */
export async function stopProcess(recorded: ProcessId, grace: number): Promise<void> {
  if (!signal(recorded, "SIGTERM")) return;
  if (await waitUntil(() => !isRunning(recorded), grace)) return;
  signal(recorded, "SIGKILL");
  await waitUntil(() => !isRunning(recorded), 5_000);
}

/** Starts a process that outlives this one, its output in a file. */
export function startDetached(
  name: string,
  command: string,
  args: readonly string[],
  options: { log: string; env?: Record<string, string> },
): RecordedProcess {
  const out = openSync(options.log, "a");
  const child = spawn(command, args, {
    cwd: "/",
    detached: true,
    stdio: ["ignore", out, out],
    env: childEnvironment(options.env),
  });
  closeSync(out);
  child.on("error", () => {});
  child.unref();
  const id = child.pid === undefined ? undefined : identify(child.pid);
  return { name, log: options.log, pid: child.pid ?? 0, start: id?.start ?? "never" };
}
