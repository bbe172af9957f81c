/** Everything that is asked of a Decision, gathered: the object, the Run that it names, whose Agent that is. */
import { type AgentStatus, checkDecision, type DecisionSpec, type RunSpec } from "@pawl/crds";
import { type KubeObject, RUNS } from "#kube/resources.ts";
import { PawlError } from "#rules/errors.ts";
import { holderOf } from "../agent/hold.ts";
import { isEnabled } from "../config.ts";
import type { Context } from "../context.ts";
import { installationId } from "../identity.ts";
import { type DecisionFacts, statusOf } from "./decide.ts";

/** The Run as the server has it now: its name alone says nothing about which one the person saw. */
async function subjectOf(
  context: Context,
  object: KubeObject,
  signal: AbortSignal | undefined,
): Promise<KubeObject | undefined> {
  const spec = object["spec"] as Partial<DecisionSpec> | undefined;
  const name = spec?.subject?.name;
  if (spec?.subject?.kind !== "Run" || typeof name !== "string") return undefined;
  const ref = { namespace: object.metadata.namespace ?? "", name };
  if (statusOf(object)?.state !== undefined) return context.runs.get(`${ref.namespace}/${name}`); // it was looked at
  const got = await context.kube.get(RUNS, ref, signal === undefined ? {} : { signal });
  if (!got.found && got.missing === "type") throw new PawlError("transient", "RunUnreadable", got.message);
  return got.found ? got.object : undefined;
}

/** Null: its namespace is gone, and so is it. */
export async function observeDecision(
  context: Context,
  object: KubeObject,
  signal?: AbortSignal,
): Promise<DecisionFacts | null> {
  const namespace = object.metadata.namespace ?? "";
  const namespaceUid = await context.namespaces.uid(namespace, signal === undefined ? {} : { signal });
  if (namespaceUid === null) return null;
  const run = await subjectOf(context, object, signal);
  const agent = (run?.["spec"] as RunSpec | undefined)?.agentRef?.name ?? "";
  const status = context.agents.get(`${namespace}/${agent}`)?.["status"] as AgentStatus | undefined;
  const { status: _, ...manifest } = object;
  return {
    object,
    spec: checkDecision(manifest),
    enabled: isEnabled(context.config, namespace),
    holder: holderOf(status, installationId(context.install)),
    namespaceUid,
    run,
    now: context.now(),
  };
}
