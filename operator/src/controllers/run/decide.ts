/**
 * What to do about a Run, in ordered checks, each with its reason. Pure.
 *
 * A Run and the ledger can part ways (re-created by GitOps, a restored cluster, a restored ledger). The ledger alone
 * says what was asked: a status may veto an admission and never causes one. A message is admitted once, by key.
 */
import { type Checked, isFinalPhase, notActedUpon, RUN, type RunSpec, type RunStatus } from "@pawl/crds";
import type { KubeObject } from "#kube/resources.ts";
import type { Message } from "#ledger/mailbox.ts";
import type { Mirror } from "#ledger/mirrors.ts";
import type { Policy } from "#rules/interrupt.ts";
import { isStopWord } from "#rules/stop-words.ts";
import { redactTokens } from "#rules/secrets.ts";
import type { Install } from "../config.ts";
import { hasNul, instant, line } from "../text.ts";
import { conditionOf, isFinished, said, type Said, withConditions } from "./conditions.ts";
import { fit, MAX_MESSAGE_BYTES, MAX_NAME_BYTES } from "./fit.ts";
import { connectorOf, conversationKey } from "./key.ts";
import { plain, project } from "./project.ts";

/** The Agent a Run names, as far as admission asks. `undefined`: no such object. */
export type AgentSeen = {
  /** Whose it is; see `agent/hold.ts`. */
  readonly holder: "ours" | "nobody" | "other";
  /** Its Accepted condition, if it speaks of the present generation. */
  readonly accepted: { readonly status: string; readonly reason: string; readonly message: string } | undefined;
  /** Its ResolvedRefs reason. */
  readonly refsReason: string | undefined;
  readonly suspended: boolean;
  readonly previews: boolean;
  /** Its row. Null: not recorded yet. */
  readonly stored: { readonly id: string; readonly generation: number; readonly suspended: boolean } | null;
  /** How messages meet its turns. */
  readonly policy: Policy;
  /** It, or the install, names a model that says what a message means to a turn at work. */
  readonly askable: boolean;
};

export type RunFacts = {
  readonly object: KubeObject;
  readonly spec: Checked<RunSpec>;
  readonly enabled: boolean;
  readonly install: Install;
  readonly namespaceUid: string;
  readonly key: string;
  readonly specHash: string;
  readonly mirror: Mirror | null;
  readonly agent: AgentSeen | undefined;
  readonly transcript: string;
  /** The install's ceiling of runs at work; 0 = none. */
  readonly maxRuns: number;
  readonly now: Date;
};

export type Stop = {
  readonly eventId: string;
  readonly extId: string;
  readonly actor: { readonly connector: string; readonly extId: string };
  readonly why: string | null;
};

export type RunDecision =
  /** Not ours to speak about. */
  | { readonly do: "nothing"; readonly why: string }
  | { readonly do: "admit"; readonly message: Message }
  | { readonly do: "stop"; readonly stop: Stop }
  | { readonly do: "show"; readonly status: RunStatus; readonly recheckMs?: number }
  /** The object shows a newer version than this ledger has: a restored ledger, or we are late. */
  | { readonly do: "behind"; readonly message: string };

const AGAIN = "to run it, apply it under another name, with generateName, or with a new spec.idempotencyKey";

type Refusal = { readonly final: boolean; readonly phase: "Queued" | "Failed" | "Cancelled"; readonly accepted: Said };
const waits = (reason: string, message: string): Refusal => ({
  final: false,
  phase: "Queued",
  accepted: said("Unknown", reason, message),
});
const refuses = (reason: string, message: string): Refusal => ({
  final: true,
  phase: "Failed",
  accepted: said("False", reason, message),
});

/** A status that was written for a message, not for one that waits to become one. */
const wasMessage = (status: RunStatus | undefined): boolean =>
  status?.ledger !== undefined || status?.runID !== undefined;

