/** A request that the model finds too long is asked once more with less in it, and what that was is in the rows (C30). */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import type { Database } from "#ledger/database.ts";
import type { ModelOutcome, ModelRequest } from "#engine/ports.ts";
import { checkRequest } from "../../../fakes/src/model-strict.ts";
import { asks, bench, drain, engineAgent, quick, says, type Script } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

const tooLong: Extract<ModelOutcome, { kind: "failed" }> = {
  kind: "failed",
  class: "overflow",
  reason: "ContextOverflow",
  message: "The conversation is longer than the model takes.",
};
const busy: ModelOutcome = { kind: "failed", class: "transient", reason: "ModelOverloaded", message: "Busy." };

const tried = (db: Database, script: Script) =>
  bench(db, script, [quick], {
    deps: {
      retry: (failure) =>
        failure.class === "transient" ? { kind: "wait", ms: 0 } : { kind: "give-up", why: "not-retryable" },
    },
  });

const agentOf = (db: Database) =>
  engineAgent(db, ["echo"], {
    models: { primary: { baseURL: "http://model.test/v1", model: "scripted", contextTokens: 16_000 } },
  });

async function start(db: Database, known?: { id: string }): Promise<string> {
  const agent = known ?? (await agentOf(db));
  const ingested = await ingest(db, aMessage(agent.id, { text: "please" }));
  if (!("runId" in ingested)) throw new Error("no run");
  return ingested.runId;
}

/** A result of 8,000 bytes: kept as it is while nothing was too long, and more than is left after that. */
const reads = (n: number): ModelOutcome => asks(["echo", { n, body: "b".repeat(8_000) }]);
const shortenedIn = (request: ModelRequest | undefined): number =>
  (request?.messages ?? []).filter(({ role, content }) => role === "tool" && content?.startsWith("[Shortened by Pawl"))
    .length;
const refusal = ({ messages, tools }: ModelRequest): string | null => {
  const body = { model: "m", messages, tools: tools.map((tool) => ({ type: "function", function: tool })) };
  const checked = checkRequest(JSON.parse(JSON.stringify(body)), undefined);
  return checked.ok ? null : checked.refusal.message;
};
const toolsIn = (request: ModelRequest | undefined): number =>
  (request?.messages ?? []).filter(({ role }) => role === "tool").length;

describe("a request that is too long for the model (C30)", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  /** What each step says of the request that it answers. */
  const facts = async (runId: string): Promise<{ hash: string; level: number }[]> => {
    const { rows } = await ledger.db.pool.query(
      "select request ->> 'hash' as hash, coalesce((request ->> 'compaction')::int, 0) as level from run_steps where run_id = $1 order by ordinal",
      [runId],
    );
    return rows as { hash: string; level: number }[];
  };

  it("is asked once more with its results shortened, and the run goes on like that", async () => {
    const runId = await start(ledger.db);
    const { deps, requests } = tried(ledger.db, [reads(1), reads(2), tooLong, reads(3), says("done")]);
    assert.equal(await drain(deps), 1);
    assert.equal((await readRun(ledger.db, runId)).status, "succeeded");
    assert.deepEqual(requests.map(toolsIn), [0, 1, 2, 2, 3]);
    assert.deepEqual(requests.map(shortenedIn), [0, 0, 0, 2, 3]);
    const steps = await facts(runId);
    assert.deepEqual(
      steps.map(({ level }) => level),
      [0, 0, 1, 1],
    );
  });

  it("fails the run visibly when it is still too long, after exactly two requests", async () => {
    const runId = await start(ledger.db);
    const { deps, requests } = tried(ledger.db, [reads(1), tooLong, tooLong]);
    await drain(deps);
    const { rows } = await ledger.db.pool.query("select status, reason, message from runs where id = $1", [runId]);
    assert.deepEqual(rows, [{ status: "failed", reason: "ContextOverflow", message: tooLong.message }]);
    assert.equal(requests.length, 3, "one that was answered, two that were too long");
    assert.equal(shortenedIn(requests[2]), 1);
  });

  it("is not asked again when there is nothing to shorten, or when it was shortened already", async () => {
    const bare = await start(ledger.db);
    const first = tried(ledger.db, [tooLong]);
    await drain(first.deps);
    const run = await start(ledger.db);
    const second = tried(ledger.db, [reads(1), tooLong, reads(2), tooLong]);
    await drain(second.deps);
    assert.deepEqual([first.requests.length, second.requests.length], [1, 4]);
    for (const id of [bare, run]) assert.equal((await readRun(ledger.db, id)).status, "failed");
  });

  it("is the same for a worker that takes the run over, at every point", async () => {
    const agent = await agentOf(ledger.db);
    const straight: ModelOutcome[] = [reads(1), reads(2), tooLong, reads(3), reads(4), says("done")];
    // A busy endpoint ends the claim, and the next one reads the rows; also between the overflow and its second request.
    const broken = straight.flatMap((answer) => (answer === tooLong ? [busy, tooLong, busy, tooLong] : [busy, answer]));
    broken.splice(broken.lastIndexOf(tooLong) + 1, 1);
    const answered: ModelRequest[][] = [];
    const hashes: unknown[] = [];
    for (const script of [straight, broken]) {
      const runId = await start(ledger.db, agent);
      const { deps, requests } = tried(ledger.db, script);
      assert.equal(await drain(deps), 1 + script.filter((answer) => answer === busy).length);
      assert.equal((await readRun(ledger.db, runId)).status, "succeeded");
      assert.equal(requests.length, script.length);
      for (const request of requests) assert.equal(refusal(request), null);
      answered.push(requests.filter((_, index) => script[index]?.kind === "response"));
      hashes.push(await facts(runId));
    }
    assert.deepEqual(answered[1], answered[0]);
    assert.deepEqual(hashes[1], hashes[0]);
    assert.deepEqual(answered[0]?.map(shortenedIn), [0, 0, 2, 3, 4]);
  });
});
