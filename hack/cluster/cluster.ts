// The cluster that the demo, the tests and a person's commands work on.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cacheDir, contextFromEnvironment } from "../lib/environment.ts";
import { run } from "../lib/run.ts";
import { type Log, UserError } from "../lib/say.ts";
import { ensureBinaries } from "./binaries.ts";
import { type Choice, choose } from "./choose.ts";
import {
  answeringEngine,
  type Engine,
  kindDown,
  kindHostAddress,
  kindKubeconfig,
  kindRunning,
  kindUp,
} from "./kind.ts";
import { CONTEXT, HOST_ADDRESS, layout } from "./local/layout.ts";
import { type LocalStatus, localDown, localStatus, localUp } from "./local/local.ts";
import { namedKubeconfig, requireAnswer } from "./named.ts";

export type ClusterOptions = { context?: string | undefined; log: Log };

export type Cluster = {
  kind: "named" | "kind" | "local";
  context: string;
  /** Path of a kubeconfig that holds this context alone, so that nothing else can be reached by mistake. */
  kubeconfig: string;
  /** Paths of programs. */
  kubectl: string;
  helm: string;
  /** The address at which pods reach processes on this machine; unknown for a named cluster. */
  hostAddress: string | undefined;
  /** Only for kind. */
  engine?: Engine;
};

/** The choice, by the context given, else PAWL_CONTEXT, else what this machine offers. */
export async function chooseCluster(context: string | undefined): Promise<Exclude<Choice, { kind: "none" }>> {
  const named = context ?? contextFromEnvironment();
  const engine = named ? undefined : await answeringEngine();
  const choice = choose({ context: named, engine, platform: process.platform });
  if (choice.kind === "none") throw new UserError(choice.advice);
  return choice;
}

/** Makes sure that the cluster is there and answers; makes one where none is named. */
export async function ensureCluster({ context, log }: ClusterOptions): Promise<Cluster> {
  const choice = await chooseCluster(context);
  switch (choice.kind) {
    case "named": {
      const kubeconfig = join(cacheDir(), "named", `${encodeURIComponent(choice.context)}.kubeconfig`);
      const content = await namedKubeconfig(choice.context, log);
      mkdirSync(join(cacheDir(), "named"), { recursive: true, mode: 0o700 });
      writeFileSync(kubeconfig, content, { mode: 0o600 });
      const tools = await ensureBinaries(["kubectl", "helm"], log);
      await requireAnswer(tools.kubectl, kubeconfig, choice.context);
      return { kind: "named", context: choice.context, kubeconfig, ...tools, hostAddress: undefined };
    }
    case "kind": {
      await kindUp(choice.engine, log);
      const tools = await ensureBinaries(["kubectl", "helm"], log);
      const hostAddress = await kindHostAddress(choice.engine);
      return {
        kind: "kind",
        context: "kind-pawl",
        kubeconfig: kindKubeconfig(),
        ...tools,
        hostAddress,
        engine: choice.engine,
      };
    }
    case "local": {
      await localUp(log);
      const tools = await ensureBinaries(["kubectl", "helm"], log);
      return { kind: "local", context: CONTEXT, kubeconfig: layout().kubeconfig, ...tools, hostAddress: HOST_ADDRESS };
    }
  }
}

/** Removes the cluster and everything in it. A named cluster is not ours to remove. */
export async function removeCluster({ context, log }: ClusterOptions): Promise<void> {
  const choice = await chooseCluster(context);
  if (choice.kind === "named")
    throw new UserError(`The cluster of context "${choice.context}" was not made here and is left as it is.`);
  if (choice.kind === "kind") await kindDown(choice.engine, log);
  else await localDown(log);
}

export type ClusterStatus = Pick<LocalStatus, "running" | "reason"> & {
  kind: Cluster["kind"];
  context: string;
  processes?: LocalStatus["processes"];
};

/** Starts nothing. */
export async function clusterStatus({ context, log }: ClusterOptions): Promise<ClusterStatus> {
  const choice = await chooseCluster(context);
  if (choice.kind === "local") return { kind: "local", context: CONTEXT, ...(await localStatus()) };
  if (choice.kind === "kind")
    return { kind: "kind", context: "kind-pawl", running: await kindRunning(choice.engine, log) };
  const { kubectl } = await ensureBinaries(["kubectl"], log);
  const config = await namedKubeconfig(choice.context, log);
  const path = join(cacheDir(), "named", `${encodeURIComponent(choice.context)}.kubeconfig`);
  mkdirSync(join(cacheDir(), "named"), { recursive: true, mode: 0o700 });
  writeFileSync(path, config, { mode: 0o600 });
  const asked = await run(kubectl, ["--kubeconfig", path, "--request-timeout=10s", "get", "--raw", "/readyz"], {
    allowFailure: true,
  });
  const running = asked.code === 0;
  return { kind: "named", context: choice.context, running, ...(running ? {} : { reason: "it does not answer" }) };
}