/** What `notAdmitted` writes. Anything else in a status tells of work, and vetoes. */
const WAITING_FIELDS: readonly string[] = [
  "observedGeneration",
  "phase",
  "reason",
  "message",
  "origin",
  "actor",
  "conditions",
];

export const statusOf = (object: KubeObject): RunStatus | undefined => object["status"] as RunStatus | undefined;

function checkAgentOf(facts: RunFacts, name: string): Refusal | undefined {
  const { agent } = facts;
  if (agent === undefined) {
    return waits("AgentNotFound", `there is no Agent ${name} in this namespace: apply it and this Run goes on`);
  }
  const { accepted, stored } = agent;
  if (accepted?.status === "False") {
    return waits("AgentNotAccepted", `Agent ${name}: ${accepted.reason}: ${accepted.message}`);
  }
  if (accepted?.status !== "True" || agent.holder !== "ours" || stored === null) {
    return waits("Pending", `the Agent ${name} is being looked at`);
  }
  if (agent.suspended || stored.suspended) {
    return waits("AgentNotReady", `the Agent ${name} is suspended: take its spec.suspend away and this Run goes on`);
  }
  if (agent.refsReason === "ModelMissing") {
    return waits("AgentNotReady", `the Agent ${name} names no model: set its spec.models.primary`);
  }
  return undefined;
}

/** Why a Run that is no message yet does not become one now; undefined: it does. */
export function refusalOf(facts: RunFacts): Refusal | undefined {
  const { object, spec, enabled, install } = facts;
  const namespace = object.metadata.namespace ?? "";
  if ((object["spec"] as { cancel?: unknown } | undefined)?.cancel !== undefined) {
    return { final: true, phase: "Cancelled", accepted: said("False", "Pending", "cancelled before it was accepted") };
  }
  if (!enabled) {
    return waits(
      "NamespaceNotEnabled",
      `this install does not serve the namespace ${namespace}: add it to agentNamespaces in the chart's values`,
    );
  }
  if (!spec.ok) {
    return refuses("Invalid", spec.problems.map(({ path, message }) => `${path}: ${message}`).join("; "));
  }
  if (hasNul(spec.value)) {
    return refuses("Invalid", "spec holds a NUL character, which the ledger cannot store: apply it again without");
  }
  const unused = notActedUpon(RUN, spec.value);
  if (unused.refused.length > 0) {
    return refuses("NotSupportedYet", `take out ${unused.refused.join(", ")} until this version of Pawl supports it`);
  }
  if (spec.value.input?.actor === undefined) {
    return refuses(
      "ActorMissing",
      "spec.input.actor is missing: this cluster does not fill it in, so write your own user name (kubectl auth whoami)",
    );
  }
  const told = Object.keys(statusOf(object) ?? {}).filter((field) => !WAITING_FIELDS.includes(field));
  if (told.length > 0) {
    return refuses(
      "StatusNotEmpty",
      `its status (${told.join(", ")}) tells of a turn that this ledger does not know; ${AGAIN}`,
    );
  }
  if (new Date(object.metadata.creationTimestamp ?? 0) < install.bornAt) {
    return refuses(
      "OlderThanInstallation",
      `older than this installation's ledger (${instant(install.bornAt)}), which cannot know whether it was answered; ${AGAIN}`,
    );
  }
  return checkAgentOf(facts, spec.value.agentRef.name);
}

/** The status of a Run that is no message: waiting, or refused for good. */
function notAdmitted(facts: RunFacts, { final, phase, accepted }: Refusal): RunStatus {
  const { object, now } = facts;
  const generation = object.metadata.generation ?? 0;
  const before = statusOf(object);
  const actor = (object["spec"] as RunSpec | undefined)?.input?.actor;
  const cancelled = phase === "Cancelled";
  const finished = final ? "True" : "False";
  return fit(
    plain({
      observedGeneration: generation,
      ledger: before?.ledger,
      phase,
      reason: cancelled ? "Cancelled" : accepted.reason,
      message: line(accepted.message, MAX_MESSAGE_BYTES),
      origin: "Applied",
      actor: actor === undefined ? undefined : line(actor, MAX_NAME_BYTES),
      conditions: withConditions(
        before,
        {
          Accepted: accepted,
          Finished: said(finished, cancelled ? "Finished" : "NotAccepted", accepted.message),
          Succeeded: said(final ? "False" : "Unknown", cancelled ? "Cancelled" : "NotAccepted", accepted.message),
        },
        generation,
        now,
      ),
    }),
  );
}

