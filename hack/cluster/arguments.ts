// The command line of `npm run cluster`.
import { parseArgs } from "node:util";
import { UserError } from "../lib/say.ts";

export const COMMANDS = ["up", "down", "status", "kubeconfig"] as const;
export type Command = (typeof COMMANDS)[number];
export type Arguments = { command: Command | "help"; context: string | undefined; json: boolean };

export const USAGE = `npm run cluster -- COMMAND [--context NAME] [--json]

  up          make sure that a cluster runs: the one named, else kind where a container
              engine answers, else a real one-node Kubernetes on this machine (Linux, root)
  down        remove the cluster that "up" made, and all that is in it
  status      say what runs; exit code 1 when it is not running
  kubeconfig  print the path of its kubeconfig

  --context NAME  a context of KUBECONFIG or ~/.kube/config (or set PAWL_CONTEXT)
  --json          one line of JSON on stdout
`;

export function parseArguments(words: readonly string[]): Arguments {
  const options = {
    context: { type: "string" },
    json: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  } as const;
  let parsed: ReturnType<typeof parseArgs<{ options: typeof options; allowPositionals: true; args: string[] }>>;
  try {
    parsed = parseArgs({ args: [...words], options, allowPositionals: true });
  } catch (error) {
    throw new UserError(`${(error as Error).message}\n\n${USAGE}`);
  }
  const [word, ...more] = parsed.positionals;
  const command = COMMANDS.find((one) => one === word);
  if (parsed.values.help || word === undefined) return { command: "help", context: undefined, json: false };
  if (!command || more.length > 0) throw new UserError(`unknown command: ${parsed.positionals.join(" ")}\n\n${USAGE}`);
  if (parsed.values.context === "") throw new UserError("--context needs the name of a context");
  return { command, context: parsed.values.context, json: parsed.values.json ?? false };
}
