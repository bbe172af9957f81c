/** Everything that a decision about a Run reads, gathered: the object, its Agent, the ledger. No decision here. */
import { AGENT_DEFAULTS, type AgentSpec, type AgentStatus, checkRun, type RunSpec } from "@pawl/crds";
import type { KubeObject } from "#kube/resources.ts";
import { readAgent } from "#ledger/agents.ts";
import { readMirror } from "#ledger/mirrors.ts";
import { policyOf } from "#rules/interrupt.ts";
import { isEnabled, TRANSCRIPT_COMMAND } from "../config.ts";
import type { Context } from "../context.ts";
import { holderOf } from "../agent/hold.ts";
import { installationId } from "../identity.ts";
import { hasNul } from "../text.ts";
import type { AgentSeen, RunFacts } from "./decide.ts";
import { idempotencyKey, specHash } from "./key.ts";

async function seeAgent(context: Context, namespaceUid: string, key: string): Promise<AgentSeen | undefined> {
  const object = context.agents.get(key);
  if (object === undefined || object.metadata.deletionTimestamp !== undefined) return undefined;
  const status = (object["status"] ?? {}) as AgentStatus;
  const spec = object["spec"] as AgentSpec | undefined;
  const conditions = status.conditions ?? [];
  const accepted = conditions.find(({ type }) => type === "Accepted");
  const stored = await readAgent(context.db, { namespaceUid, name: object.metadata.name });
  return {
    holder: holderOf(status, installationId(context.install)),
    accepted: accepted?.observedGeneration === object.metadata.generation ? accepted : undefined,
    refsReason: conditions.find(({ type }) => type === "ResolvedRefs")?.reason,
    suspended: spec?.suspend === true,
    previews: (spec?.runs?.previews ?? AGENT_DEFAULTS.runs.previews) === "Answer",
    stored,
    policy: policyOf({ interrupt: stored?.interrupt }),
    askable: stored?.fast === true || context.config.defaults.models?.decision !== undefined,
  };
}

/** Null: its namespace is gone, and with it the Run. `fresh`: before something is admitted, ask for the namespace. */
export async function observeRun(
  context: Context,
  object: KubeObject,
  options: { fresh?: boolean; signal?: AbortSignal } = {},
): Promise<RunFacts | null> {
  const namespace = object.metadata.namespace ?? "";
  const namespaceUid = await context.namespaces.uid(namespace, options);
  if (namespaceUid === null) return null;
  const { status: _, ...manifest } = object;
  const spec = checkRun(manifest);
  const raw = (object["spec"] ?? {}) as RunSpec;
  const key = idempotencyKey(object.metadata, raw);
  const command = context.config.transcriptCommand ?? TRANSCRIPT_COMMAND;
  return {
    object,
    spec,
    enabled: isEnabled(context.config, namespace),
    install: context.install,
    namespaceUid,
    key,
    specHash: specHash(raw),
    // A key that the ledger cannot hold was never a message.
    mirror: hasNul(key) ? null : await readMirror(context.db, namespaceUid, key),
    agent: await seeAgent(context, namespaceUid, `${namespace}/${raw.agentRef?.name ?? ""}`),
    transcript: `${command} ${object.metadata.name} -n ${namespace}`,
    maxRuns: context.config.maxRuns ?? 0,
    now: context.now(),
  };
}
