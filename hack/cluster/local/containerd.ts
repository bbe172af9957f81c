// Images in the local cluster's containerd.
import { type Image, reference, withLayout } from "../../images/oci.ts";
import { run } from "../../lib/run.ts";
import { type Log, withProgress } from "../../lib/say.ts";
import { binaryPath } from "../binaries.ts";
import { layout } from "./layout.ts";

export function ctr(args: readonly string[], allowFailure = false) {
  return run(binaryPath("ctr"), ["--address", layout().socket, "--namespace", "k8s.io", ...args], { allowFailure });
}

/** Through a pipe: an archive in between would write everything to the disk once more. */
function importLayout(folder: string) {
  const script = 'tar -C "$1" -cf - . | "$2" --address "$3" --namespace k8s.io images import -';
  return run("bash", ["-o", "pipefail", "-c", script, "import", folder, binaryPath("ctr"), layout().socket]);
}

/** Imports those images that are not there yet, under their tag and their digest. */
export async function importImages(images: readonly Image[], log: Log): Promise<void> {
  const there = new Set((await ctr(["images", "ls", "-q"])).stdout.split("\n"));
  const missing = images.filter((one) => !there.has(reference(one)));
  if (missing.length === 0) return;
  const names = missing.map((one) => one.name).join(", ");
  await withProgress(log, `importing ${names}`, async () => {
    // Layers that are there already, the big ones mostly, are left out of the archive: referred to is enough.
    const content = new Set((await ctr(["content", "ls", "-q"])).stdout.split("\n"));
    await withLayout(missing, importLayout, content);
    for (const one of missing) {
      // The kubelet finds an image by the very name a pod gives: by digest only if there is such a name.
      await ctr(["images", "tag", "--force", `${one.name}:dev`, reference(one)]);
    }
  });
}
