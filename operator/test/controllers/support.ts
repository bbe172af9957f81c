/** Rows and objects as the decisions see them, with everything at its quietest. */
import { checkRun } from "@pawl/crds";
import type { ControllerConfig, Install } from "#controllers/config.ts";
import type { AgentSeen, RunFacts } from "#controllers/run/decide.ts";
import { idempotencyKey, specHash } from "#controllers/run/key.ts";
import type { Shown } from "#controllers/run/project.ts";
import type { KubeObject } from "#kube/resources.ts";
import { policyOf } from "#rules/interrupt.ts";
import type { Mirror } from "#ledger/mirrors.ts";

export const NOW = new Date("2026-03-01T12:00:00Z");
export const INSTALL: Install = {
  kubeSystemUid: "11111111-1111-4111-8111-111111111111",
  bornAt: new Date("2026-03-01T11:00:00Z"),
  epoch: 1,
};
export const CONFIG: ControllerConfig = {
  agentNamespaces: ["demo"],
  defaults: {
    models: { primary: { baseURL: "http://model.test/v1", model: "small" } },
    interrupt: { whoInterrupts: "SameActorOnly" },
  },
  instance: "test",
};

export const at = (seconds: number): Date => new Date(NOW.getTime() + seconds * 1_000);

export function agentObject(spec: Record<string, unknown> = {}, metadata: Record<string, unknown> = {}): KubeObject {
  return {
    apiVersion: "pawl.dev/v1alpha1",
    kind: "Agent",
    metadata: { namespace: "demo", name: "helper", uid: "agent-uid", generation: 3, ...metadata },
    spec: { instructions: "Be brief.", ...spec },
  };
}

export function runObject(
  spec: Record<string, unknown> = {},
  metadata: Record<string, unknown> = {},
  status?: unknown,
): KubeObject {
  return {
    apiVersion: "pawl.dev/v1alpha1",
    kind: "Run",
    metadata: {
      namespace: "demo",
      name: "one",
      uid: "run-uid",
      generation: 1,
      creationTimestamp: "2026-03-01T11:30:00Z",
      ...metadata,
    },
    spec: { agentRef: { name: "helper" }, input: { text: "What is a pawl?", actor: "alice" }, ...spec },
    ...(status === undefined ? {} : { status }),
  };
}

/** A message whose run waits for a worker. */
export function aMirror(changes: Partial<Mirror> = {}): Mirror {
  return {
    namespace_uid: "ns-uid",
    key: "demo/one",
    spec_hash: specHash(runObject()["spec"] as never),
    object_uid: "run-uid",
    object_name: "one",
    event_id: "event-1",
    event_state: "in_turn",
    conversation_version: 0,
    position: null,
    ahead: null,
    agent_held: null,
    agent_runs: null,
    install_held: null,
    opening_event: "event-1",
    answered_by: "one",
    role: "trigger",
    own_interrupt: null,
    restarts: 0,
    superseded_by: null,
    due_at: null,
    triggers: 1,
    actors: ["alice"],
    run_id: "22222222-2222-4222-8222-222222222222",
    request_id: "33333333-3333-4333-8333-333333333333",
    status: "queued",
    shape: "loop",
    reason: null,
    message: null,
    version: 1,
    streamed: 0,
    lease_owner: null,
    stop: false,
    committed_at: null,
    committed_kind: null,
    committed_tool: null,
    committed_target: null,
    committed_step: null,
    replied: false,
    model_calls: 0,
    tool_calls: 0,
    input_tokens: 0,
    output_tokens: 0,
    cost_micros: null,
    steps: 0,
    queued_at: at(-60),
    started_at: null,
    ended_at: null,
    reply: null,
    effects_total: 0,
    effects_unknown: 0,
    last_effects: null,
    interrupts_total: 0,
    last_interrupt: null,
    open_tool: null,
    waiting: null,
    expired: null,
    open_since: null,
    now: NOW,
    ...changes,
  };
}

/** The message waits in the mailbox, behind a turn at work. */
export const pending = (changes: Partial<Mirror> = {}): Mirror =>
  aMirror({
    event_state: "pending",
    position: 1,
    opening_event: null,
    answered_by: null,
    triggers: 0,
    actors: null,
    run_id: null,
    request_id: null,
    status: null,
    shape: null,
    version: null,
    stop: null,
    replied: null,
    ...changes,
  });

export const working = (changes: Partial<Mirror> = {}): Mirror =>
  aMirror({ status: "running", lease_owner: "worker-1", started_at: at(-30), version: 2, ...changes });

export const ended = (status: string, changes: Partial<Mirror> = {}): Mirror =>
  aMirror({ status, event_state: "accounted", started_at: at(-30), ended_at: at(-1), version: 9, ...changes });

export const replied = (text: string, changes: Partial<Mirror> = {}): Mirror =>
  ended("succeeded", {
    reply: text,
    replied: true,
    committed_at: at(-2),
    committed_kind: "reply",
    committed_step: 1,
    ...changes,
  });

export function shown(mirror: Mirror, changes: Partial<Shown> = {}): Shown {
  return {
    mirror,
    generation: 1,
    actor: "alice",
    before: undefined,
    install: INSTALL,
    previews: true,
    transcript: "kubectl exec deploy/pawl-worker -- pawl transcript one -n demo",
    maxRuns: 0,
    now: NOW,
    ...changes,
  };
}

export function anAgent(changes: Partial<AgentSeen> = {}): AgentSeen {
  return {
    holder: "ours",
    accepted: { status: "True", reason: "Accepted", message: "accepted" },
    refsReason: "Resolved",
    suspended: false,
    previews: true,
    stored: { id: "agent-id", generation: 3, suspended: false },
    policy: policyOf(null),
    askable: false,
    ...changes,
  };
}

export function facts(changes: Partial<RunFacts> & { object?: KubeObject } = {}): RunFacts {
  const object = changes.object ?? runObject();
  const spec = object["spec"] as never;
  const { status: _, ...manifest } = object;
  return {
    object,
    spec: checkRun(manifest),
    enabled: true,
    install: INSTALL,
    namespaceUid: "ns-uid",
    key: idempotencyKey(object.metadata, spec),
    specHash: specHash(spec),
    mirror: null,
    agent: anAgent(),
    transcript: "kubectl exec deploy/pawl-worker -- pawl transcript one -n demo",
    maxRuns: 0,
    now: NOW,
    ...changes,
  };
}
