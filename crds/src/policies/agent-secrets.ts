/**
 * Naming a Secret in an Agent is using it: the agent will send its value to a host. So the writer must be allowed to
 * read every Secret that the Agent names, wherever it names it.
 *
 * One authorizer check costs 350,000 units of CEL. One expression may cost 1,000,000 and one policy 10,000,000, so each
 * Secret is a validation of its own, and there is a limit to how many an Agent may name.
 */
import type { Schema } from "../structural.ts";
import { validatingPolicy } from "./build.ts";

/** 20 × 350,000, and something left for the variables and the message. */
export const MAX_SECRETS = 20;

/** CEL for the list of names at `path` (fields of objects, each possibly absent), or an empty list. */
const one = (path: string): string => `[object.spec.?${path.replaceAll(".", ".?")}.orValue('')]`;
const each = (path: string, item: string): string =>
  `object.spec.?${path.replaceAll(".", ".?")}.orValue([]).map(e, e.${item}.orValue(''))`;

const PLACES: readonly string[] = [
  one("models.primary.apiKeySecretRef.name"),
  one("models.fast.apiKeySecretRef.name"),
  one("connectors.slack.secretRef.name"),
  // Lists of lists do not flatten before Kubernetes 1.34; names hold no comma, so text does.
  "object.spec.?tools.?mcpServers.orValue([]).map(e, e.?headers.orValue([]).map(h, h.secretRef.name).join(',')).join(',').split(',')",
  each("workspace.egress", "?credential.?secretRef.?name"),
  each("workspace.egress", "?credential.?githubAppRef.?name"),
  each("workspace.grants", "?secretRef.?name"),
];

export const agentSecrets = (): Schema[] =>
  validatingPolicy({
    name: "agent-secrets",
    description: "Whoever writes an Agent may read every Secret that it names.",
    operations: ["CREATE", "UPDATE"],
    resources: ["agents"],
    // Labels, owner references and finalizers are other people's business and use no Secret.
    conditions: [{ name: "spec-changes", expression: "oldObject == null || object.spec != oldObject.spec" }],
    variables: [
      { name: "all", expression: `(${PLACES.join(" +\n ")}).filter(n, n != '')` },
      {
        name: "names",
        expression: "variables.all.transformList(i, n, variables.all.indexOf(n) == i, n)",
      },
    ],
    validations: [
      {
        expression: `size(variables.names) <= ${MAX_SECRETS}`,
        message: `an Agent may name at most ${MAX_SECRETS} different Secrets: put several keys into one Secret`,
      },
      ...Array.from({ length: MAX_SECRETS }, (_, i) => ({
        expression: `size(variables.names) <= ${i} || size(variables.names) > ${MAX_SECRETS} || authorizer.group('').resource('secrets').namespace(request.namespace).name(variables.names[${i}]).check('get').allowed()`,
        message: "you may not read a Secret that this Agent names",
        messageExpression: `'the Agent names Secret ' + variables.names[${i}] + ', which ' + request.userInfo.username + ' may not get in namespace ' + request.namespace + ': ask for the right to get it, or leave it out'`,
      })),
    ],
  });
