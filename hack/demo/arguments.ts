// The command line of `npm run demo`.
import { parseArgs } from "node:util";
import { UserError } from "../lib/say.ts";

export const USAGE = `npm run demo [-- down] [-- --context NAME]

  Brings up a cluster (the one named, else kind, else a real one-node Kubernetes on this
  machine), installs Pawl, and shows two Runs: one that is answered, and one whose worker
  is killed in the middle of a write.

  down            remove everything that the demo made; a cluster that you named stays

  --context NAME  a context of KUBECONFIG or ~/.kube/config (or set PAWL_CONTEXT)
  --help          this text

  PAWL_MODEL=NAME      the first Run asks this model, at OPENAI_BASE_URL (default: OpenAI's own
                       address) with OPENAI_API_KEY. Without it, a scripted stand-in answers, and
                       an exported key is not used. The killed Run is always scripted.
`;

export type Arguments = { command: "up" | "down" | "help"; context: string | undefined };

export function parseArguments(words: readonly string[]): Arguments {
  const options = { context: { type: "string" }, help: { type: "boolean", short: "h" } } as const;
  let parsed: ReturnType<typeof parseArgs<{ options: typeof options; allowPositionals: true; args: string[] }>>;
  try {
    parsed = parseArgs({ args: [...words], options, allowPositionals: true });
  } catch (error) {
    throw new UserError(`${(error as Error).message}\n\n${USAGE}`);
  }
  const { positionals, values } = parsed;
  if (values.help) return { command: "help", context: undefined };
  if (values.context === "") throw new UserError("--context needs the name of a context");
  const [word = "up", ...more] = positionals;
  if ((word !== "up" && word !== "down") || more.length > 0)
    throw new UserError(`unknown command: ${positionals.join(" ")}\n\n${USAGE}`);
  return { command: word, context: values.context };
}
