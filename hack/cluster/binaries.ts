// The programs of a cluster, built from the Go modules beside this file and kept in the cache folder.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { cacheDir } from "../lib/environment.ts";
import { withLock } from "../lib/lock.ts";
import { run, which } from "../lib/run.ts";
import { type Log, UserError, withProgress } from "../lib/say.ts";

type Build = { module: string; package: string /** What go names it, where that is not our name. */; builtAs?: string };

const KUBERNETES = "k8s.io/kubernetes/cmd";
const CONTAINERD = "github.com/containerd/containerd/v2/cmd";

/** A module is one set of dependency versions; programs of one module are built together and share the work. */
const BUILDS = {
  "kube-apiserver": { module: "kubernetes", package: `${KUBERNETES}/kube-apiserver` },
  "kube-controller-manager": { module: "kubernetes", package: `${KUBERNETES}/kube-controller-manager` },
  "kube-scheduler": { module: "kubernetes", package: `${KUBERNETES}/kube-scheduler` },
  "kube-proxy": { module: "kubernetes", package: `${KUBERNETES}/kube-proxy` },
  kubelet: { module: "kubernetes", package: `${KUBERNETES}/kubelet` },
  kubectl: { module: "kubernetes", package: `${KUBERNETES}/kubectl` },
  etcd: { module: "etcd", package: "go.etcd.io/etcd/server/v3", builtAs: "server" },
  containerd: { module: "containerd", package: `${CONTAINERD}/containerd` },
  "containerd-shim-runc-v2": { module: "containerd", package: `${CONTAINERD}/containerd-shim-runc-v2` },
  ctr: { module: "containerd", package: `${CONTAINERD}/ctr` },
  coredns: { module: "coredns", package: "github.com/coredns/coredns" },
  "kube-router": { module: "kube-router", package: "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router" },
  helm: { module: "helm", package: "helm.sh/helm/v4/cmd/helm" },
  kind: { module: "kind", package: "sigs.k8s.io/kind" },
  crane: { module: "crane", package: "github.com/google/go-containerregistry/cmd/crane" },
  pause: { module: "pause", package: "pawl.dev/hack/pause", builtAs: "pause" },
} as const satisfies Record<string, Build>;

export type Binary = keyof typeof BUILDS;

/** Left out of containerd: the file systems that need C libraries. */
const TAGS: Record<string, string> = { containerd: "no_btrfs,no_devmapper,no_zfs" };

const moduleFolder = (module: string) => join(import.meta.dirname, "modules", module);

/** Kubernetes' programs learn their version from the linker; without it they call themselves v0.0.0. */
export function linkerFlags(module: string, goMod: string): string {
  const version = /^\s*k8s\.io\/kubernetes (v(\d+)\.(\d+)\S*)/m.exec(goMod);
  if (module !== "kubernetes" || !version) return "-s -w";
  const set = (name: string, value: string) => `-X k8s.io/component-base/version.${name}=${value}`;
  return [
    "-s -w",
    set("gitVersion", version[1] ?? ""),
    set("gitMajor", version[2] ?? ""),
    set("gitMinor", version[3] ?? ""),
  ].join(" ");
}

/** A changed version, build tag or source file is another folder, so that nothing stale is ever used. */
function outputFolder(module: string): string {
  const hash = createHash("sha256").update(`${process.platform} ${process.arch} ${TAGS[module] ?? ""}\n`);
  for (const file of readdirSync(moduleFolder(module)).sort()) {
    hash.update(`${file}\n`).update(readFileSync(join(moduleFolder(module), file)));
  }
  return join(cacheDir(), "bin", `${module}-${hash.digest("hex").slice(0, 12)}`);
}

/** Where the program is or will be. */
export function binaryPath(name: Binary): string {
  return join(outputFolder(BUILDS[name].module), name);
}

/** Builds what is missing and says where everything is. Safe to call from several processes at once. */
export async function ensureBinaries<const N extends Binary>(
  names: readonly N[],
  log: Log,
): Promise<Record<N, string>> {
  const modules = [...new Set(names.map((name) => BUILDS[name].module))];
  for (const module of modules) {
    const wanted = names.filter((name) => BUILDS[name].module === module);
    const missing = () => wanted.filter((name) => !existsSync(binaryPath(name)));
    if (missing().length === 0) continue;
    const lock = join(cacheDir(), "locks", `build-${module}`);
    await withLock(lock, `the build of ${module}`, log, async () => {
      // Somebody else may have built it while we waited.
      if (missing().length > 0) await build(module, missing(), log);
    });
  }
  return Object.fromEntries(names.map((name) => [name, binaryPath(name)])) as Record<N, string>;
}

async function build(module: string, names: readonly Binary[], log: Log): Promise<void> {
  const go = which("go");
  if (!go)
    throw new UserError("Go is needed to build the cluster's programs: install Go 1.26 or later and put it in PATH.");
  const output = outputFolder(module);
  const draft = `${output}.draft`;
  rmSync(draft, { recursive: true, force: true });
  mkdirSync(draft, { recursive: true });
  mkdirSync(output, { recursive: true });
  const goMod = readFileSync(join(moduleFolder(module), "go.mod"), "utf8");
  const tags = TAGS[module];
  const args = ["build", "-buildvcs=false", "-ldflags", linkerFlags(module, goMod), ...(tags ? ["-tags", tags] : [])];
  const packages = names.map((name) => BUILDS[name].package);
  await withProgress(log, `building ${names.join(", ")} (the first time takes minutes)`, () =>
    run(go, [...args, "-o", `${draft}/`, ...packages], {
      cwd: moduleFolder(module),
      // Static programs: some of them go into images that hold no C library.
      env: { CGO_ENABLED: "0", GOFLAGS: "-mod=readonly", GOTOOLCHAIN: "auto", GOWORK: "off" },
    }),
  );
  for (const name of names) {
    const build: Build = BUILDS[name];
    renameSync(join(draft, build.builtAs ?? name), join(output, name));
  }
  rmSync(draft, { recursive: true, force: true });
}
