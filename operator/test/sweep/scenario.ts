/**
 * The sweep's scenario: a run with two model calls, one quick call and one external write, on a ledger of its own,
 * against fakes that are processes and write down every request they accepted.
 */
import { v7 as uuidv7 } from "uuid";
import { type Fake, startFake } from "@pawl/fakes";
import { recordAgent } from "#ledger/agents.ts";
import { Database } from "#ledger/database.ts";
import { ingest } from "#ledger/mailbox.ts";
import type { Postgres } from "../support/postgres.ts";

/** Short versions of the product's times, so that a whole recovery fits in seconds. Milliseconds. */
export const TIMES = { lease: 1_500, renew: 400, send: 1_200, httpTimeout: 800, settleSlack: 200, poll: 50 } as const;
export const SETTLE_MS = TIMES.send + TIMES.httpTimeout + TIMES.settleSlack;

export const SCRIPTS = {
  scripts: {
    sweep: {
      steps: [
        {
          calls: [
            { name: "calculate", arguments: { expression: "6*7" } },
            {
              name: "http_request",
              arguments: { method: "POST", url: "{{url}}", body: '{"text":"the answer is 42"}' },
            },
          ],
        },
        { text: "I wrote the note." },
      ],
    },
  },
} as const;

export type World = { readonly model: Fake; readonly world: Fake; stop(): Promise<void> };

export async function startWorld(): Promise<World> {
  const [model, world] = await Promise.all([startFake("model"), startFake("world")]);
  await model.control("PUT", "/script", SCRIPTS);
  return {
    model,
    world,
    stop: async () => {
      await Promise.all([model.stop(), world.stop()]);
    },
  };
}

export type Case = {
  readonly id: string;
  readonly url: string;
  readonly db: Database;
  readonly runId: string;
  readonly notes: string;
  [Symbol.asyncDispose](): Promise<void>;
};

/** A ledger with one message in it; every request of its run carries the case's id in its URL. `first`: before the message. */
export async function startCase(
  postgres: Postgres,
  fakes: World,
  first: (url: string, notes: string) => Promise<void> = () => Promise.resolve(),
): Promise<Case> {
  const id = uuidv7();
  const url = await postgres.create();
  const db = new Database({ url, max: 2 });
  const agent = await recordAgent(db, {
    namespaceUid: "ns",
    namespace: "demo",
    name: "sweeper",
    spec: {
      instructions: "Do as you are told.",
      models: { primary: { baseURL: `${fakes.model.url}/v1`, model: "scripted" } },
      tools: {
        builtin: ["calculate", "http_request"],
        effects: [{ tool: "http_request", key: "Idempotency-Key" }],
      },
    },
    specHash: "1",
    suspended: false,
  });
  const notes = `/keyed/${id}`;
  await first(url, notes);
  const ingested = await ingest(db, {
    agentId: agent.id,
    generation: agent.generation,
    connector: "kubernetes/demo",
    conversationKey: id,
    actor: { connector: "kubernetes", extId: "alice" },
    extId: id,
    orderKey: "1",
    text: `script:sweep url=${fakes.world.url}${notes}`,
  });
  if (!("runId" in ingested)) throw new Error(`the message became ${ingested.kind}`);
  return {
    id,
    url,
    db,
    runId: ingested.runId,
    notes,
    [Symbol.asyncDispose]: () => db.close(),
  };
}
