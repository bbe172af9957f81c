// Manifests into the ledger, as the controllers would do it if there were a cluster: the same checks, the same functions.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { checkRun } from "@pawl/crds";
import { v7 as uuidv7 } from "uuid";
import { parseAllDocuments } from "yaml";
import { accept } from "../../operator/src/controllers/agent/decide.ts";
import { connectorOf, conversationKey, idempotencyKey, specHash } from "../../operator/src/controllers/run/key.ts";
import type { KubeObject } from "../../operator/src/kube/resources.ts";
import { type AgentRecord, recordAgent } from "../../operator/src/ledger/agents.ts";
import { Database } from "../../operator/src/ledger/database.ts";
import { ingest } from "../../operator/src/ledger/mailbox.ts";
import { type Mirror, readMirror } from "../../operator/src/ledger/mirrors.ts";
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
  readonly #agents = new Map<string, AgentRecord>();

  constructor(url: string, modelUrl: string) {
    this.url = url;
    this.#db = new Database({ url, max: 2, name: "pawl-try" });
    this.#modelUrl = modelUrl;
  }

  /** As `kubectl apply` of an Agent, with the model as the install's default. */
  async applyAgent(manifest: KubeObject): Promise<void> {
    const { name } = manifest.metadata;
    const models = { primary: { baseURL: `${this.#modelUrl}/v1`, model: "scripted" } };
    const accepted = accept(manifest, { agentNamespaces: "*", defaults: { models }, instance: "try" });
    if (!accepted.accepted) throw new UserError(`Agent ${name} is not accepted: ${accepted.verdict.message}`);
    const { spec, specHash, suspended } = accepted;
    const agent = { namespaceUid: NAMESPACE_UID, namespace: NAMESPACE, name, spec, specHash, suspended };
    this.#agents.set(name, await recordAgent(this.#db, agent));
  }

  /** As `kubectl apply` of a Run. Returns the id of the turn that it opened. */
  async applyRun(manifest: KubeObject): Promise<string> {
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
    const ingested = await ingest(this.#db, {
      agentId: agent.id,
      generation: agent.generation,
      connector: connectorOf(NAMESPACE),
      conversationKey: conversationKey(spec, key),
      actor: { connector: "kubernetes", extId: spec.input?.actor ?? "" },
      extId: uid,
      orderKey: `${new Date().toISOString()}/${name}`,
      text: spec.input?.text ?? "",
      applied: { namespaceUid: NAMESPACE_UID, key, specHash: specHash(spec), objectUid: uid, objectName: name },
    });
    if (!("runId" in ingested)) throw new Error(`the message became ${ingested.kind}`);
    return ingested.runId;
  }

  /** What the Run's status would show. */
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
