/** Carries out what was decided about an Agent: its row, its status; and what its going away means for its turns. */
import { AGENT_CONDITIONS, type AgentStatus } from "@pawl/crds";
import { AGENTS, type KubeObject, refOf } from "#kube/resources.ts";
import type { Outcome } from "#kube/queue.ts";
import { recordAgent, suspendAgent } from "#ledger/agents.ts";
import { listLiveMessagesOfAgent } from "#ledger/mirrors.ts";
import { requestStop } from "#ledger/turns.ts";
import { isPawlError } from "#rules/errors.ts";
import { type Context, OwnWrites } from "../context.ts";
import { changeOf, Pace } from "../status.ts";
import { type Accepted, accept, agentStatusOf } from "./decide.ts";
import { observeAgent, rowsOf } from "./observe.ts";

const MAX_ROUNDS = 4;
const CONTROLLER = { connector: "pawl", extId: "controller" } as const;

export class AgentController {
  readonly #context: Context;
  readonly #own = new OwnWrites();
  readonly #pace: Pace;
  readonly #wake: (run: string) => void;
  /** Keys whose DELETE was watched, until the name is back. */
  readonly #gone = new Set<string>();
  /** Objects whose namespace was asked for by itself, not taken from memory. */
  readonly #seen = new Set<string>();

  /** `wake`: a Run to be looked at, because its message was taken back. */
  constructor(context: Context, wake: (run: string) => void) {
    this.#context = context;
    this.#wake = wake;
    this.#pace = new Pace(context.clock, context.timing.quietMs);
  }

  watchedDelete(key: string, uid: string): void {
    this.#gone.add(key);
    this.#seen.delete(uid);
  }

  async reconcile(key: string, signal?: AbortSignal): Promise<Outcome> {
    let object = this.#own.pick(key, this.#context.agents.get(key));
    if (object === undefined) {
      this.#pace.forget(key);
      await this.#leave(key, signal);
      return undefined;
    }
    this.#gone.delete(key);
    for (let round = 0; round < MAX_ROUNDS && object !== undefined; round += 1) {
      const status = await this.#decide(object, signal);
      if (status === undefined) return undefined;
      const wait = this.#pace.wait(key, changeOf(object["status"] as AgentStatus | undefined, status));
      if (wait === undefined) return undefined;
      if (wait > 0) return { requeueAfterMs: wait };
      if (await this.#write(key, object, status, signal)) return undefined;
      object = await this.#read(key, signal);
    }
    return object === undefined ? undefined : { requeueAfterMs: 1_000 };
  }

  /** Stores an accepted Agent, then says what it is. Undefined: its namespace is gone, and so is it. */
  async #decide(object: KubeObject, signal: AbortSignal | undefined): Promise<AgentStatus | undefined> {
    const { config, install, now } = this.#context;
    const { name, namespace = "", uid = "" } = object.metadata;
    const fresh = !this.#seen.has(uid);
    const namespaceUid = await this.#context.namespaces.uid(namespace, {
      fresh,
      ...(signal === undefined ? {} : { signal }),
    });
    if (namespaceUid === null) return undefined;
    this.#seen.add(uid);
    const accepted = accept(object, config);
    if (accepted.accepted) await this.#record(accepted, { namespaceUid, namespace, name });
    return agentStatusOf(object, accepted, await observeAgent(this.#context, namespaceUid, name), install, now());
  }

  async #record(
    accepted: Extract<Accepted, { accepted: true }>,
    agent: { namespaceUid: string; namespace: string; name: string },
  ): Promise<void> {
    const { spec, specHash, suspended } = accepted;
    await recordAgent(this.#context.db, { ...agent, spec, specHash, suspended });
  }

  /** False: somebody wrote first. */
  async #write(key: string, object: KubeObject, status: AgentStatus, signal: AbortSignal | undefined) {
    const { kube, events, metrics } = this.#context;
    const fence = { resourceVersion: object.metadata.resourceVersion ?? "" };
    try {
      const options = signal === undefined ? {} : { signal };
      this.#own.remember(key, await kube.applyStatus(AGENTS, refOf(key), fence, status, options));
    } catch (error) {
      if (isPawlError(error, "conflict")) return false;
      throw error;
    }
    this.#pace.wrote(key);
    metrics?.statusWritten("Agent");
    const note = announcement(object["status"] as AgentStatus | undefined, status);
    if (note !== undefined) events.record({ about: { resource: AGENTS, object }, action: "Reconcile", ...note });
    return true;
  }

  async #read(key: string, signal: AbortSignal | undefined): Promise<KubeObject | undefined> {
    const got = await this.#context.kube.get(AGENTS, refOf(key), signal === undefined ? {} : { signal });
    return got.found ? got.object : undefined;
  }

  /** Its DELETE was watched and one GET agrees: nothing new starts, and what is open ends, newest first. */
  async #leave(key: string, signal: AbortSignal | undefined): Promise<void> {
    if (!this.#gone.has(key)) return;
    const { db, kube, log } = this.#context;
    const { name, namespace = "" } = refOf(key);
    const got = await kube.get(AGENTS, { namespace, name }, signal === undefined ? {} : { signal });
    if (got.found || got.missing !== "object") return;
    for (const row of await rowsOf(this.#context, namespace, name)) {
      if (!row.suspended) await suspendAgent(db, row);
      const open = (await listLiveMessagesOfAgent(db, row)).filter(({ stopping }) => !stopping);
      for (const message of open) {
        const extId = `agent-deleted:${message.eventId}`;
        await requestStop(db, { eventId: message.eventId, extId, actor: CONTROLLER, why: "its Agent was deleted" });
        if (message.object !== null) this.#wake(`${namespace}/${message.object.name}`);
      }
      if (!row.suspended) log.info({ agent: key, stopped: open.length }, "agent deleted");
    }
  }
}

/** One Event when readiness changes its mind. */
function announcement(before: AgentStatus | undefined, after: AgentStatus) {
  const ready = (status: AgentStatus | undefined) => status?.conditions?.find(({ type }) => type === READY);
  const [was, is] = [ready(before), ready(after)];
  if (is === undefined || is.status === "Unknown" || (was?.status === is.status && was.reason === is.reason)) {
    return undefined;
  }
  const type = is.status === "True" || is.reason === "Suspended" ? ("Normal" as const) : ("Warning" as const);
  return { type, reason: is.reason, note: is.message };
}
const READY = AGENT_CONDITIONS[3];
