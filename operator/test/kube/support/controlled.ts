/**
 * Controllers over the real API server and a ledger of their own, with the worker played by the test: the ledger's
 * statements are all that a worker is, seen from here.
 */
import { v7 as uuidv7 } from "uuid";
import type { RunStatus } from "@pawl/crds";
import type { ControllerConfig } from "#controllers/config.ts";
import { type Controllers, startControllers } from "#controllers/start.ts";
import type { KubeClient } from "#kube/client.ts";
import { AGENTS, type KubeObject, RUNS } from "#kube/resources.ts";
import { recordRefs } from "#ledger/agents.ts";
import { Database } from "#ledger/database.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { finishTurn } from "#ledger/turns.ts";
import { type Postgres, sharedPostgres } from "../../support/postgres.ts";
import { aCall, cross, respond } from "../../support/world.ts";
import { type Cluster, cluster, eventually, makeNamespace } from "./cluster.ts";

const WRITES = new Set(["create", "apply", "applyStatus", "mergeStatus", "merge", "delete"]);
const CODE = 1_000;

export type Write = { readonly verb: string; readonly plural: string; readonly name: string };
export type Tap = {
  readonly kube: KubeClient;
  /** Writes that were sent, in order. */
  readonly writes: Write[];
};

/** A client that records its writes; `after` is called when one has been answered and may throw in its place. */
export function tap(inner: KubeClient, after: (write: Write, count: number) => void = () => {}): Tap {
  const writes: Write[] = [];
  const kube = new Proxy(inner, {
    get(target, property) {
      const value = Reflect.get(target, property, target) as unknown;
      if (typeof value !== "function") return value;
      const method = value.bind(target) as (...args: unknown[]) => Promise<unknown>;
      if (!WRITES.has(String(property))) return method;
      return async (...args: unknown[]) => {
        const [of, ref] = args as [{ plural: string }, { name?: string; metadata?: { name: string } }];
        const write = { verb: String(property), plural: of.plural, name: ref.name ?? ref.metadata?.name ?? "" };
        writes.push(write);
        const result = await method(...args);
        after(write, writes.length);
        return result;
      };
    },
  });
  return { kube, writes };
}

export type Logged = { readonly level: string; readonly message: string; readonly fields: Record<string, unknown> };

export function recordingLog(lines: Logged[]) {
  const at = (level: string) => (fields: Readonly<Record<string, unknown>>, message: string) => {
    lines.push({ level, message, fields: { ...fields } });
  };
  return { info: at("info"), warn: at("warn"), error: at("error") };
}

type Running = Controllers & { stop(): Promise<void>; readonly lines: Logged[] };

/** One namespace, one ledger, any number of controllers. */
export class Controlled {
  readonly cluster: Cluster;
  readonly namespace: string;
  readonly postgres: Postgres;
  readonly url: string;
  readonly db: Database;
  readonly #running = new Set<Running>();

  private constructor(on: Cluster, namespace: string, postgres: Postgres, url: string) {
    this.cluster = on;
    this.namespace = namespace;
    this.postgres = postgres;
    this.url = url;
    this.db = new Database({ url });
  }

  static async make(options: { namespace?: string } = {}): Promise<Controlled> {
    const [on, postgres] = await Promise.all([cluster(), sharedPostgres()]);
    const namespace = options.namespace ?? (await makeNamespace(`controllers-${uuidv7().slice(-12)}`));
    return new Controlled(on, namespace, postgres, await postgres.create());
  }

  config(changes: Partial<ControllerConfig> = {}): ControllerConfig {
    return {
      agentNamespaces: [this.namespace],
      defaults: {
        models: { primary: { baseURL: "http://model.test/v1", model: "small" } },
        // The window is not what these tests are about.
        interrupt: { whoInterrupts: "SameActorOnly", coalesceWindow: "0s" },
      },
      instance: "pawl-controller-test",
      ...changes,
      timing: { pollMs: 30, sweepMs: 3_600_000, leaderMs: 2_000, ...changes.timing },
    };
  }

  async start(
    options: { kube?: KubeClient; db?: Database; config?: Partial<ControllerConfig> } = {},
  ): Promise<Running> {
    const stop = new AbortController();
    const lines: Logged[] = [];
    const controllers = await startControllers({
      kube: options.kube ?? this.cluster.admin,
      db: options.db ?? this.db,
      config: this.config(options.config),
      log: recordingLog(lines),
      signal: stop.signal,
    });
    const running: Running = {
      ...controllers,
      lines,
      stop: async () => {
        stop.abort();
        await controllers.stopped;
        this.#running.delete(running);
      },
    };
    this.#running.add(running);
    return running;
  }

