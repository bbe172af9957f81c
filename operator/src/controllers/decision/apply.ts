/**
 * Carries a Decision to the ledger, once, and says what became of it. Doing it again does nothing new: the ledger knows
 * each Decision by its UID. The object goes with its Run, or a day after it was looked at.
 */
import { API_VERSION, type DecisionSpec } from "@pawl/crds";
import type { Outcome as Requeue } from "#kube/queue.ts";
import { DECISIONS, type KubeObject, refOf, RUNS } from "#kube/resources.ts";
import { decideApproval } from "#ledger/approvals.ts";
import { resolveEffect } from "#ledger/effects.ts";
import { isEffectOf } from "#ledger/journal.ts";
import { answerQuestion } from "#ledger/questions.ts";
import { isPawlError } from "#rules/errors.ts";
import { type Context, OwnWrites } from "../context.ts";
import {
  answered,
  decided,
  decideDecision,
  type DecisionFacts,
  type Outcome,
  type Settling,
  settled,
  statusFor,
} from "./decide.ts";
import { observeDecision } from "./observe.ts";

const MAX_ROUNDS = 4;
/** Somebody writes this object all the time; look again without hurry. */
const BUSY_MS = 1_000;

export class DecisionController {
  readonly #context: Context;
  readonly #own = new OwnWrites();
  readonly #wake: (run: string) => void;

  /** `wake`: a Run whose row was changed. */
  constructor(context: Context, wake: (run: string) => void) {
    this.#context = context;
    this.#wake = wake;
  }

  async reconcile(key: string, signal?: AbortSignal): Promise<Requeue> {
    let object = this.#own.pick(key, this.#context.decisions.get(key));
    for (let round = 0; round < MAX_ROUNDS && object !== undefined; round += 1) {
      const facts = await observeDecision(this.#context, object, signal);
      if (facts === null) return undefined;
      try {
        return await this.#step(key, facts, signal);
      } catch (error) {
        if (!isPawlError(error, "conflict")) throw error;
      }
      object = await this.#read(key, signal);
    }
    return object === undefined ? undefined : { requeueAfterMs: BUSY_MS };
  }

  /** Throws conflict when the object changed meanwhile. */
  async #step(key: string, facts: DecisionFacts, signal: AbortSignal | undefined): Promise<Requeue> {
    const action = decideDecision(facts);
    switch (action.do) {
      case "nothing":
        return undefined;
      case "keep":
        await this.#adopt(key, facts.object, facts.run, signal);
        if (action.leftMs > 0) return { requeueAfterMs: action.leftMs };
        await this.#delete(key, facts.object, signal);
        return undefined;
      case "say":
        return await this.#say(key, facts, action.outcome, signal);
      case "decide": {
        const answer = await decideApproval(this.#context.db, action.verdict);
        return await this.#say(key, facts, decided(answer), signal);
      }
      case "answer": {
        const answer = await answerQuestion(this.#context.db, action.answer);
        return await this.#say(key, facts, answered(answer), signal);
      }
      case "settle":
        return await this.#say(key, facts, await this.#settle(action.settling), signal);
    }
  }

  async #settle({ namespaceUid, run, ...resolution }: Settling): Promise<Outcome> {
    const known = await isEffectOf(this.#context.db, { effectId: resolution.effectId, namespaceUid, run });
    const answer = known ? await resolveEffect(this.#context.db, resolution) : ({ kind: "unknown_effect" } as const);
    return settled(answer, resolution.by, resolution.landed);
  }

  /** The status, an Event on the Run for what counts, and the Run as its owner. */
  async #say(key: string, facts: DecisionFacts, outcome: Outcome, signal: AbortSignal | undefined): Promise<Requeue> {
    const { kube, log, metrics, events } = this.#context;
    const { object, run, now } = facts;
    const fence = { resourceVersion: object.metadata.resourceVersion ?? "" };
    const options = signal === undefined ? {} : { signal };
    const written = await kube.applyStatus(DECISIONS, refOf(key), fence, statusFor(outcome, now), options);
    this.#own.remember(key, written);
    metrics?.statusWritten("Decision");
    const { actor = "", request } = object["spec"] as DecisionSpec;
    log.info({ decision: key, actor, request, ...outcome }, "a decision was looked at");
    if (run !== undefined) {
      const note = `${actor}: ${outcome.message} (request ${request})`;
      const reason = outcome.state === "Applied" ? outcome.reason : `Decision${outcome.state}`;
      const type = outcome.state === "Applied" ? "Normal" : "Warning";
      events.record({ about: { resource: RUNS, object: run }, type, reason, action: "Decide", note });
      this.#wake(`${run.metadata.namespace ?? ""}/${run.metadata.name}`);
    }
    await this.#adopt(key, written, run, signal);
    return undefined;
  }

  /** So that it goes with the Run that it speaks of. */
  async #adopt(
    key: string,
    object: KubeObject,
    run: KubeObject | undefined,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (run?.metadata.uid === undefined) return;
    const owners = (object.metadata["ownerReferences"] ?? []) as readonly { uid?: string }[];
    if (owners.some(({ uid }) => uid === run.metadata.uid)) return;
    const owner = { apiVersion: API_VERSION, kind: "Run", name: run.metadata.name, uid: run.metadata.uid };
    const { resourceVersion } = object.metadata;
    const patch = { metadata: { resourceVersion, ownerReferences: [...owners, owner] } };
    const options = signal === undefined ? {} : { signal };
    this.#own.remember(key, await this.#context.kube.merge(DECISIONS, refOf(key), patch, options));
  }

  async #delete(key: string, object: KubeObject, signal: AbortSignal | undefined): Promise<void> {
    const { uid } = object.metadata;
    if (uid === undefined) return;
    await this.#context.kube.delete(DECISIONS, refOf(key), { uid }, signal === undefined ? {} : { signal });
  }

  async #read(key: string, signal: AbortSignal | undefined): Promise<KubeObject | undefined> {
    const got = await this.#context.kube.get(DECISIONS, refOf(key), signal === undefined ? {} : { signal });
    if (!got.found) return undefined;
    this.#own.remember(key, got.object);
    return got.object;
  }
}
