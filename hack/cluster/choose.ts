// Which cluster a command works on. Pure: the facts are gathered elsewhere.

export type Facts = {
  /** From --context, else from PAWL_CONTEXT. */
  context: string | undefined;
  /** A container engine that answers. */
  engine: "docker" | "podman" | undefined;
  platform: NodeJS.Platform;
};

export type Choice =
  | { kind: "named"; context: string }
  | { kind: "kind"; engine: "docker" | "podman" }
  | { kind: "local" }
  | { kind: "none"; advice: string };

/** The named one; else kind; else this machine itself, if it is Linux; else advice. */
export function choose(facts: Facts): Choice {
  if (facts.context) return { kind: "named", context: facts.context };
  if (facts.engine) return { kind: "kind", engine: facts.engine };
  if (facts.platform === "linux") return { kind: "local" };
  return {
    kind: "none",
    advice:
      "No container engine answers: start Docker or Podman, or name a cluster, for example --context kind-NAME after `kind create cluster --name NAME`.",
  };
}
