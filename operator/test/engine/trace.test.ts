/** The request of every step can be built again from rows, and is the one that was sent. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { isProven, parseStep, renderTrace, traceOf } from "#cli/trace.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { Database } from "#ledger/database.ts";
import { claimRun } from "#ledger/leases.ts";
import { readAgentSpec } from "#engine/agent.ts";
import type { ModelOutcome, ModelRequest } from "#engine/ports.ts";
import { traceRun, type Trace } from "#engine/trace.ts";
import { CODE } from "#rules/limits.ts";
import { BUILDER_VERSION } from "#rules/transcript.ts";
import { asks, bench, drain, engineAgent, quick, says, type Script, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { later } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";

const busy: ModelOutcome = { kind: "failed", class: "transient", reason: "ModelOverloaded", message: "Busy." };
const tooLong: ModelOutcome = { kind: "failed", class: "overflow", reason: "ContextOverflow", message: "Too long." };
const said = (text: string, outcome: ModelOutcome): ModelOutcome =>
  outcome.kind === "response" ? { ...outcome, text } : outcome;

const benchOf = (db: Database, script: Script) =>
  bench(db, script, [quick, writer([])], {
    deps: {
      retry: ({ class: kind }) =>
        kind === "transient" ? { kind: "wait", ms: 0 } : { kind: "give-up", why: "not-retryable" },
    },
  });

describe("pawl trace", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const agentOf = () =>
    engineAgent(ledger.db, ["echo", "write"], {
      models: { primary: { baseURL: "http://model.test/v1", model: "scripted", contextTokens: 16_000 } },
    });

  async function start(agentId: string, conversationKey: string, texts: readonly string[]): Promise<string> {
    let runId = "";
    for (const text of texts) {
      const ingested = await ingest(ledger.db, aMessage(agentId, { text, conversationKey }));
      if ("runId" in ingested && typeof ingested.runId === "string") runId = ingested.runId;
    }
    assert.notEqual(runId, "");
    return runId;
  }

  /** Two turns of history, folded messages, results that are shortened after an overflow, and several workers. */
  async function longRun(): Promise<{ runId: string; sent: ModelRequest[] }> {
    const agent = await agentOf();
    const key = `conversation-${uuidv7()}`;
    for (const n of [1, 2]) {
      await start(agent.id, key, [`earlier question ${n}`]);
      await drain(benchOf(ledger.db, [asks(["echo", { n }]), says(`earlier answer ${n}`)]).deps);
    }
    const runId = await start(agent.id, key, ["please", "and this too"]);
    const read = (n: number) => said(`step ${n}`, asks(["echo", { n, body: "b".repeat(8_000) }], ["nothing", "{cut"]));
    const script = [
      read(1),
      busy,
      read(2),
      tooLong,
      read(3),
      busy,
      asks(["write", { to: "a" }]),
      read(4),
      says("done"),
    ];
    const { deps, requests } = benchOf(ledger.db, script);
    assert.equal(await drain(deps), 3, "each busy answer ends a claim; the next worker reads rows");
    const sent = requests.filter((_, index) => script[index]?.kind === "response");
    // A later turn is no part of what this one saw.
    await start(agent.id, key, ["later"]);
    await drain(benchOf(ledger.db, [says("later answer")]).deps);
    return { runId, sent };
  }

  const tracedOf = async (runId: string, step?: number): Promise<Trace> => {
    const trace = await traceRun(ledger.db, runId, step);
    assert.ok(trace !== null);
    return trace;
  };

  it("builds each request again, whoever sent it, and finds what was sent", async () => {
    const { runId, sent } = await longRun();
    const trace = await tracedOf(runId);
    assert.deepEqual(
      trace.steps.map(({ kind }) => kind),
      Array.from({ length: 6 }, () => "ok"),
    );
    assert.ok(isProven(trace));
    const built = trace.steps.map((step) => ("request" in step ? step.request : undefined));
    assert.deepEqual(
      built.map((request) => request?.messages),
      sent.map(({ messages }) => messages),
    );
    assert.deepEqual(
      built.map((request) => request?.tools),
      sent.map(({ tools }) => tools),
    );
    assert.ok(JSON.stringify(built[4]).includes("[Shortened by Pawl"), "one of them was shortened");
    assert.ok(new Set(trace.steps.map(({ token }) => token)).size > 1, "several claims took part");
    const text = renderTrace(trace);
    assert.match(text, /step 1 {2}.* {2}lease 1 {2}scripted, \d+ messages, 4 tools {2}hash ok {2}[0-9a-f]{64}/);
    assert.equal(text.split("\n").length, 7);
    const one = await traceOf(ledger.db, { namespace: "demo", name: runId, step: 2, json: true });
    assert.equal(one.proven, true);
    const [only] = JSON.parse(one.text) as [{ ordinal: number; request: { messages: unknown } }];
    assert.deepEqual([only.ordinal, only.request.messages], [2, sent[1]?.messages]);
  });

  it("builds the request that says that a worker was lost, and those after it", async () => {
    const agent = await agentOf();
    const runId = await start(agent.id, uuidv7(), ["please"]);
    const waiting = benchOf(ledger.db, [asks(["echo", { n: 1 }]), busy]);
    await drain({ ...waiting.deps, retry: () => ({ kind: "wait", ms: 30_000 }) });
    await using dies = later(ledger.url, 60);
    assert.equal((await claimRun(dies, "worker-that-dies", 1_000, CODE))?.runId, runId);
    await using goesOn = later(ledger.url, 120);
    const { deps, requests } = benchOf(goesOn, [asks(["echo", { n: 2 }]), says("done")]);
    await drain(deps);
    const told = requests.map(({ messages }) => JSON.stringify(messages).includes("another one goes on"));
    assert.deepEqual(told, [true, true]);
    assert.deepEqual(
      (await tracedOf(runId)).steps.map(({ kind }) => kind),
      ["ok", "ok", "ok"],
    );
  });

  it("builds the request of a step that says what steps now leave out, as all of them did", async () => {
    const agent = await agentOf();
    const runId = await start(agent.id, uuidv7(), ["please"]);
    await drain(benchOf(ledger.db, [asks(["echo", { n: 1 }]), says("done")]).deps);
    const usual = { maxOutputTokens: null, compaction: 0, resumed: false, lastWords: false };
    const { rowCount } = await ledger.db.pool.query(
      `update run_steps set request = jsonb_set(request || $2, '{rows,earlier}', '{"turns":0,"newest":null}')
       where run_id = $1 and not request ?| array['maxOutputTokens', 'compaction', 'resumed', 'lastWords']`,
      [runId, usual],
    );
    assert.equal(rowCount, 2);
    assert.ok(isProven(await tracedOf(runId)));
  });

  const altered: Readonly<Record<string, (runId: string) => [sql: string, params: unknown[]]>> = {
    "a result": (runId) => ["update tool_calls set result = result || '!' where run_id = $1 and ordinal = 1", [runId]],
    "a message": (runId) => [
      "update message_events set body = body || '!' where id = (select event_id from run_triggers where run_id = $1 limit 1)",
      [runId],
    ],
    "a response": (runId) => [
      `update run_steps set response = jsonb_set(response, '{text}', '"other"') where run_id = $1 and ordinal = 1`,
      [runId],
    ],
    "an earlier answer": (runId) => [
      `update tool_calls set args = '{"text":"other"}' where class = 'reply' and run_id in (select p.id from runs p join runs r
         on r.conversation_id = p.conversation_id and p.queued_at < r.queued_at where r.id = $1)`,
      [runId],
    ],
  };
  for (const [what, change] of Object.entries(altered)) {
    it(`says so where ${what} is no longer what it was`, async () => {
      const { runId } = await longRun();
      await ledger.db.pool.query(...change(runId));
      const trace = await tracedOf(runId);
      const differing = trace.steps.filter(({ kind }) => kind === "differs").map(({ ordinal }) => ordinal);
      // The first request of the run holds neither its own results nor its responses.
      const all = [1, 2, 3, 4, 5, 6];
      assert.deepEqual(differing, what === "a result" || what === "a response" ? all.slice(1) : all);
      assert.equal(isProven(trace), false);
      assert.match(renderTrace(trace), /hash differs {2}sent [0-9a-f]{64}, rows now give [0-9a-f]{64}/);
    });
  }

  it("says what it cannot check: another builder, tools or a message that are gone", async () => {
    const { runId } = await longRun();
    const set = (path: string, value: unknown) =>
      ledger.db.pool.query("update run_steps set request = jsonb_set(request, $2::text[], $3) where run_id = $1", [
        runId,
        path,
        JSON.stringify(value),
      ]);
    const why = async (): Promise<string> => {
      const [step] = (await tracedOf(runId, 3)).steps;
      assert.equal(step?.kind, "unknown");
      return step?.kind === "unknown" ? step.why : "";
    };
    await set("{rows,messages}", [99_999]);
    assert.match(await why(), /message 99999 is no longer part of this run/);
    await set("{tools}", "0".repeat(64));
    assert.match(await why(), /the list of tools that it offered is not in the ledger/);
    await set("{builder}", BUILDER_VERSION - 1);
    assert.match(await why(), /built by builder \d+, this version of Pawl has builder \d+ only/);
    assert.equal(isProven(await tracedOf(runId)), false);
  });

  it("has nothing to check where Pawl spoke itself", async () => {
    const agent = await engineAgent(ledger.db, ["echo"], { budgets: { iterations: 1 } });
    const runId = await start(agent.id, uuidv7(), ["please"]);
    await drain(benchOf(ledger.db, [asks(["echo", {}]), tooLong]).deps);
    const trace = await tracedOf(runId);
    assert.deepEqual(
      trace.steps.map(({ kind }) => kind),
      ["ok", "closing"],
    );
    assert.ok(isProven(trace));
    const spoken = await start(agent.id, uuidv7(), ["please"]);
    await drain(benchOf(ledger.db, [asks(["echo", {}]), says("That is as far as I got.")]).deps);
    const asked = await tracedOf(spoken);
    assert.deepEqual(
      asked.steps.map((step) => [step.kind, "request" in step ? step.request.tools.length : null]),
      [
        ["ok", 3],
        ["ok", 0],
      ],
    );
    assert.match(renderTrace(trace), /no request: Pawl's own words \(exhausted\)/);
  });

  it("names what is not there", async () => {
    const which = { namespace: "demo", name: uuidv7(), step: undefined, json: false };
    await assert.rejects(traceOf(ledger.db, which), /the ledger knows no turn/);
    await assert.rejects(traceOf(ledger.db, { ...which, name: "no-such-run" }), /no Run demo\/no-such-run/);
    const runId = await start((await agentOf()).id, uuidv7(), ["please"]);
    await assert.rejects(traceRun(ledger.db, runId, 7), /has no step 7/);
    assert.match(renderTrace(await tracedOf(runId)), /It has no step yet/);
    assert.throws(() => parseStep("x"), /STEP is a number/);
    assert.deepEqual([parseStep("12"), parseStep(undefined)], [12, undefined]);
  });

  it("keeps each list of tools once, also when another process brings it", async () => {
    const agent = await agentOf();
    for (const key of ["a", "b"]) {
      await start(agent.id, `${key}-${uuidv7()}`, ["please"]);
      // A second process has no memory of what the first one brought.
      await using db = new Database({ url: ledger.url });
      await drain(benchOf(db, [says("ok")]).deps);
    }
    const names = ["echo", "write", "read_result", "read_earlier"];
    const { rows } = await ledger.db.pool.query<{ hash: string; names: string[] }>(
      `select hash, array(select t ->> 'name' from jsonb_array_elements(tools) t) as names from toolsets`,
    );
    assert.equal(rows.filter((row) => JSON.stringify(row.names) === JSON.stringify(names)).length, 1);
    const { spec } = await readRun(ledger.db, await start(agent.id, uuidv7(), ["x"]));
    assert.deepEqual(readAgentSpec(spec).tools, ["echo", "write"]);
  });
});
