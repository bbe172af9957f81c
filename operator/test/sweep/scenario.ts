/**
 * A case of the sweep: one conversation of one scenario on a ledger, against fakes that are processes and write down
 * every request they accepted.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { v7 as uuidv7 } from "uuid";
import { type Fake, startFake } from "@pawl/fakes";
import { recordAgent } from "#ledger/agents.ts";
import { Database } from "#ledger/database.ts";
import { ingest, type Message } from "#ledger/mailbox.ts";
import { policyOf } from "#rules/interrupt.ts";
import { BOOK, type Scenario, scriptName } from "./scenarios.ts";

export { sleep };

/** Short versions of the product's times, so that a whole recovery fits in seconds. Milliseconds. */
export const TIMES = { lease: 1_500, renew: 400, send: 1_200, httpTimeout: 800, settleSlack: 200, poll: 50 } as const;
export const SETTLE_MS = TIMES.send + TIMES.httpTimeout + TIMES.settleSlack;

/** What a fault leaves open is over by then; a case that takes longer hangs, and says so. */
export const CASE_MS = 60_000;

export type World = { readonly model: Fake; readonly world: Fake; readonly mcp: Fake; stop(): Promise<void> };

export async function startWorld(): Promise<World> {
  const [model, world, mcp] = await Promise.all([startFake("model"), startFake("world"), startFake("mcp")]);
  await model.control("PUT", "/script", BOOK);
  return {
    model,
    world,
    mcp,
    stop: async () => {
      await Promise.all([model.stop(), world.stop(), mcp.stop()]);
    },
  };
}

/** Where ledgers come from: the shared server, or one that can be cut off. */
export type Ledgers = { create(): Promise<string> };

export type Case = {
  readonly scenario: Scenario;
  readonly id: string;
  readonly url: string;
  readonly db: Database;
  readonly agent: { readonly id: string; readonly generation: number };
  readonly runId: string;
  readonly eventId: string;
  readonly conversationId: string;
  /** Path in the world under which its writes go. */
  readonly notes: string;
  /** A turn of its conversation is alive. */
  live(): Promise<boolean>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** A small model that gives one answer to every question. */
const fast = (fakes: World, { relation }: Scenario): object =>
  relation === undefined
    ? {}
    : { fast: { baseURL: `${fakes.model.url}/v1`, model: `says:${JSON.stringify({ relation })}` } };

export function sweepAgent(
  db: Database,
  fakes: World,
  scenario: Scenario,
): Promise<{ id: string; generation: number }> {
  return recordAgent(db, {
    namespaceUid: "ns",
    namespace: "demo",
    name: `sweeper-${scenario.name}`,
    spec: {
      instructions: "Do as you are told.",
      models: { primary: { baseURL: `${fakes.model.url}/v1`, model: "scripted" }, ...fast(fakes, scenario) },
      tools: scenario.tools(fakes),
      ...(scenario.interrupt === undefined ? {} : { interrupt: scenario.interrupt }),
    },
    specHash: "1",
    suspended: false,
  });
}

type Told = Pick<Case, "scenario" | "agent" | "id" | "notes">;

function message({ scenario, agent, id, notes }: Told, fakes: World, index: number): Message {
  return {
    agentId: agent.id,
    generation: agent.generation,
    connector: "kubernetes/demo",
    conversationKey: id,
    actor: { connector: "kubernetes", extId: "alice" },
    extId: `${id}-${index + 1}`,
    orderKey: String(index + 1),
    text: `script:${scriptName(scenario, index)} url=${fakes.world.url}${notes}`,
    policy: { ...policyOf({ interrupt: scenario.interrupt }), ...(index === 0 ? { quietMs: 0 } : {}) },
    askable: scenario.relation !== undefined,
    // As an applied Run, whose name a decision about one of its calls has to give.
    ...(index > 0
      ? {}
      : { applied: { namespaceUid: "ns", key: id, specHash: "s", objectUid: `uid-${id}`, objectName: id } }),
  };
}

/** The second message of a conversation. */
export const followUp = (item: Told, fakes: World): Message => message(item, fakes, 1);

/** A conversation with one message in it; every request of its runs carries the case's id in its URL. */
export async function openCase(
  place: { readonly db: Database; readonly agent: Case["agent"]; readonly first?: (notes: string) => Promise<void> },
  fakes: World,
  scenario: Scenario,
): Promise<Case> {
  const { db, agent } = place;
  const id = uuidv7();
  const notes = `/${scenario.place}/${id}`;
  if (scenario.world !== undefined) await fakes.world.control("PUT", "/control", { ...scenario.world, path: notes });
  await place.first?.(notes);
  const ingested = await ingest(db, message({ scenario, agent, id, notes }, fakes, 0));
  if (!("runId" in ingested)) throw new Error(`the message became ${ingested.kind}`);
  const { rows } = await db.pool.query<{ id: string }>("select conversation_id as id from runs where id = $1", [
    ingested.runId,
  ]);
  const conversationId = rows[0]?.id ?? "";
  return {
    scenario,
    id,
    url: db.url,
    db,
    agent,
    runId: ingested.runId,
    eventId: ingested.eventId,
    conversationId,
    notes,
    live: () => ask(db, "select exists (select from runs where conversation_id = $1 and live) as yes", conversationId),
    [Symbol.asyncDispose]: () => db.close(),
  };
}

/** Once more while the server is away, as people and their controllers do; what is asked for must bear a repetition. */
export async function insist<T>(work: () => Promise<T>): Promise<T> {
  const until = performance.now() + CASE_MS;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (performance.now() > until) throw error;
      await sleep(100);
    }
  }
}

/** A question with yes or no for an answer. */
export const ask = (db: Database, text: string, id: string): Promise<boolean> =>
  insist(async () => (await db.pool.query<{ yes: boolean }>(text, [id])).rows[0]?.yes === true);

/** A case on a ledger of its own. `first`: before the message. */
export async function startCase(
  ledgers: Ledgers,
  fakes: World,
  scenario: Scenario,
  first?: (url: string, notes: string) => Promise<void>,
): Promise<Case> {
  const url = await ledgers.create();
  const db = new Database({ url, max: 3 });
  const agent = await sweepAgent(db, fakes, scenario);
  return openCase(
    { db, agent, ...(first === undefined ? {} : { first: (notes) => first(url, notes) }) },
    fakes,
    scenario,
  );
}

/** Resolves when nothing of the case is alive, after the people in it have done what they do. */
export async function ended(item: Case, meanwhile: Promise<void>, signal: AbortSignal): Promise<void> {
  await meanwhile;
  while (await item.live()) {
    if (signal.aborted) throw new Error("the case did not end in time");
    await sleep(20);
  }
}

/** People begin to do what they do; what goes wrong with that is told by whoever awaits it. */
export function startPeople(item: Case, fakes: World, signal: AbortSignal): Promise<void> {
  const done = item.scenario.meanwhile?.(item, fakes, signal) ?? Promise.resolve();
  done.catch(() => {});
  return done;
}
