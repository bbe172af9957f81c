// The command line of `npm run images`.
import { parseArgs } from "node:util";
import { UserError } from "../lib/say.ts";

export const USAGE = `npm run images -- [--push REF] [--out DIR] [--json]

  Builds the images. The demo and the tests do that by themselves; a cluster that you
  name needs them in a registry.

  --push REF  push them to REF/pawl, REF/pawl-fakes and REF/postgres, and remember that
  --out DIR   write them to DIR as an OCI layout
  --json      one line of JSON on stdout
`;

export type Arguments = { help: boolean; push: string | undefined; out: string | undefined; json: boolean };

export function parseArguments(words: readonly string[]): Arguments {
  try {
    const { values } = parseArgs({
      args: [...words],
      options: {
        push: { type: "string" },
        out: { type: "string" },
        json: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    });
    if (values.push === "" || values.out === "") throw new Error("--push and --out need a value");
    return { help: values.help ?? false, push: values.push, out: values.out, json: values.json ?? false };
  } catch (error) {
    throw new UserError(`${(error as Error).message}\n\n${USAGE}`);
  }
}