/** The same verdicts for the present generation. */
function restamped({ object, now }: RunFacts, before: RunStatus): RunStatus {
  const generation = object.metadata.generation ?? 0;
  const conditions = withConditions(before, {}, generation, now);
  return plain({ ...before, observedGeneration: generation, conditions });
}

/** What a status says stays, but for its end: it is the last that anybody knows. */
function ledgerLost(facts: RunFacts, before: RunStatus): RunStatus {
  const generation = facts.object.metadata.generation ?? 0;
  if (isFinalPhase(before.phase) && isFinished(before)) return restamped(facts, before);
  const message = `this installation's ledger does not know this Run (a new or an older database?), so nobody can say whether it was answered; ${AGAIN}`;
  const { activity: _activity, queuePosition: _position, ...kept } = before;
  return fit(
    plain({
      ...kept,
      observedGeneration: generation,
      phase: "Failed",
      reason: "LedgerLost",
      message: line(message, MAX_MESSAGE_BYTES),
      finishedAt: before.finishedAt ?? instant(facts.now),
      conditions: withConditions(
        before,
        { Finished: said("True", "Finished", message), Succeeded: said("False", "LedgerLost", message) },
        generation,
        facts.now,
      ),
    }),
  );
}

/** Nobody says anything more in a conversation that one Run has for itself. */
export const windowOf = (spec: RunSpec, policy: Policy): Policy =>
  spec.conversation === undefined ? { ...policy, quietMs: 0 } : policy;

function messageOf(
  facts: RunFacts,
  spec: RunSpec,
  agent: { id: string; generation: number },
  { policy, askable }: Pick<AgentSeen, "policy" | "askable">,
): Message {
  const { metadata } = facts.object;
  const namespace = metadata.namespace ?? "";
  const uid = metadata.uid ?? "";
  return {
    agentId: agent.id,
    generation: agent.generation,
    connector: connectorOf(namespace),
    conversationKey: conversationKey(spec, facts.key),
    actor: { connector: "kubernetes", extId: spec.input?.actor ?? "" },
    extId: uid,
    orderKey: metadata.creationTimestamp ?? "",
    // The ledger keeps no credential, nor does a model need one: tools bring their own.
    text: redactTokens(spec.input?.text ?? ""),
    slice: JSON.parse(JSON.stringify(spec.budgets ?? {})) as Record<string, unknown>,
    policy: windowOf(spec, policy),
    stops: isStopWord(spec.input?.text ?? ""),
    askable,
    applied: {
      namespaceUid: facts.namespaceUid,
      key: facts.key,
      specHash: facts.specHash,
      objectUid: uid,
      objectName: metadata.name,
    },
  };
}

/** A cancel that the ledger has not taken yet. Asked once: afterwards the run is over, stopping, or had answered. */
export function stopOf(facts: RunFacts, mirror: Mirror): Stop | undefined {
  const spec = facts.object["spec"] as RunSpec | undefined;
  const cancel = spec?.cancel;
  if (cancel === undefined || spec === undefined) return undefined;
  const open = ["undecided", "pending", "in_turn"].includes(mirror.event_state);
  if (!open || mirror.stop === true || mirror.replied === true) return undefined;
  const actor = cancel.actor ?? spec.input?.actor ?? "";
  return {
    eventId: mirror.event_id,
    extId: `cancel:${facts.object.metadata.uid ?? ""}`,
    actor: { connector: "kubernetes", extId: actor },
    why: cancel.reason ?? null,
  };
}

