/** The key for a model endpoint: the Agent's Secret, the install's key towards exactly the install's endpoint, or none. */
import type { EngineDeps } from "./deps.ts";
import type { ModelEndpoint } from "./ports.ts";

export type ModelCredential =
  | { readonly kind: "ready"; readonly apiKey: string | undefined }
  /** A person can mend it while the run waits. */
  | { readonly kind: "waiting"; readonly reason: string; readonly message: string }
  /** Only another Agent spec can mend it. */
  | { readonly kind: "broken"; readonly reason: string; readonly message: string };

export async function credentialFor(
  deps: Pick<EngineDeps, "credentials" | "settings">,
  namespace: string,
  endpoint: ModelEndpoint,
): Promise<ModelCredential> {
  const ref = endpoint.apiKeySecretRef;
  if (ref === undefined) {
    const install = deps.settings.installModel;
    return { kind: "ready", apiKey: install?.baseURL === endpoint.baseURL ? install.apiKey : undefined };
  }
  if (!URL.canParse(endpoint.baseURL)) {
    return {
      kind: "broken",
      reason: "ModelURLInvalid",
      message: `the baseURL of model ${endpoint.model} is no URL: ${endpoint.baseURL}`,
    };
  }
  const answer = await deps.credentials.get(namespace, ref, new URL(endpoint.baseURL).host);
  switch (answer.kind) {
    case "found":
      return { kind: "ready", apiKey: answer.value };
    case "missing":
      return { kind: "waiting", reason: "SecretMissing", message: answer.message };
    case "refused":
      return { kind: "waiting", reason: "SecretRefused", message: answer.message };
  }
}
