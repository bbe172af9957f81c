// Manifests into the ledger, as the controllers would do it if there were a cluster: the same checks, the same functions.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { checkRun, type RunStatus } from "@pawl/crds";
import { v7 as uuidv7 } from "uuid";
import { parseAllDocuments } from "yaml";
import { accept } from "../../operator/src/controllers/agent/decide.ts";
import { decided, type Outcome } from "../../operator/src/controllers/decision/decide.ts";
import { windowOf } from "../../operator/src/controllers/run/decide.ts";
import { downgradeOf } from "../../operator/src/controllers/run/joined.ts";
import { connectorOf, conversationKey, idempotencyKey, specHash } from "../../operator/src/controllers/run/key.ts";
import { project } from "../../operator/src/controllers/run/project.ts";
import type { KubeObject } from "../../operator/src/kube/resources.ts";
import { type AgentRecord, recordAgent } from "../../operator/src/ledger/agents.ts";
import { decideApproval } from "../../operator/src/ledger/approvals.ts";
import { Database } from "../../operator/src/ledger/database.ts";
import { ingest, type Ingested } from "../../operator/src/ledger/mailbox.ts";
import { type Mirror, readMirror } from "../../operator/src/ledger/mirrors.ts";
import { type Policy, policyOf } from "../../operator/src/rules/interrupt.ts";
import { isStopWord } from "../../operator/src/rules/stop-words.ts";
import { UserError } from "../lib/say.ts";

export const NAMESPACE = "try";
const NAMESPACE_UID = "there-is-no-cluster-here";

/** The documents of one file under `manifests/`. */
export function manifests(file: string): KubeObject[] {
  const text = readFileSync(join(import.meta.dirname, "manifests", file), "utf8");
  return parseAllDocuments(text).map((document) => document.toJS() as KubeObject);
}

export class Ledger {
  readonly url: string;
  readonly #db: Database;
  readonly #modelUrl: string;
  readonly #agents = new Map<string, AgentRecord & { policy: Policy; askable: boolean }>();

  constructor(url: string, modelUrl: string) {
    this.url = url;
    this.#db = new Database({ url, max: 2, name: "pawl-try" });
    this.#modelUrl = modelUrl;
  }

  /** As `kubectl apply` of an Agent, with the model as the install's default. */
  async applyAgent(manifest: KubeObject): Promise<void> {
    const { name } = manifest.metadata;
    const model = { baseURL: `${this.#modelUrl}/v1`, model: "scripted" };
    const models = { primary: model, fast: model };
    const accepted = accept(manifest, { agentNamespaces: "*", defaults: { models }, instance: "try" });
    if (!accepted.accepted) throw new UserError(`Agent ${name} is not accepted: ${accepted.verdict.message}`);
    const { spec, specHash, suspended, askable } = accepted;
    const agent = { namespaceUid: NAMESPACE_UID, namespace: NAMESPACE, name, spec, specHash, suspended };
    this.#agents.set(name, { ...(await recordAgent(this.#db, agent)), policy: policyOf(spec), askable });
  }

  /** As `kubectl apply` of a Run. Returns the id of the turn that it opened. */
  async applyRun(manifest: KubeObject): Promise<string> {
    const ingested = await this.say(manifest);
    if (!("runId" in ingested)) throw new Error(`the message became ${ingested.kind}`);
    return ingested.runId;
  }

  /** The same for a Run whose conversation may be at work. */
  async say(manifest: KubeObject): Promise<Ingested> {
    const checked = checkRun(manifest);
    const { name } = manifest.metadata;
    if (!checked.ok) {
      const problems = checked.problems.map(({ path, message }) => `${path}: ${message}`).join("; ");
      throw new UserError(`Run ${name} is not valid: ${problems}`);
    }
    const spec = checked.value;
    const agent = this.#agents.get(spec.agentRef.name);
    if (agent === undefined) throw new UserError(`Run ${name} names an Agent that is not there: ${spec.agentRef.name}`);
    const [key, uid] = [idempotencyKey(manifest.metadata, spec), uuidv7()];
    const text = spec.input?.text ?? "";
    return ingest(this.#db, {
      agentId: agent.id,
      generation: agent.generation,
      connector: connectorOf(NAMESPACE),
      conversationKey: conversationKey(spec, key),
      actor: { connector: "kubernetes", extId: spec.input?.actor ?? "" },
      extId: uid,
      orderKey: `${new Date().toISOString()}/${name}`,
      text,
      policy: windowOf(spec, agent.policy),
      askable: agent.askable,
      stops: isStopWord(text),
      applied: { namespaceUid: NAMESPACE_UID, key, specHash: specHash(spec), objectUid: uid, objectName: name },
    });
  }

  /** What is told to somebody whose message got less than its agent's settings ask for; null: nothing, or not yet. */
  async downgrade(manifest: KubeObject): Promise<string | null> {
    return downgradeOf(await this.mirror(manifest));
  }

  /** As a Decision of this person about what the Run waits for. */
  async approve(manifest: KubeObject, actor: string): Promise<Outcome> {
    const { waiting, object_name: name } = await this.mirror(manifest);
    const { request, hash } = waiting as { request: string; hash: string };
    const subject = { namespaceUid: NAMESPACE_UID, name };
    const by = { connector: "kubernetes", extId: actor, groups: [] };
    const said = { request, decision: uuidv7(), subject, actor: by, approve: true, hash, reason: null };
    return decided(await decideApproval(this.#db, said));
  }

  /** The status that the controllers would write. */
  async status(manifest: KubeObject): Promise<RunStatus> {
    return project({
      mirror: await this.mirror(manifest),
      generation: 1,
      actor: "",
      before: undefined,
      install: { kubeSystemUid: NAMESPACE_UID, bornAt: new Date(0), epoch: 1 },
      previews: true,
      transcript: "pawl transcript",
      maxRuns: 0,
      now: new Date(),
    }).status;
  }

  /** What the Run's status is made of. */
  async mirror(manifest: KubeObject): Promise<Mirror> {
    const key = idempotencyKey(manifest.metadata, {});
    const mirror = await readMirror(this.#db, NAMESPACE_UID, key);
    if (mirror === null) throw new Error(`the ledger has no ${key}`);
    return mirror;
  }

  async close(): Promise<void> {
    await this.#db.close();
  }
}