function behind(facts: RunFacts, status: RunStatus): boolean {
  const before = statusOf(facts.object)?.ledger;
  if (before === undefined || status.ledger === undefined) return false;
  return before.epoch > status.ledger.epoch || (before.epoch === status.ledger.epoch && before.seq > status.ledger.seq);
}

function known(facts: RunFacts, mirror: Mirror): RunDecision {
  const { object } = facts;
  const own = mirror.object_uid === object.metadata.uid;
  if (!own && mirror.spec_hash !== facts.specHash) {
    return {
      do: "show",
      status: notAdmitted(
        facts,
        refuses(
          "KeyReused",
          `the idempotency key ${line(facts.key, 128)} has been used by a Run that asked something else; ${AGAIN}`,
        ),
      ),
    };
  }
  const stop = stopOf(facts, mirror);
  if (stop !== undefined) return { do: "stop", stop };
  const { status, recheckMs } = project({
    mirror,
    generation: object.metadata.generation ?? 0,
    actor: (object["spec"] as RunSpec | undefined)?.input?.actor ?? "",
    before: statusOf(object),
    install: facts.install,
    previews: facts.agent?.previews ?? true,
    replayOf: own ? undefined : mirror.object_name,
    transcript: facts.transcript,
    maxRuns: facts.maxRuns,
    now: facts.now,
  });
  if (behind(facts, status)) {
    return { do: "behind", message: "its status shows a newer version of the run than this ledger has" };
  }
  return { do: "show", status, ...(recheckMs === undefined ? {} : { recheckMs }) };
}

export function decideRun(facts: RunFacts): RunDecision {
  const { object, mirror, spec, agent } = facts;
  const before = statusOf(object);
  if ((object["spec"] as RunSpec | undefined)?.mirror !== undefined) {
    return { do: "nothing", why: "a mirror: it is written where its turn began" };
  }
  if (agent?.holder === "other") return { do: "nothing", why: "another installation serves its Agent" };
  if (mirror !== null) return known(facts, mirror);
  // While nobody says whose the Agent is, another installation's ledger may know what ours does not.
  if (wasMessage(before) && agent?.holder !== "ours") return { do: "nothing", why: "nobody serves its Agent" };
  if (!facts.enabled && agent === undefined) return { do: "nothing", why: "neither it nor an Agent is ours" };
  if (wasMessage(before) && before !== undefined) return { do: "show", status: ledgerLost(facts, before) };
  // Refused for good, or cancelled: said once, and final.
  if (before !== undefined && isFinished(before)) return { do: "show", status: restamped(facts, before) };
  const refusal = refusalOf(facts);
  if (refusal !== undefined) return { do: "show", status: notAdmitted(facts, refusal) };
  if (!spec.ok || agent?.stored == null) return { do: "nothing", why: "not admitted and not refused" };
  return { do: "admit", message: messageOf(facts, spec.value, agent.stored, agent) };
}

/** When a finished Run that asks for it is to be deleted: milliseconds from now, 0 = now; undefined: it stays. */
export function expiresIn(facts: RunFacts): number | undefined {
  const { object, mirror } = facts;
  const status = statusOf(object);
  const ttl = (object["spec"] as RunSpec | undefined)?.ttlSecondsAfterFinished;
  if (ttl === undefined || !isFinished(status)) return undefined;
  // A replay shows an outcome of long ago: its time counts from its own creation, or GitOps would create it in a loop.
  const marks = [
    status?.finishedAt ?? conditionOf(status, "Finished")?.lastTransitionTime,
    object.metadata.creationTimestamp,
  ].map((mark) => new Date(mark ?? 0).getTime());
  const now = mirror?.now ?? facts.now;
  return Math.max(Math.max(...marks) + ttl * 1_000 - now.getTime(), 0);
}
