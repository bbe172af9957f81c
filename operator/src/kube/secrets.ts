/**
 * Secrets by `get` and by name only: nothing here lists or watches, keeps a value, or says one. A Secret goes only to
 * the hosts that its own annotation names, so that whoever may write Agents cannot send it elsewhere.
 */
import type { CredentialAnswer, Credentials, SecretRef } from "#engine/ports.ts";
import { isPawlError } from "#rules/errors.ts";
import type { Found, KubeClient, Missing } from "./client.ts";
import { KubeError } from "./errors.ts";
import { HOSTS_ANNOTATION, offers, parseHosts } from "./hosts.ts";
import { type KubeObject, SECRETS } from "./resources.ts";

const missing = (message: string): CredentialAnswer => ({ kind: "missing", message });
const refused = (message: string): CredentialAnswer => ({ kind: "refused", message });

/** Decides on one Secret as it was read. Pure. */
export function answerFrom(secret: KubeObject, namespace: string, ref: SecretRef, host: string): CredentialAnswer {
  const where = `Secret ${namespace}/${ref.name}`;
  const annotation = secret.metadata.annotations?.[HOSTS_ANNOTATION];
  const hint = `kubectl annotate --overwrite secret -n ${namespace} ${ref.name} ${HOSTS_ANNOTATION}=`;
  if (annotation === undefined) {
    return refused(`${where} offers itself to no host. If it is meant for ${host}: ${hint}${host}`);
  }
  const { hosts, mistakes } = parseHosts(annotation);
  if (!offers(hosts, host)) {
    const wrong = mistakes.length === 0 ? "" : ` (not a host[:port]: ${mistakes.slice(0, 5).join(", ")})`;
    const offered = hosts.length === 0 ? "no host" : hosts.slice(0, 10).join(", ");
    const all = [...hosts, host].join(",");
    return refused(
      `${where} offers itself to ${offered}${wrong}, not to ${host}. If it is meant for that too: ${hint}${all}`,
    );
  }
  const data = secret["data"] as Readonly<Record<string, unknown>> | undefined;
  const encoded = data !== undefined && Object.hasOwn(data, ref.key) ? data[ref.key] : undefined;
  if (typeof encoded !== "string") {
    const keys = Object.keys(data ?? {})
      .sort()
      .slice(0, 10);
    return missing(`${where} has no key "${ref.key}"; it has: ${keys.length === 0 ? "none" : keys.join(", ")}`);
  }
  // Files and `echo` end in a line break, which no header may contain.
  const value = Buffer.from(encoded, "base64")
    .toString("utf8")
    .replace(/\r?\n$/, "");
  return value === "" ? missing(`${where} has nothing under "${ref.key}"`) : { kind: "found", value };
}

export class KubeSecrets implements Credentials {
  readonly #client: KubeClient;

  constructor(client: KubeClient) {
    this.#client = client;
  }

  async get(namespace: string, ref: SecretRef, host: string): Promise<CredentialAnswer> {
    const where = `Secret ${namespace}/${ref.name}`;
    let read: Found | Missing;
    try {
      read = await this.#client.get(SECRETS, { namespace, name: ref.name });
    } catch (error) {
      if (error instanceof KubeError && error.code === 403) {
        return refused(`Pawl may not read ${where}: add "${namespace}" to agentNamespaces in the values of chart pawl`);
      }
      if (isPawlError(error, "terminal")) return refused(`${where} cannot be read: ${error.message}`);
      throw error;
    }
    if (!read.found) return missing(`${where} does not exist: create it with a key "${ref.key}"`);
    return answerFrom(read.object, namespace, ref, host);
  }
}
