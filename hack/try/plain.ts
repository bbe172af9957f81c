// Starts the plain loop, and reads from its checkpoint what it believes to have done.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { childEnvironment } from "../lib/environment.ts";
import type { Leftovers } from "./leftovers.ts";

/** Where it can be killed from inside; each is passed once by an order. */
export const PLACES = ["before:model", "after:model", "before:tool", "after:tool", "checkpoint:saved"] as const;

export type PlainRun = { readonly checkpoint: string; readonly ask: string; readonly modelUrl: string };

export class PlainLoop {
  readonly child: ChildProcess;
  readonly #ended: Promise<{ code: number | null; signal: NodeJS.Signals | null; output: string }>;

  constructor(leftovers: Leftovers, { checkpoint, ask, modelUrl }: PlainRun, dieAt?: (typeof PLACES)[number]) {
    const program = join(import.meta.dirname, "plain-loop.ts");
    const args = ["--model", modelUrl, "--checkpoint", checkpoint, "--ask", ask];
    const child = spawn(
      process.execPath,
      ["--disable-warning=ExperimentalWarning", program, ...args, ...(dieAt === undefined ? [] : ["--die-at", dieAt])],
      { stdio: ["ignore", "pipe", "pipe"], env: { PATH: childEnvironment().PATH } },
    );
    this.child = leftovers.child(child);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text;
      });
    }
    this.#ended = once(child, "close").then(([code, signal]) => ({
      code: code as number | null,
      signal: signal as NodeJS.Signals | null,
      output,
    }));
  }

  async kill(): Promise<void> {
    if (this.child.pid !== undefined) process.kill(this.child.pid, "SIGKILL");
    await this.#ended;
  }

  /** Its answer; null when it was killed. Throws when it failed by itself. */
  async answer(): Promise<string | null> {
    const { code, signal, output } = await this.#ended;
    if (signal === "SIGKILL") return null;
    if (code !== 0) throw new Error(`the plain loop ended with ${code}: ${output}`);
    return output.trim();
  }
}

/** Tool results in its checkpoint that say so. */
export function believesDone(checkpoint: string): number {
  const messages = JSON.parse(readFileSync(checkpoint, "utf8")) as { role: string; content: string | null }[];
  return messages.filter(({ role, content }) => role === "tool" && content?.startsWith("HTTP 2") === true).length;
}
