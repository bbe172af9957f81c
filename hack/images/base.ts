// The base of the images: a small Debian (or whatever apt distribution this machine has) with the C++ library that Node
// needs, certificates, and users for what runs on it.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ensurePackages } from "../lib/debian.ts";
import { run } from "../lib/run.ts";
import { type Log, UserError, withProgress } from "../lib/say.ts";
import { architecture, type Blob, hashOf, layer } from "./oci.ts";

const PACKAGES = ["ca-certificates", "libstdc++6"];
/** Left out: nobody reads manuals in a container. */
const EXCLUDED = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*"];

/** Fixed ids, so that a chart can name them. 999 is the official PostgreSQL image's. */
export const USERS = { pawl: 10001, runner: 10002, postgres: 999 };

function accounts(): string[] {
  return Object.entries(USERS).flatMap(([name, id]) => [
    `echo '${name}:x:${id}:${id}::/tmp:/usr/sbin/nologin' >> "$1/etc/passwd"`,
    `echo '${name}:x:${id}:' >> "$1/etc/group"`,
  ]);
}

/** Run on the finished tree. Perl came with the tool that made the certificates' index; the index is made. */
const HOOKS = [...accounts(), 'rm -rf "$1"/usr/share/perl "$1"/usr/lib/*/perl "$1"/usr/lib/*/libperl.so*'];

/** This machine's own distribution and the places it has it from: these are known to be reachable. */
function distribution(): { codename: string; sources: string[] } {
  const release = existsSync("/etc/os-release") ? readFileSync("/etc/os-release", "utf8") : "";
  const codename = /^VERSION_CODENAME=(\S+)/m.exec(release)?.[1];
  if (!codename) throw new UserError("Images are assembled from Debian packages: run this on Debian or Ubuntu.");
  const folder = "/etc/apt/sources.list.d";
  const more = existsSync(folder)
    ? readdirSync(folder).filter((name) => /^(debian|ubuntu)\.(sources|list)$/.test(name))
    : [];
  const sources = more.map((name) => join(folder, name));
  if (existsSync("/etc/apt/sources.list") && readFileSync("/etc/apt/sources.list", "utf8").trim())
    sources.push("/etc/apt/sources.list");
  return { codename, sources };
}

export async function baseLayer(log: Log): Promise<Blob> {
  const { codename, sources } = distribution();
  const key = hashOf("base", architecture, codename, ...PACKAGES, ...EXCLUDED, ...HOOKS);
  return layer(key, async (root) => {
    await ensurePackages(["mmdebstrap"], log);
    const options = [
      "--variant=minbase",
      `--include=${PACKAGES.join(",")}`,
      // Devices are made by the container runtime.
      "--skip=output/dev",
      ...EXCLUDED.map((path) => `--dpkgopt=path-exclude=${path}`),
      ...HOOKS.map((hook) => `--customize-hook=${hook}`),
    ];
    await withProgress(log, "assembling the base of the images", () =>
      run("mmdebstrap", [...options, codename, join(root, "layer.tar"), ...sources], {
        env: { SOURCE_DATE_EPOCH: "0" },
      }),
    );
  });
}
