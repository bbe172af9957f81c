// A real worker as a process of its own: `pawl run --roles=worker`, with times short enough to watch.
import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { childEnvironment, repository } from "../lib/environment.ts";
import { lastLines } from "../lib/run.ts";
import type { Leftovers } from "./leftovers.ts";

export const MAIN = join(repository, "operator/src/main.ts");
/** Milliseconds. The product's own are 10 s for a lease and a first byte, 30 s for an answer. */
export const TIMES = { lease: 1_500, renew: 400, send: 1_000, httpTimeout: 1_000, settleSlack: 200, poll: 50 } as const;

type Line = { readonly msg: string; readonly run?: string; readonly token?: number };
export type WorkerOptions = { ledgerUrl: string; name: string; failpoint?: string };

export class Worker {
  readonly name: string;
  readonly pid: number;
  readonly exited: Promise<void>;
  readonly #child: ChildProcess;
  readonly #lines: Line[] = [];
  readonly #waiting = new Set<(line: Line) => void>();
  #output = "";

  constructor(leftovers: Leftovers, { ledgerUrl, name, failpoint }: WorkerOptions) {
    this.name = name;
    // Nothing else of ours: what a person has exported for a cluster is no business of this worker.
    const env = {
      PATH: childEnvironment().PATH,
      PAWL_LEDGER_URL: ledgerUrl,
      PAWL_INSTANCE: name,
      PAWL_LISTEN: "127.0.0.1:0",
      PAWL_KUBERNETES: "none",
      PAWL_OUTBOUND_ALLOW: "127.0.0.1",
      PAWL_LEASE_MS: String(TIMES.lease),
      PAWL_RENEW_MS: String(TIMES.renew),
      PAWL_SEND_MS: String(TIMES.send),
      PAWL_SETTLE_SLACK_MS: String(TIMES.settleSlack),
      PAWL_HTTP_TIMEOUT_MS: String(TIMES.httpTimeout),
      PAWL_POLL_MS: String(TIMES.poll),
      ...(failpoint === undefined ? {} : { PAWL_FAILPOINT: failpoint }),
    };
    const node = ["--disable-warning=ExperimentalWarning", MAIN, "run", "--roles=worker"];
    const child = spawn(process.execPath, node, { stdio: ["ignore", "pipe", "pipe"], env });
    this.#child = leftovers.child(child);
    this.pid = child.pid ?? -1;
    this.exited = new Promise((resolve) => child.once("exit", () => resolve()));
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#output += text;
    });
    createInterface({ input: child.stdout }).on("line", (text) => this.#take(text));
  }

  #take(text: string): void {
    this.#output += `${text}\n`;
    let line: Line;
    try {
      line = JSON.parse(text) as Line;
    } catch {
      return;
    }
    this.#lines.push(line);
    for (const hear of this.#waiting) hear(line);
  }

  /** The first line, past or future, that is wanted. Never, if the worker ends before. */
  said(wanted: (line: Line) => boolean): Promise<Line> {
    const found = this.#lines.find(wanted);
    if (found !== undefined) return Promise.resolve(found);
    return new Promise((resolve) => {
      const hear = (line: Line) => {
        if (!wanted(line)) return;
        this.#waiting.delete(hear);
        resolve(line);
      };
      this.#waiting.add(hear);
    });
  }

  claimed(runId: string): Promise<Line> {
    return this.said((line) => line.msg === "claimed a run" && line.run === runId);
  }

  /** SIGKILL by process id: no handler runs, nothing is written on the way out. */
  async kill(): Promise<void> {
    process.kill(this.pid, "SIGKILL");
    await this.exited;
  }

  async stop(): Promise<void> {
    this.#child.kill("SIGTERM");
    await this.exited;
  }

  get lastWords(): string {
    return lastLines(this.#output, 5);
  }
}
