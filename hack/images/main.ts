// npm run images
import { runMain } from "../lib/main.ts";
import { logToStderr as log } from "../lib/say.ts";
import { parseArguments, USAGE } from "./arguments.ts";
import { buildImages, IMAGE_NAMES, type ImageReferences, referenceOf } from "./images.ts";
import { writeLayout } from "./oci.ts";
import { pushImages } from "./push.ts";

await runMain(async () => {
  const { help, push, out, json } = parseArguments(process.argv.slice(2));
  if (help) {
    process.stdout.write(`${USAGE}\n`);
    return 0;
  }
  const images = await buildImages(log);
  if (out)
    writeLayout(
      out,
      IMAGE_NAMES.map((name) => images[name]),
    );
  const built = Object.fromEntries(IMAGE_NAMES.map((name) => [name, referenceOf(images[name])])) as ImageReferences;
  const references = push ? await pushImages(images, push, log) : built;
  const lines = IMAGE_NAMES.map((name) => `${name.padEnd(9)} ${references[name].ref}`);
  process.stdout.write(`${json ? JSON.stringify(references) : lines.join("\n")}\n`);
  return 0;
});
