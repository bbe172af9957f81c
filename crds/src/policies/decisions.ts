/**
 * A Decision is signed by whoever creates it, and only those may create one who have the verb for it: `approve`, or
 * `answer` for a question, on the very object that it names. Who of them may decide what is the Agent's to say, and is
 * judged by the ledger, where a refusal is kept.
 */
import { GROUP } from "../kinds.ts";
import type { Schema } from "../structural.ts";
import { mutatingPolicy, quote, validatingPolicy } from "./build.ts";

/** As the schema: those who are in more of them name the groups that matter themselves. */
const MAX_GROUPS = 256;

const VERB = "(object.spec.verdict == 'Answer' ? 'answer' : 'approve')";
const RESOURCE = "(object.spec.subject.kind == 'Run' ? 'runs' : 'workgraphs')";

/** No exemption for anybody: the controller never decides. */
export const decision = (): Schema[] =>
  validatingPolicy({
    name: "decision",
    description: "Whoever decides signs for it, and has the verb for it on what the Decision names.",
    operations: ["CREATE"],
    resources: ["decisions"],
    conditions: [],
    validations: [
      {
        expression: "has(object.spec.actor) && object.spec.actor == request.userInfo.username",
        message: "spec.actor must be your own user name",
        messageExpression:
          "'spec.actor must be ' + request.userInfo.username + ', the user who decides' + (has(object.spec.actor) ? ', not ' + object.spec.actor : '') + ': write that name, or leave it out where the cluster fills it in'",
      },
      {
        expression: "!has(object.spec.groups) || object.spec.groups.all(g, g in request.userInfo.groups)",
        message:
          "spec.groups may name groups of yours only: take the others out, or leave it out where the cluster fills it in",
      },
      {
        expression: `authorizer.group(${quote(GROUP)}).resource${RESOURCE}.namespace(request.namespace).name(object.spec.subject.name).check${VERB}.allowed()`,
        message: "you may not decide about what this Decision names",
        messageExpression: `request.userInfo.username + ' may not ' + ${VERB} + ' ' + ${RESOURCE} + '.${GROUP} ' + object.spec.subject.name + ' in namespace ' + request.namespace + ': ask for the ClusterRole pawl-approver, or let somebody decide who has it'`,
      },
    ],
  });

/** As for Runs: on update what was recorded is copied, because an applied manifest that never named it would take it away. */
export const decisionDefaults = (): Schema[] =>
  mutatingPolicy({
    name: "decision-defaults",
    description: "Fills in the actor of a Decision and his groups.",
    operations: ["CREATE", "UPDATE"],
    resources: ["decisions"],
    conditions: [{ name: "has-a-spec", expression: "has(object.spec)" }],
    mutations: [
      `!has(object.spec.actor) && (oldObject == null || has(oldObject.spec.actor))
  ? Object{spec: Object.spec{actor: oldObject == null ? request.userInfo.username : oldObject.spec.actor}}
  : Object{}`,
      `!has(object.spec.groups) && (oldObject == null ? has(request.userInfo.groups) && size(request.userInfo.groups) <= ${MAX_GROUPS} : has(oldObject.spec.groups))
  ? Object{spec: Object.spec{groups: oldObject == null ? request.userInfo.groups : oldObject.spec.groups}}
  : Object{}`,
    ],
  });
