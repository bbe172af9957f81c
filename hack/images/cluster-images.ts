// The two images the local cluster itself needs: a static program each, and nothing else.
import { copyFileSync, mkdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { ensureBinaries } from "../cluster/binaries.ts";
import type { Log } from "../lib/say.ts";
import { hashOf, type Image, image, layer } from "./oci.ts";

export async function clusterImages(log: Log): Promise<{ pause: Image; coredns: Image }> {
  const programs = await ensureBinaries(["pause", "coredns"], log);
  const one = async (name: "pause" | "coredns"): Promise<Image> => {
    // The folder of a program bears the hash of what it was built from.
    const key = hashOf("program", name, basename(dirname(programs[name])));
    const content = await layer(key, async (root) => {
      mkdirSync(root, { recursive: true });
      copyFileSync(programs[name], join(root, name));
    });
    return image(`pawl.example/${name}`, [content], { entrypoint: [`/${name}`], user: "65532:65532" });
  };
  return { pause: await one("pause"), coredns: await one("coredns") };
}
