// The control group below which the kubelet makes those of pods, so that what it leaves can be told and removed.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export const GROUP = "pawl-local";
const ROOT = "/sys/fs/cgroup";

/** One hierarchy (version 2), or one for each controller (version 1). */
function hierarchies(): string[] {
  if (existsSync(join(ROOT, "cgroup.controllers"))) return [ROOT];
  return folders(ROOT).map((name) => join(ROOT, name));
}

function folders(path: string): string[] {
  try {
    const entries = readdirSync(path, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch {
    return [];
  }
}

/** The kubelet does not start unless the group exists in every hierarchy. */
export function createControlGroups(): void {
  for (const hierarchy of hierarchies()) {
    const group = join(hierarchy, GROUP);
    mkdirSync(group, { recursive: true });
    // A new group of version 1 has no processors and no memory nodes; nothing can run in it until it has.
    for (const file of ["cpuset.cpus", "cpuset.mems"]) {
      if (!existsSync(join(group, file)) || existsSync(join(hierarchy, "cgroup.controllers"))) continue;
      writeFileSync(join(group, file), readFileSync(join(hierarchy, file)));
    }
  }
}

/** Removes the group and the empty ones below it. */
export function removeControlGroups(): void {
  for (const hierarchy of hierarchies()) remove(join(hierarchy, GROUP));
}

function remove(path: string): void {
  for (const child of folders(path)) remove(join(path, child));
  try {
    rmdirSync(path);
  } catch {
    // Not there, or somebody is still in it; an empty group left behind does no harm.
  }
}
