// OCI images put together from tar files: layers are kept uncompressed under their digests, so that an unchanged layer
// costs nothing and a layer's digest is also its diff id.
import { createHash } from "node:crypto";
import {
  createReadStream,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { cacheDir } from "../lib/environment.ts";
import { run } from "../lib/run.ts";

export type Blob = { digest: string; size: number };
export type ImageConfig = {
  entrypoint?: readonly string[];
  command?: readonly string[];
  user?: string;
  workingDir?: string;
  environment?: Record<string, string>;
};
/** `manifest` is the blob of the image's manifest: its digest is the image's. */
export type Image = { name: string; manifest: Blob; blobs: readonly Blob[] };

const MANIFEST = "application/vnd.oci.image.manifest.v1+json";

const folder = (...parts: string[]) => join(cacheDir(), "images", ...parts);
export const blobPath = (digest: string) => folder("blobs", "sha256", digest.replace("sha256:", ""));

/** OCI calls x86-64 amd64. */
export const architecture = process.arch === "x64" ? "amd64" : process.arch;

export function hashOf(...parts: string[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(`${part.length}:${part}\n`);
  return hash.digest("hex");
}

async function digestOfFile(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return `sha256:${hash.digest("hex")}`;
}

function storeText(text: string): Blob {
  const digest = `sha256:${createHash("sha256").update(text).digest("hex")}`;
  mkdirSync(folder("blobs", "sha256"), { recursive: true });
  const draft = `${blobPath(digest)}.${process.pid}`;
  writeFileSync(draft, text);
  renameSync(draft, blobPath(digest));
  return { digest, size: Buffer.byteLength(text) };
}

/**
 * The layer whose content is determined by `key`. `make` fills the folder it is given with either files, which are
 * packed with fixed times and owners so that equal content has an equal digest, or with one `layer.tar` made elsewhere.
 */
export async function layer(key: string, make: (root: string) => Promise<void>): Promise<Blob> {
  const known = folder("layers", `${key}.json`);
  if (existsSync(known)) {
    const blob = JSON.parse(readFileSync(known, "utf8")) as Blob;
    if (existsSync(blobPath(blob.digest))) return blob;
  }
  mkdirSync(folder("layers"), { recursive: true });
  mkdirSync(folder("blobs", "sha256"), { recursive: true });
  const work = mkdtempSync(folder("layers", "draft-"));
  try {
    const root = join(work, "root");
    mkdirSync(root);
    await make(root);
    const tar = existsSync(join(root, "layer.tar")) ? join(root, "layer.tar") : join(work, "packed.tar");
    if (!existsSync(tar)) await pack(root, tar);
    const blob = { digest: await digestOfFile(tar), size: statSync(tar).size };
    renameSync(tar, blobPath(blob.digest));
    writeFileSync(join(work, "known"), JSON.stringify(blob));
    renameSync(join(work, "known"), known);
    return blob;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function pack(root: string, tar: string): Promise<void> {
  const fixed = [
    "--sort=name",
    "--mtime=@0",
    "--owner=0",
    "--group=0",
    "--numeric-owner",
    "--format=gnu",
    "--mode=go=rX,u+rw",
  ];
  await run("tar", [...fixed, "-C", root, "-cf", tar, "."]);
}

/** Puts an image together. `name` has no tag. */
export function image(name: string, layers: readonly Blob[], config: ImageConfig): Image {
  const environment = { PATH: "/usr/local/bin:/usr/bin:/bin", ...config.environment };
  const configBlob = storeText(
    JSON.stringify({
      architecture,
      os: "linux",
      config: {
        Env: Object.entries(environment).map(([key, value]) => `${key}=${value}`),
        ...(config.entrypoint ? { Entrypoint: config.entrypoint } : {}),
        ...(config.command ? { Cmd: config.command } : {}),
        ...(config.user ? { User: config.user } : {}),
        WorkingDir: config.workingDir ?? "/",
      },
      rootfs: { type: "layers", diff_ids: layers.map((one) => one.digest) },
    }),
  );
  const manifest = storeText(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: { mediaType: "application/vnd.oci.image.config.v1+json", ...configBlob },
      layers: layers.map((one) => ({ mediaType: "application/vnd.oci.image.layer.v1.tar", ...one })),
    }),
  );
  return { name, manifest, blobs: [...layers, configBlob, manifest] };
}

/** The name under which pods ask for the image: by digest, so that what runs is what was built. */
export const reference = (one: Image) => `${one.name}@${one.manifest.digest}`;

/** Writes an OCI layout that holds the images, less the blobs left out, hard-linked from the cache where they can be. */
export function writeLayout(target: string, images: readonly Image[], without: ReadonlySet<string> = new Set()): void {
  const tag = "dev";
  mkdirSync(join(target, "blobs", "sha256"), { recursive: true });
  for (const { digest } of images.flatMap((one) => one.blobs)) {
    const to = join(target, "blobs", "sha256", digest.replace("sha256:", ""));
    if (existsSync(to) || without.has(digest)) continue;
    try {
      linkSync(blobPath(digest), to);
    } catch {
      writeFileSync(to, readFileSync(blobPath(digest)));
    }
  }
  writeFileSync(join(target, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
  const manifests = images.map((one) => ({
    mediaType: MANIFEST,
    ...one.manifest,
    platform: { architecture, os: "linux" },
    // containerd and kind name the image by the first, other tools by the second.
    annotations: { "io.containerd.image.name": `${one.name}:${tag}`, "org.opencontainers.image.ref.name": tag },
  }));
  writeFileSync(join(target, "index.json"), JSON.stringify({ schemaVersion: 2, manifests }));
}

/** A folder with the layout of the images, less the blobs left out, for as long as `use` runs. */
export async function withLayout<T>(
  images: readonly Image[],
  use: (layout: string) => Promise<T>,
  without?: ReadonlySet<string>,
): Promise<T> {
  mkdirSync(folder(), { recursive: true });
  // Beside the blobs, so that they can be hard-linked.
  const work = mkdtempSync(folder("layout-"));
  try {
    writeLayout(work, images, without);
    return await use(work);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
