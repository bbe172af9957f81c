// The only file under hack/ that reads the environment, and the only one that knows where things are kept.
import { createHash } from "node:crypto";
import { homedir } from "node:os";
import { join, resolve } from "node:path";

/** The clone. */
export const repository = resolve(import.meta.dirname, "../..");

/** Everything that is built or kept between commands; outside the clone, so that a fresh clone finds it. */
export function cacheDir(): string {
  const named = process.env.PAWL_CACHE;
  if (named) return resolve(named);
  return join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "pawl");
}

/** The kubeconfig that `--context` refers to: the first file of KUBECONFIG, else kubectl's default. */
export function userKubeconfig(): string {
  return process.env.KUBECONFIG || join(homedir(), ".kube", "config");
}

/** The context named by the environment. An exported KUBECONFIG alone names no cluster. */
export function contextFromEnvironment(): string | undefined {
  return process.env.PAWL_CONTEXT || undefined;
}

export type RealModel = { baseURL: string; model: string; apiKey: string | undefined };

/** The model that a person asks to be used. An exported key alone asks for nothing and spends nothing. */
export function realModel(): RealModel | undefined {
  const model = process.env.PAWL_MODEL;
  if (!model) return undefined;
  const baseURL = process.env.OPENAI_BASE_URL || "https://api.openai.com/v1";
  return { model, baseURL, apiKey: process.env.OPENAI_API_KEY || undefined };
}

/** The environment of a command we run, with changes. */
export function childEnvironment(changes: Record<string, string> = {}): NodeJS.ProcessEnv {
  return { ...process.env, ...changes };
}

/**
 * Sockets live under /run and not in the cache folder: a Unix socket's path holds at most 107 bytes and a cache folder
 * may be deep. The hash keeps two caches apart.
 */
export function runDir(): string {
  const id = createHash("sha256").update(cacheDir()).digest("hex").slice(0, 8);
  return `/run/pawl-${id}`;
}

/** Libraries of this process put their temporary files here, until the returned function is called. */
export function temporaryFilesIn(folder: string): () => void {
  const before = process.env.TMPDIR;
  process.env.TMPDIR = folder;
  return () => {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
  };
}
