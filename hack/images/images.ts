// Our images, built where they are missing and put where the cluster finds them.
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Cluster } from "../cluster/cluster.ts";
import { kindLoad } from "../cluster/kind.ts";
import { importImages } from "../cluster/local/containerd.ts";
import { cacheDir } from "../lib/environment.ts";
import { withLock } from "../lib/lock.ts";
import { type Log, UserError } from "../lib/say.ts";
import { baseLayer } from "./base.ts";
import { dependenciesLayer, nodeLayer, sourceLayer } from "./node-layers.ts";
import { type Image, image, reference } from "./oci.ts";
import { postgresImage } from "./postgres.ts";

export const IMAGE_NAMES = ["pawl", "fakes", "postgres"] as const;
export type ImageName = (typeof IMAGE_NAMES)[number];

const MAIN = "/app/operator/src/main.ts";
const COMMANDS = { pawl: `#!/bin/sh\nexec node ${MAIN} "$@"\n` };
/** Nothing is written but to a /tmp that the pod mounts. */
const NODE_CONFIG = { user: "10001:10001", workingDir: "/app", environment: { NODE_ENV: "production", HOME: "/tmp" } };

/** Builds what has changed: a second when only our source did. */
export function buildImages(log: Log): Promise<Record<ImageName, Image>> {
  return withLock(join(cacheDir(), "locks", "images"), "the images in hand", log, async () => {
    const base = await baseLayer(log);
    const node = await nodeLayer();
    const product = ["crds", "operator"];
    const withFakes = [...product, "fakes"];
    return {
      pawl: image(
        "pawl.example/pawl",
        [base, node, await dependenciesLayer(product, log), await sourceLayer(product, COMMANDS)],
        { ...NODE_CONFIG, entrypoint: ["node", MAIN] },
      ),
      fakes: image(
        "pawl.example/pawl-fakes",
        [base, node, await dependenciesLayer(withFakes, log), await sourceLayer(withFakes, {})],
        { ...NODE_CONFIG, entrypoint: ["node"] },
      ),
      postgres: await postgresImage(base),
    };
  });
}

export type ImageReference = {
  /** What a pod names: repository and digest. */
  ref: string;
  repository: string;
  digest: string;
};
export type ImageReferences = Record<ImageName, ImageReference>;

export function referenceOf(one: Image, repository = one.name): ImageReference {
  const digest = one.manifest.digest;
  return { ref: repository === one.name ? reference(one) : `${repository}@${digest}`, repository, digest };
}

const pushedFile = () => join(cacheDir(), "images", "pushed.json");

/** Remembers what was pushed where, for the commands that use a named cluster. */
export function recordPushed(references: ImageReferences): void {
  mkdirSync(join(cacheDir(), "images"), { recursive: true });
  writeFileSync(`${pushedFile()}.draft`, JSON.stringify(references, null, 2));
  renameSync(`${pushedFile()}.draft`, pushedFile());
}

/** What was pushed, if it is what would be built now. */
export function pushedImages(images: Record<ImageName, Image>): ImageReferences {
  const known = existsSync(pushedFile())
    ? (JSON.parse(readFileSync(pushedFile(), "utf8")) as ImageReferences)
    : undefined;
  const current = known && IMAGE_NAMES.every((name) => known[name]?.digest === images[name].manifest.digest);
  if (known && current) return known;
  throw new UserError(
    "A named cluster pulls its images from a registry, and the present ones are in none that we know of: run `npm run images -- --push REF` first (REF: a registry and folder that you may push to and the cluster may pull from).",
  );
}

/** Builds the images, brings them into the cluster (a named one must have got them by --push), and says their names. */
export async function ensureImages({ cluster, log }: { cluster: Cluster; log: Log }): Promise<ImageReferences> {
  const images = await buildImages(log);
  const all = IMAGE_NAMES.map((name) => images[name]);
  if (cluster.kind === "named") return pushedImages(images);
  if (cluster.kind === "kind") await kindLoad(cluster.engine ?? "docker", all, log);
  else await importImages(all, log);
  return Object.fromEntries(IMAGE_NAMES.map((name) => [name, referenceOf(images[name])])) as ImageReferences;
}
