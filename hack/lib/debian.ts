// Debian packages that the local cluster and the images need.
import { existsSync } from "node:fs";
import { run, which } from "./run.ts";
import { type Log, UserError, withProgress } from "./say.ts";

/** Each package with what shows that it is there. A command may also be there without its package. */
const SIGNS = {
  runc: "runc",
  "containernetworking-plugins": "/usr/lib/cni/bridge",
  iptables: "iptables",
  ipset: "ipset",
  iproute2: "ip",
  openssl: "openssl",
  mmdebstrap: "mmdebstrap",
} as const;

export type DebianPackage = keyof typeof SIGNS;

const isThere = (name: DebianPackage) => (SIGNS[name].startsWith("/") ? existsSync(SIGNS[name]) : !!which(SIGNS[name]));

/** Installs those that are missing, after saying which. */
export async function ensurePackages(names: readonly DebianPackage[], log: Log): Promise<void> {
  const missing = names.filter((name) => !isThere(name));
  if (missing.length === 0) return;
  const list = missing.join(" ");
  const apt = which("apt-get");
  if (!apt) throw new UserError(`These programs are missing and there is no apt-get to install them with: ${list}.`);
  if (process.getuid?.() !== 0)
    throw new UserError(`Debian packages are missing; install them as root: apt-get install ${list}`);
  await withProgress(log, `installing Debian packages: ${list}`, async () => {
    const install = ["install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", ...missing];
    const env = { DEBIAN_FRONTEND: "noninteractive" };
    const first = await run(apt, install, { env, allowFailure: true });
    if (first.code === 0) return;
    // The machine's list of packages is missing or old.
    await run(apt, ["-o", "DPkg::Lock::Timeout=120", "update"], { env });
    await run(apt, install, { env });
  });
  const still = missing.filter((name) => !isThere(name));
  if (still.length > 0)
    throw new UserError(`apt-get installed ${list}, but these are still not found: ${still.join(", ")}.`);
}
