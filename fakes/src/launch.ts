/**
 * Starts a fake as a child process and talks to it. Used alike by tests, the crash sweep and the demo.
 * The child ends with its parent, even if the parent is killed (its standard input closes).
 */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { LogEntry } from "./request-log.ts";

export type FakeKind = "model" | "world" | "mcp";

export type FakeOptions = {
  readonly host?: string;
  readonly port?: number;
  /** JSONL file; by default a temporary one, removed by `stop`. */
  readonly log?: string;
  /** Further `--name value` arguments: model: script, key, context-tokens; mcp: key. */
  readonly arguments?: Readonly<Record<string, string>>;
};

export type Fake = {
  readonly kind: FakeKind;
  /** `http://127.0.0.1:PORT`, without a trailing slash. */
  readonly url: string;
  readonly logFile: string;
  readonly pid: number;
  /** Every accepted request so far; with `atLeast`, resolves as soon as there are that many. */
  log(atLeast?: number): Promise<LogEntry[]>;
  /** Sends `method path` with a JSON body to the fake's control side and returns its JSON answer. Throws on ≥ 400. */
  control(method: string, path: string, body?: unknown): Promise<unknown>;
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

type Child = ChildProcessByStdio<Writable, Readable, null>;

export async function startFake(kind: FakeKind, options: FakeOptions = {}): Promise<Fake> {
  const temporary = options.log === undefined ? mkdtempSync(join(tmpdir(), `pawl-fake-${kind}-`)) : undefined;
  const logFile = options.log ?? join(temporary ?? "", "accepted.jsonl");
  const main = fileURLToPath(new URL(`./${kind}-main.ts`, import.meta.url));
  const extra = Object.entries(options.arguments ?? {}).flatMap(([name, value]) => [`--${name}`, value]);
  const where = ["--host", options.host ?? "127.0.0.1", "--port", String(options.port ?? 0), "--log", logFile];
  const child = spawn(process.execPath, [main, ...where, "--die-with-parent", ...extra], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await exited;
    if (temporary !== undefined) rmSync(temporary, { recursive: true, force: true });
  };
  const url = await readyUrl(kind, child).catch(async (error: unknown) => {
    await stop();
    throw error;
  });
  return {
    kind,
    url,
    logFile,
    pid: child.pid ?? -1,
    log: async (atLeast = 0) => (await call(url, "GET", `/log?atLeast=${atLeast}`)) as LogEntry[],
    control: async (method, path, body) => await call(url, method, path, body),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

async function readyUrl(kind: FakeKind, child: Child): Promise<string> {
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([
    once(lines, "line").then(([line]) => String(line)),
    once(child, "exit").then(() => undefined),
  ]);
  lines.close();
  child.stdout.resume();
  if (first === undefined) throw new Error(`the ${kind} fake ended before it was ready (its error is above)`);
  return (JSON.parse(first) as { url: string }).url;
}

async function call(url: string, method: string, path: string, body?: unknown): Promise<unknown> {
  const response = await fetch(url + path, {
    method,
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`);
  return text === "" ? undefined : JSON.parse(text);
}
