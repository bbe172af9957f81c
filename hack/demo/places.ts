// Where the demo puts things, and how it knows them again.
import { UserError } from "../lib/say.ts";
import type { Kubectl } from "./kubectl.ts";

export const SYSTEM = "pawl-system";
export const DEMO = "pawl-demo";

/** Marks the namespaces that the demo (and the end-to-end tests) made, so that no other is removed. */
export const MARK = { "pawl-demo/made": "true" };

const namespace = (name: string) => ({
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name, labels: { ...MARK, "pod-security.kubernetes.io/enforce": "restricted" } },
});

export const isOurs = (labels: unknown): boolean =>
  (labels as Record<string, string> | undefined)?.["pawl-demo/made"] === "true";

/** With Pod Security restricted enforced. Refuses those that somebody else made. */
export async function makeNamespaces(kubectl: Kubectl, names: readonly string[]): Promise<void> {
  const there = (await kubectl.list("namespaces")).filter(({ metadata }) => names.includes(metadata.name));
  for (const { metadata, status } of there) {
    const { name } = metadata;
    if (status?.["phase"] === "Terminating")
      throw new UserError(`The namespace ${name} is being deleted: run this again when it is gone.`);
    if (isOurs(metadata["labels"])) continue;
    throw new UserError(
      `There is a namespace ${name} that this did not make: use another cluster, or delete it if it is not needed.`,
    );
  }
  await kubectl.apply(...names.map(namespace));
}
