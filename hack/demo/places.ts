// Where the demo puts things, and how it knows them again.
import { UserError } from "../lib/say.ts";
import type { Kubectl } from "./kubectl.ts";

export const SYSTEM = "pawl-system";
export const DEMO = "pawl-demo";

/** Marks the namespaces that the demo made, so that `down` removes no other. */
export const MARK = { "pawl-demo/made": "true" };

const namespace = (name: string) => ({
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name, labels: { ...MARK, "pod-security.kubernetes.io/enforce": "restricted" } },
});

export const isOurs = (labels: unknown): boolean =>
  (labels as Record<string, string> | undefined)?.["pawl-demo/made"] === "true";

/** Both namespaces, with Pod Security restricted enforced. Refuses those that somebody else made. */
export async function makeNamespaces(kubectl: Kubectl): Promise<void> {
  for (const name of [SYSTEM, DEMO]) {
    const there = await kubectl.get("namespace", name);
    if (there?.status?.["phase"] === "Terminating")
      throw new UserError(`The namespace ${name} is being deleted: run this again when it is gone.`);
    if (there && !isOurs(there.metadata["labels"])) {
      throw new UserError(
        `There is a namespace ${name} that the demo did not make: use another cluster, or delete it if it is not needed.`,
      );
    }
  }
  await kubectl.apply(namespace(SYSTEM), namespace(DEMO));
}
