/** An actor is never a claim: whoever writes a Run is the one who says it. */
import type { Schema } from "../structural.ts";
import { isNotController, mutatingPolicy, type PolicyOptions, validatingPolicy } from "./build.ts";

export const runActor = (options: PolicyOptions): Schema[] =>
  validatingPolicy({
    name: "run-actor",
    description: "The actor of a new Run is the user who creates it, and only Pawl writes mirrors.",
    operations: ["CREATE"],
    resources: ["runs"],
    conditions: [isNotController(options)],
    validations: [
      {
        expression: "!has(object.spec.mirror)",
        message: "spec.mirror is written by Pawl only: give spec.input.text, what the agent is asked",
      },
      {
        expression:
          "has(object.spec.mirror) || (has(object.spec.input) && has(object.spec.input.actor) && object.spec.input.actor == request.userInfo.username)",
        message: "spec.input.actor must be your own user name",
        messageExpression:
          "'spec.input.actor must be ' + request.userInfo.username + ', the user who creates the Run' + (has(object.spec.input) && has(object.spec.input.actor) ? ', not ' + object.spec.input.actor : '') + ': write that name, or leave it out where the cluster fills it in'",
      },
    ],
  });

export const runCancel = (options: PolicyOptions): Schema[] =>
  validatingPolicy({
    name: "run-cancel",
    description: "Whoever cancels a Run signs for it.",
    operations: ["CREATE", "UPDATE"],
    resources: ["runs"],
    conditions: [
      isNotController(options),
      {
        name: "cancel-appears",
        expression: "has(object.spec.cancel) && (oldObject == null || !has(oldObject.spec.cancel))",
      },
    ],
    validations: [
      {
        expression: "has(object.spec.cancel.actor) && object.spec.cancel.actor == request.userInfo.username",
        message: "spec.cancel.actor must be your own user name",
        messageExpression:
          "'spec.cancel.actor must be ' + request.userInfo.username + ', the user who cancels the Run' + (has(object.spec.cancel.actor) ? ', not ' + object.spec.cancel.actor : '') + ': write that name, or leave it out where the cluster fills it in'",
      },
    ],
  });

/**
 * Fills in what nobody may choose. On update the recorded actor is copied, because an applied manifest that never named
 * one would otherwise take it away again, which the schema refuses.
 */
export const defaults = (options: PolicyOptions): Schema[] =>
  mutatingPolicy({
    name: "defaults",
    description: "Fills in the actor of a Run and of its cancellation.",
    operations: ["CREATE", "UPDATE"],
    resources: ["runs"],
    conditions: [isNotController(options)],
    mutations: [
      `has(object.spec.input) && !has(object.spec.input.actor) && (oldObject == null || (has(oldObject.spec.input) && has(oldObject.spec.input.actor)))
  ? Object{spec: Object.spec{input: Object.spec.input{actor: oldObject == null ? request.userInfo.username : oldObject.spec.input.actor}}}
  : Object{}`,
      `has(object.spec.cancel) && !has(object.spec.cancel.actor)
  ? (oldObject != null && has(oldObject.spec.cancel)
    ? (has(oldObject.spec.cancel.actor)
      ? Object{spec: Object.spec{cancel: Object.spec.cancel{actor: oldObject.spec.cancel.actor}}}
      : Object{})
    : Object{spec: Object.spec{cancel: Object.spec.cancel{actor: request.userInfo.username}}})
  : Object{}`,
    ],
  });
