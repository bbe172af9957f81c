// Runs a command to its end.
import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { childEnvironment } from "./environment.ts";

export type RunOptions = {
  cwd?: string;
  env?: Record<string, string>;
  input?: string;
  /** Milliseconds after which the command is killed. */
  timeout?: number;
  /** Do not throw on a non-zero exit. */
  allowFailure?: boolean;
};

export type RunResult = { code: number; stdout: string; stderr: string };

/** A command that failed, with the end of what it printed: the reason is nearly always there. */
export class CommandError extends Error {
  override name = "CommandError";
  readonly result: RunResult;
  constructor(command: string, result: RunResult) {
    super(`${command} ended with ${result.code}:\n${lastLines(result.stderr || result.stdout, 20)}`);
    this.result = result;
  }
}

export function lastLines(text: string, count: number): string {
  return text.trimEnd().split("\n").slice(-count).join("\n");
}

/** Exit code 127 stands for a command that could not be started. */
export function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: options.cwd,
      env: childEnvironment(options.env),
      stdio: ["pipe", "pipe", "pipe"],
    });
    // Not spawn's own timeout: its timer outlives a command that could not be started.
    const timer = options.timeout ? setTimeout(() => child.kill("SIGKILL"), options.timeout) : undefined;
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      stdout += chunk;
    });
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
      stderr += chunk;
    });
    // A command that ends without reading its input breaks the pipe; its exit code says what matters.
    child.stdin.on("error", () => {});
    child.stdin.end(options.input ?? "");
    const finish = (code: number) => {
      clearTimeout(timer);
      const result = { code, stdout, stderr };
      if (code === 0 || options.allowFailure) resolve(result);
      else reject(new CommandError([command, ...args].join(" ").slice(0, 300), result));
    };
    child.on("error", (error) => {
      stderr += error.message;
      finish(127);
    });
    child.on("close", (code, signal) => {
      if (signal) stderr += `\nended by ${signal}`;
      finish(code ?? 1);
    });
  });
}

/** Where a command is, or undefined. Looks in the sbin folders too: a root shell does not always have them in PATH. */
export function which(command: string): string | undefined {
  const folders = [...(childEnvironment().PATH ?? "").split(delimiter), "/usr/local/sbin", "/usr/sbin", "/sbin"];
  for (const folder of folders) {
    if (!folder) continue;
    try {
      accessSync(join(folder, command), constants.X_OK);
      return join(folder, command);
    } catch {
      // Not in this folder.
    }
  }
  return undefined;
}
