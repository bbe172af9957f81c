/** Carries out what was decided about an Agent: its row, its status; and what its going away means for its turns. */
import { AGENT_CONDITIONS, type AgentStatus } from "@pawl/crds";
import { AGENTS, type KubeObject, refOf } from "#kube/resources.ts";
import type { Outcome } from "#kube/queue.ts";
import { recordAgent } from "#ledger/agents.ts";
import { isPawlError } from "#rules/errors.ts";
import { isEnabled } from "../config.ts";
import { type Context, OwnWrites } from "../context.ts";
import { installationId } from "../identity.ts";
import { changeOf, Pace } from "../status.ts";
import { type Accepted, accept, agentStatusOf, askingStatusOf } from "./decide.ts";
import { leaveAgent, lookForAgent } from "./departure.ts";
import { holderOf, holdOf } from "./hold.ts";
import { observeAgent, rowsOf } from "./observe.ts";

const MAX_ROUNDS = 4;
/** An installation that was told that another one serves an Agent asks again after this. */
const REFUSED_MS = 600_000;
type Decided = { readonly status?: AgentStatus; readonly outcome?: Outcome };

export class AgentController {
  readonly #context: Context;
  readonly #own = new OwnWrites();
  readonly #pace: Pace;
  readonly #wake: (run: string) => void;
  /** Keys whose DELETE was watched, until the name is back. */
  readonly #gone = new Set<string>();
  /** Objects whose namespace was asked for by itself, not taken from memory. */
  readonly #seen = new Set<string>();
  /** When this process asked whether another installation lives, and until when it was answered, by UID. */
  readonly #asked = new Map<string, number>();
  readonly #refusedUntil = new Map<string, number>();

  /** `wake`: a Run to be looked at, because its message was taken back. */
  constructor(context: Context, wake: (run: string) => void) {
    this.#context = context;
    this.#wake = wake;
    this.#pace = new Pace(context.clock, context.timing.quietMs);
  }

  watchedDelete(key: string, uid: string): void {
    this.#gone.add(key);
    this.#seen.delete(uid);
    this.#asked.delete(uid);
    this.#refusedUntil.delete(uid);
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
      const { status, outcome } = await this.#decide(object, signal);
      if (status === undefined) return outcome;
      const wait = this.#pace.wait(key, changeOf(object["status"] as AgentStatus | undefined, status));
      if (wait === undefined) return outcome;
      if (wait > 0) return { requeueAfterMs: wait };
      if (await this.#write(key, object, status, signal)) return outcome;
      object = await this.#read(key, signal);
    }
    return object === undefined ? undefined : { requeueAfterMs: 1_000 };
  }

  /** What its status should say, or nothing: its namespace is gone and so is it, or another install serves it. */
  async #decide(object: KubeObject, signal: AbortSignal | undefined): Promise<Decided> {
    const { config, install, now } = this.#context;
    const { name, namespace = "", uid = "" } = object.metadata;
    const fresh = !this.#seen.has(uid);
    const options = signal === undefined ? { fresh } : { fresh, signal };
    const namespaceUid = await this.#context.namespaces.uid(namespace, options);
    if (namespaceUid === null) return {};
    this.#seen.add(uid);
    const known = await observeAgent(this.#context, namespaceUid, name);
    if (!isEnabled(config, namespace) && this.#holder(object) === "other") return {};
    if (isEnabled(config, namespace)) {
      const held = this.#hold(object, known !== null);
      if (held !== undefined) return held;
    }
    const accepted = accept(object, config);
    if (accepted.accepted) await this.#record(accepted, { namespaceUid, namespace, name });
    const facts = accepted.accepted ? await observeAgent(this.#context, namespaceUid, name) : known;
    return { status: agentStatusOf(object, accepted, facts, install, now()) };
  }

  #holder(object: KubeObject) {
    return holderOf(object["status"] as AgentStatus | undefined, installationId(this.#context.install));
  }

  /** Undefined: it is ours to serve. */
  #hold(object: KubeObject, known: boolean): Decided | undefined {
    const { clock, timing, install, log, now } = this.#context;
    const { uid = "", namespace = "", name } = object.metadata;
    const status = object["status"] as AgentStatus | undefined;
    const ours = installationId(install);
    const asked = this.#asked.get(uid);
    const hold = holdOf(
      {
        status,
        ours,
        known,
        askedForMs: asked === undefined ? null : clock.monotonic() - asked,
        refused: (this.#refusedUntil.get(uid) ?? 0) > clock.monotonic(),
      },
      timing.takeoverMs,
    );
    const agent = `${namespace}/${name}`;
    switch (hold.do) {
      case "serve":
        this.#asked.delete(uid);
        return undefined;
      case "ask":
        log.warn({ agent, holder: status?.installation }, "another installation has served this agent; asking");
        this.#asked.set(uid, clock.monotonic());
        return { status: askingStatusOf(object, install, now()), outcome: { requeueAfterMs: timing.takeoverMs } };
      case "wait":
        // A question of a process before this one: its time begins anew.
        if (asked === undefined) this.#asked.set(uid, clock.monotonic());
        return { outcome: { requeueAfterMs: hold.ms } };
      case "give up":
        log.error(
          { agent, holder: status?.installation },
          "another installation serves this agent; give each its own agentNamespaces",
        );
        this.#asked.delete(uid);
        this.#refusedUntil.set(uid, clock.monotonic() + REFUSED_MS);
        return { outcome: { requeueAfterMs: REFUSED_MS } };
      case "leave":
        this.#asked.delete(uid);
        return { outcome: { requeueAfterMs: 2 * timing.takeoverMs } };
      default:
        hold satisfies never;
        return undefined;
    }
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

  /** Its DELETE was watched and one GET agrees. */
  async #leave(key: string, signal: AbortSignal | undefined): Promise<void> {
    if (!this.#gone.has(key)) return;
    const { name, namespace = "" } = refOf(key);
    if ((await lookForAgent(this.#context, { namespace, name }, signal)) !== "absent") return;
    for (const row of await rowsOf(this.#context, namespace, name)) await leaveAgent(this.#context, row, this.#wake);
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
