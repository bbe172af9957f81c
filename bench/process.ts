/** A measured system's process, from this side: asked for one run at a time. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { Answer } from "./system.ts";

export class Unavailable extends Error {}

export class SystemProcess<Order extends object, Measured> {
  readonly name: string;
  readonly #child: ChildProcess;

  private constructor(name: string, child: ChildProcess) {
    this.name = name;
    this.#child = child;
  }

  /** `script`: what serves the systems of a benchmark, called with a system's name and an empty database of its own. */
  static async start<Order extends object, Measured>(
    script: string,
    name: string,
    url: string,
  ): Promise<SystemProcess<Order, Measured>> {
    // Its warnings are not this program's output.
    const child = fork(join(import.meta.dirname, script), [name, url], {
      execArgv: ["--disable-warning=ExperimentalWarning", "--disable-warning=DeprecationWarning"],
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    const system = new SystemProcess<Order, Measured>(name, child);
    await system.#answer();
    return system;
  }

  async measure(order: Order): Promise<Measured> {
    this.#child.send(order);
    const answer = await this.#answer();
    if (answer.kind !== "measured") throw new Error(`${this.name} said ${answer.kind}`);
    return answer.measured;
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }

  async #answer(): Promise<Answer<Measured>> {
    const ended = new AbortController();
    const answer = await Promise.race([
      once(this.#child, "message", { signal: ended.signal }).then(([message]) => message as Answer<Measured>),
      once(this.#child, "exit", { signal: ended.signal }).then(([code]): Answer<Measured> => {
        return { kind: "unavailable", why: `its process ended with ${code}` };
      }),
    ]);
    ended.abort();
    if (answer.kind === "unavailable") throw new Unavailable(`${this.name}: ${answer.why}`);
    return answer;
  }
}
