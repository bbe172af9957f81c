// A kind cluster of our own, where a container engine answers. Not run by our own CI, which has no container engine.
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type Image, reference, withLayout } from "../images/oci.ts";
import { cacheDir } from "../lib/environment.ts";
import { run } from "../lib/run.ts";
import { type Log, withProgress } from "../lib/say.ts";
import { ensureBinaries } from "./binaries.ts";

export const KIND_CLUSTER = "pawl";
export type Engine = "docker" | "podman";

/** The first engine that answers; an installed one whose daemon is down does not. */
export async function answeringEngine(): Promise<Engine | undefined> {
  for (const engine of ["docker", "podman"] as const) {
    const asked = await run(engine, ["info"], { allowFailure: true, timeout: 10_000 });
    if (asked.code === 0) return engine;
  }
  return undefined;
}

export const kindKubeconfig = () => join(cacheDir(), "kind", "kubeconfig");

async function kind(engine: Engine, args: readonly string[], log: Log) {
  const programs = await ensureBinaries(["kind"], log);
  return run(programs.kind, args, { env: { KIND_EXPERIMENTAL_PROVIDER: engine } });
}

async function exists(engine: Engine, log: Log): Promise<boolean> {
  return (await kind(engine, ["get", "clusters"], log)).stdout.split("\n").includes(KIND_CLUSTER);
}

export async function kindUp(engine: Engine, log: Log): Promise<void> {
  mkdirSync(join(cacheDir(), "kind"), { recursive: true });
  const target = ["--name", KIND_CLUSTER, "--kubeconfig", kindKubeconfig()];
  if (await exists(engine, log)) {
    if (!existsSync(kindKubeconfig())) await kind(engine, ["export", "kubeconfig", ...target], log);
    return;
  }
  await withProgress(log, `creating a kind cluster with ${engine}`, () =>
    kind(engine, ["create", "cluster", "--wait", "120s", ...target], log),
  );
}

export async function kindDown(engine: Engine, log: Log): Promise<void> {
  if (!(await exists(engine, log))) return;
  await kind(engine, ["delete", "cluster", "--name", KIND_CLUSTER, "--kubeconfig", kindKubeconfig()], log);
}

export const kindRunning = exists;

/** Loads the images that the node does not have, and names them by digest too, as pods ask for them. */
export async function kindLoad(engine: Engine, images: readonly Image[], log: Log): Promise<void> {
  const node = `${KIND_CLUSTER}-control-plane`;
  const ctr = (...args: string[]) => run(engine, ["exec", node, "ctr", "--namespace=k8s.io", "images", ...args]);
  const there = (await ctr("ls", "-q")).stdout.split("\n");
  const missing = images.filter((one) => !there.includes(reference(one)));
  if (missing.length === 0) return;
  await withLayout(missing, async (layout) => {
    const archive = `${layout}.tar`;
    try {
      await run("tar", ["-C", layout, "-cf", archive, "."]);
      await kind(engine, ["load", "image-archive", archive, "--name", KIND_CLUSTER], log);
    } finally {
      rmSync(archive, { force: true });
    }
  });
  for (const one of missing) await ctr("tag", "--force", `${one.name}:dev`, reference(one));
}

/** The address at which pods reach processes of the host: the gateway of the node's network. */
export async function kindHostAddress(engine: Engine): Promise<string | undefined> {
  const format = "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}";
  const asked = await run(engine, ["inspect", "-f", format, `${KIND_CLUSTER}-control-plane`], { allowFailure: true });
  return asked.code === 0 && asked.stdout.trim() !== "" ? asked.stdout.trim() : undefined;
}
