// kubectl and helm against one cluster, as the demo and the end-to-end tests use them: real programs, never a library.
import { spawn } from "node:child_process";
import type { Cluster } from "../cluster/cluster.ts";
import { childEnvironment } from "../lib/environment.ts";
import { run, type RunOptions, type RunResult } from "../lib/run.ts";

export type KubeObject = {
  apiVersion?: string;
  kind?: string;
  metadata: { name: string; namespace?: string; uid?: string; generation?: number; [key: string]: unknown };
  // Objects are looked at, never built from: whoever reads a field says what it is.
  spec?: Record<string, unknown>;
  status?: Record<string, unknown>;
  [key: string]: unknown;
};

export type Tools = Pick<Cluster, "kubectl" | "helm" | "kubeconfig" | "context">;

export class Kubectl {
  readonly #tools: Tools;

  constructor(tools: Tools) {
    this.#tools = tools;
  }

  get #options(): string[] {
    return ["--kubeconfig", this.#tools.kubeconfig, "--context", this.#tools.context];
  }

  /** Its stdout; throws CommandError with its stderr. */
  async run(args: readonly string[], options: RunOptions = {}): Promise<string> {
    return (await this.try(args, { ...options, allowFailure: false })).stdout;
  }

  /** Without throwing. */
  try(args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    return run(this.#tools.kubectl, [...this.#options, ...args], { allowFailure: true, ...options });
  }

  helm(args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    const cluster = ["--kubeconfig", this.#tools.kubeconfig, "--kube-context", this.#tools.context];
    return run(this.#tools.helm, [...args, ...cluster], options);
  }

  async apply(...objects: readonly object[]): Promise<void> {
    await this.run(["apply", "-f", "-"], { input: asList(objects) });
  }

  /** Undefined when there is none. */
  async get(kind: string, name: string, namespace?: string): Promise<KubeObject | undefined> {
    const where = namespace === undefined ? [] : ["-n", namespace];
    const text = await this.run(["get", kind, name, ...where, "--ignore-not-found", "-o", "json"]);
    return text.trim() === "" ? undefined : (JSON.parse(text) as KubeObject);
  }

  async list(kind: string, namespace?: string): Promise<KubeObject[]> {
    const where = namespace === undefined ? ["-A"] : ["-n", namespace];
    return (JSON.parse(await this.run(["get", kind, ...where, "-o", "json"])) as { items: KubeObject[] }).items;
  }

  /**
   * The object at every change, until the caller leaves the loop. A watch that ends (servers close them now and then)
   * is opened again. Throws when `ms` have passed.
   */
  async *watch(kind: string, name: string, namespace: string, ms: number): AsyncGenerator<KubeObject> {
    const deadline = AbortSignal.timeout(ms);
    while (!deadline.aborted) {
      const args = ["get", kind, name, "-n", namespace, "--watch", "-o", "json"];
      yield* documents(this.#tools.kubectl, [...this.#options, ...args], deadline);
    }
    throw new Error(`${kind} ${namespace}/${name} did not get there within ${Math.round(ms / 1_000)} s`);
  }

  /** GET, PUT or POST to a Service, through the API server: works from wherever kubectl works. */
  async service(
    method: "GET" | "PUT" | "POST",
    at: { namespace: string; name: string; port: number },
    path: string,
    body?: unknown,
  ): Promise<unknown> {
    const url = `/api/v1/namespaces/${at.namespace}/services/${at.name}:${at.port}/proxy${path}`;
    const verb = { GET: "get", PUT: "replace", POST: "create" }[method];
    const args = method === "GET" ? [verb, "--raw", url] : [verb, "--raw", url, "-f", "-"];
    return JSON.parse(
      await this.run(args, { input: body === undefined ? "" : JSON.stringify(body), timeout: 120_000 }),
    );
  }
}

export const asList = (items: readonly object[]): string => JSON.stringify({ apiVersion: "v1", kind: "List", items });

/** The JSON documents that `kubectl get --watch -o json` prints one after the other. */
async function* documents(command: string, args: readonly string[], signal: AbortSignal): AsyncGenerator<KubeObject> {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "ignore"], env: childEnvironment() });
  // A command that cannot be started or that fails ends its output; the caller opens another watch or gives up.
  const ended = new Promise<void>((resolve) => child.on("error", () => resolve()).on("close", () => resolve()));
  const kill = () => void child.kill("SIGKILL");
  signal.addEventListener("abort", kill, { once: true });
  try {
    let text = "";
    for await (const chunk of child.stdout.setEncoding("utf8") as AsyncIterable<string>) {
      text += chunk;
      // Each document is indented, so only its last line is a lone brace.
      for (let end = text.indexOf("\n}\n"); end >= 0; end = text.indexOf("\n}\n")) {
        yield JSON.parse(text.slice(0, end + 2)) as KubeObject;
        text = text.slice(end + 3);
      }
    }
  } finally {
    signal.removeEventListener("abort", kill);
    kill();
    await ended;
  }
}