  async stopAll(): Promise<void> {
    await Promise.all([...this.#running].map((running) => running.stop()));
  }

  /** What stands in the namespace goes, so that later files have nothing of it in their watches. */
  async close(): Promise<void> {
    await this.stopAll();
    const { admin } = this.cluster;
    const { namespace } = this;
    for (const kind of [RUNS, AGENTS]) {
      for (const { metadata } of await admin.list(kind, { namespace }))
        await admin.delete(kind, { namespace, name: metadata.name }, {});
    }
    await this.db.close();
  }

  agent(name: string, spec: Record<string, unknown> = {}): Promise<KubeObject> {
    const metadata = { namespace: this.namespace, name };
    return this.cluster.admin.apply(AGENTS, { metadata, spec: { instructions: "Be brief.", ...spec } });
  }

  run(name: string, spec: Record<string, unknown> = {}): Promise<KubeObject> {
    const metadata = { namespace: this.namespace, name };
    const whole = { agentRef: { name: "helper" }, input: { text: "What is a pawl?", actor: "admin" }, ...spec };
    return this.cluster.admin.create(RUNS, { metadata, spec: whole });
  }

  async get(name: string): Promise<KubeObject | undefined> {
    const got = await this.cluster.admin.get(RUNS, { namespace: this.namespace, name });
    return got.found ? got.object : undefined;
  }

  async deleteRun(name: string): Promise<void> {
    await this.cluster.admin.delete(RUNS, { namespace: this.namespace, name }, {});
  }

  async deleteAgent(name: string): Promise<void> {
    await this.cluster.admin.delete(AGENTS, { namespace: this.namespace, name }, {});
  }

  /** Waits until a Run's status is as wanted. */
  async shows(name: string, what: string, wanted: (status: RunStatus) => boolean): Promise<RunStatus> {
    let last: unknown;
    return eventually(`${name}: ${what}`, async () => {
      const status = (await this.get(name))?.["status"] as RunStatus | undefined;
      last = status;
      return status !== undefined && wanted(status) ? status : undefined;
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}; last seen: ${JSON.stringify(last)}`);
    });
  }

  async agentShows(name: string, type: string, status: string, reason?: string) {
    let last: unknown;
    return eventually(`agent ${name}: ${type}=${status}`, async () => {
      const got = await this.cluster.admin.get(AGENTS, { namespace: this.namespace, name });
      const object = got.found ? got.object : undefined;
      const seen = (object?.["status"] ?? {}) as {
        conditions?: { type: string; status: string; reason: string; message: string }[];
      };
      last = seen;
      const found = seen.conditions?.find((condition) => condition.type === type);
      return found?.status === status && (reason === undefined || found.reason === reason)
        ? { condition: found, object: object as KubeObject }
        : undefined;
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}; last seen: ${JSON.stringify(last)}`);
    });
  }

  /** A worker found every reference of every agent. */
  async refsFound(reason: string | null = null, message: string | null = null): Promise<void> {
    const { rows } = await this.sql("select id, generation from agents");
    for (const { id, generation } of rows as { id: string; generation: string }[])
      await recordRefs(this.db, { id, generation: Number(generation), reason, message });
  }

  sql(text: string) {
    return this.postgres.admin(text, new URL(this.url).pathname.slice(1));
  }

  async messages(): Promise<number> {
    const { rows } = await this.sql("select count(*)::int as n from message_events where kind = 'message'");
    return (rows[0] as { n: number }).n;
  }

  /** Takes the next due run, as a worker would. */
  claim(): Promise<{ runId: string; token: number }> {
    return eventually("a due run", async () => (await claimRun(this.db, "worker", 60_000, CODE)) ?? undefined);
  }

  /** One effect on the world, recorded and confirmed. */
  async effect(run: { runId: string; token: number }, ordinal = 1): Promise<void> {
    const call = aCall();
    await respond(this.db, run, [call], { ordinal, seenSeq: 1_000 });
    await cross(this.db, run, call, { seenSeq: 1_000 });
  }

  /** The last response, its reply and the end of the turn. */
  async answer(run: { runId: string; token: number }, text: string, ordinal = 1): Promise<void> {
    const call = aCall({ tool: "reply", class: "reply", kind: "reply", args: { text }, target: null });
    await respond(this.db, run, [call], { ordinal, seenSeq: 1_000 });
    const receipt = { delivered: "row" };
    await cross(this.db, run, call, { seenSeq: 1_000, receipt, target: "reply" });
    await this.end(run, "succeeded", null, null);
  }

  async end(
    run: { runId: string; token: number },
    status: "succeeded" | "failed" | "cancelled" | "budget_exhausted",
    reason: string | null,
    message: string | null,
  ): Promise<void> {
    const { rows } = await this.sql(`select conversation_id from runs where id = '${run.runId}'`);
    await finishTurn(this.db, {
      conversationId: (rows[0] as { conversation_id: string }).conversation_id,
      runId: run.runId,
      token: run.token,
      nonce: uuidv7(),
      status,
      seenSeq: 1_000,
      reason,
      message,
    });
  }

  async broken(): Promise<unknown[]> {
    return checkInvariants(this.db);
  }
}

export const conditionOf = (status: RunStatus, type: string) =>
  status.conditions?.find((condition) => condition.type === type);
export const isFinished = (status: RunStatus): boolean => conditionOf(status, "Finished")?.status === "True";
