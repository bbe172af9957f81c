/** The real worker as a process: `pawl run --roles=worker` with short times, and a failpoint when one is armed. */
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { TIMES } from "./scenario.ts";

const MAIN = join(import.meta.dirname, "../../src/main.ts");
/** Hundreds of workers are started: what compiling them gives is kept between them. */
const COMPILED = join(tmpdir(), "pawl-sweep-compiled");

export type LogLine = { readonly msg: string; readonly at: number; readonly [key: string]: unknown };

export class WorkerProcess {
  readonly name: string;
  readonly child: ChildProcess;
  readonly lines: LogLine[] = [];
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null; at: number }>;
  #stderr = "";
  #waiting: { wanted: (line: LogLine) => boolean; resolve: (line: LogLine) => void }[] = [];

  constructor(options: { ledgerUrl: string; name: string; failpoint?: string; failpointLog?: string }) {
    this.name = options.name;
    this.child = spawn(process.execPath, [MAIN, "run", "--roles=worker"], {
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        PATH: process.env["PATH"],
        NODE_COMPILE_CACHE: COMPILED,
        PAWL_LEDGER_URL: options.ledgerUrl,
        PAWL_INSTANCE: options.name,
        PAWL_LISTEN: "127.0.0.1:0",
        PAWL_KUBERNETES: "none",
        PAWL_OUTBOUND_ALLOW: "127.0.0.1",
        PAWL_LEASE_MS: String(TIMES.lease),
        PAWL_RENEW_MS: String(TIMES.renew),
        PAWL_SEND_MS: String(TIMES.send),
        PAWL_SETTLE_SLACK_MS: String(TIMES.settleSlack),
        PAWL_HTTP_TIMEOUT_MS: String(TIMES.httpTimeout),
        PAWL_MCP_TIMEOUT_MS: String(TIMES.httpTimeout),
        PAWL_POLL_MS: String(TIMES.poll),
        ...(options.failpoint === undefined ? {} : { PAWL_FAILPOINT: options.failpoint }),
        ...(options.failpointLog === undefined ? {} : { PAWL_FAILPOINT_LOG: options.failpointLog }),
      },
    });
    this.exited = new Promise((resolve) => {
      this.child.on("exit", (code, signal) => resolve({ code, signal, at: performance.now() }));
    });
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr += text;
    });
    const { stdout } = this.child;
    if (stdout !== null) createInterface({ input: stdout }).on("line", (text) => this.#take(text));
  }

  #take(text: string): void {
    let line: LogLine;
    try {
      line = { ...(JSON.parse(text) as { msg: string }), at: performance.now() };
    } catch {
      return;
    }
    this.lines.push(line);
    for (const waiter of this.#waiting.splice(0)) {
      if (waiter.wanted(line)) waiter.resolve(line);
      else this.#waiting.push(waiter);
    }
  }

  /** Resolves when so many lines, past or future, were wanted. */
  async saidTimes(wanted: (line: LogLine) => boolean, times: number): Promise<void> {
    const seen = new Set<LogLine>();
    while (seen.size < times) seen.add(await this.said((line) => wanted(line) && !seen.has(line)));
  }

  /** Resolves with the first line, past or future, that is wanted. */
  said(wanted: (line: LogLine) => boolean): Promise<LogLine> {
    const found = this.lines.find(wanted);
    if (found !== undefined) return Promise.resolve(found);
    return new Promise((resolve) => this.#waiting.push({ wanted, resolve }));
  }

  get output(): string {
    return `${this.lines.map((line) => JSON.stringify(line)).join("\n")}\n${this.#stderr}`;
  }

  /** True while the kernel keeps it stopped (SIGSTOP). */
  get paused(): boolean {
    try {
      return / T /.test(readFileSync(`/proc/${this.child.pid}/stat`, "utf8").replace(/\(.*\)/, ""));
    } catch {
      return false;
    }
  }

  kill(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  async stop(): Promise<void> {
    this.child.kill("SIGCONT");
    this.child.kill("SIGTERM");
    await this.exited;
  }
}
