// Images to a registry, with the credentials that `docker login` and its like have left.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ensureBinaries } from "../cluster/binaries.ts";
import { run } from "../lib/run.ts";
import { type Log, withProgress } from "../lib/say.ts";
import { IMAGE_NAMES, type ImageName, type ImageReferences, recordPushed, referenceOf } from "./images.ts";
import { type Image, writeLayout } from "./oci.ts";

/** Pushes each image to PREFIX/its-name:dev. */
export async function pushImages(images: Record<ImageName, Image>, prefix: string, log: Log): Promise<ImageReferences> {
  const { crane } = await ensureBinaries(["crane"], log);
  const references = {} as ImageReferences;
  const work = mkdtempSync(join(tmpdir(), "pawl-push-"));
  try {
    for (const name of IMAGE_NAMES) {
      const one = images[name];
      const repository = `${prefix.replace(/\/$/, "")}/${one.name.split("/").at(-1)}`;
      const layout = join(work, name);
      writeLayout(layout, [one]);
      await withProgress(log, `pushing ${repository}`, () => run(crane, ["push", layout, `${repository}:dev`]));
      references[name] = referenceOf(one, repository);
    }
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  recordPushed(references);
  return references;
}
