/** What models, tools and people write is bounded and storable before it is kept, and never ends a run by its form. */
import assert from "node:assert/strict";
import type { Database } from "#ledger/database.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import type { ModelOutcome, Tool } from "#engine/ports.ts";
import { MAX_INTERNAL_ATTEMPTS } from "#engine/drive.ts";
import {
  MAX_ARGUMENTS,
  MAX_CALLS_PER_RESPONSE,
  MAX_NAME,
  MAX_REJECTED_ARGUMENTS,
  MAX_RESPONSE_TEXT,
  MAX_RESULT,
} from "#rules/limits.ts";
import { checkRequest } from "../../../fakes/src/model-strict.ts";
import { asks, bench, done, drain, engineAgent, lost, quick, says, type Script, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { rowOf, withChanges } from "../support/reality.ts";
import { aCall, aClaimedRun, aMessage, respond } from "../support/world.ts";

const NUL = "\u0000";
const HALF = "\ud83d";
const NOTE = 100; // characters for the words that say how much was left out

type Response = Extract<ModelOutcome, { kind: "response" }>;
const response = (changes: Partial<Response>): ModelOutcome => ({ ...(says("") as Response), text: null, ...changes });
const call = (name: string, argumentsText: string, providerId = "p") => ({ name, argumentsText, providerId });

describe("what a run is given", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  async function run(
    script: Script,
    options: { tools?: Tool[]; agent?: Record<string, unknown>; text?: string; db?: Database } = {},
  ) {
    const tools = options.tools ?? [quick, writer([])];
    const agent = await engineAgent(
      ledger.db,
      [...new Set(["echo", "write", ...tools.map(({ name }) => name)])],
      options.agent,
    );
    const ingested = await ingest(ledger.db, aMessage(agent.id, { text: options.text ?? "please" }));
    if (!("runId" in ingested)) throw new Error("no run");
    const { deps, requests, logged } = bench(options.db ?? ledger.db, script, tools);
    const claims = await drain({ ...deps, settings: { ...deps.settings, waitForPersonMs: 0 } });
    for (const { messages, tools: offered, endpoint } of requests) {
      const body = {
        model: endpoint.model,
        messages,
        ...(offered.length === 0 ? {} : { tools: offered.map((tool) => ({ type: "function", function: tool })) }),
      };
      assert.deepEqual(checkRequest(JSON.parse(JSON.stringify(body)), undefined).ok, true, JSON.stringify(messages));
    }
    return {
      record: await readRun(ledger.db, ingested.runId),
      row: await rowOf(ledger.db, ingested.runId),
      requests,
      logged,
      claims,
    };
  }
  const results = (requests: Awaited<ReturnType<typeof run>>["requests"], n: number) =>
    (requests[n]?.messages ?? []).filter(({ role }) => role === "tool").map(({ content }) => String(content));

  it("may hold NUL and half characters in every text: they are replaced, and the run goes on", async () => {
    const dirty = `a${NUL}b${HALF}c`;
    const { record, row, requests } = await run(
      [
        response({
          text: dirty,
          calls: [call(`ec${NUL}ho`, "{}", dirty), call("echo", "{}"), call("write", '{"to":"x"}')],
        }),
        says(dirty),
      ],
      { text: dirty, tools: [{ ...quick, execute: () => Promise.resolve(done(dirty)) }, writer([done(dirty)])] },
    );
    assert.equal(row.status, "succeeded");
    assert.deepEqual(requests[0]?.messages.at(-1)?.content, "[user alice]\na\ufffdb\ufffdc");
    assert.deepEqual(results(requests, 1).slice(1), ["a\ufffdb\ufffdc", "a\ufffdb\ufffdc"]);
    assert.deepEqual(record.calls.at(-1)?.args, { text: "a\ufffdb\ufffdc" });
  });

  it("may come to the ledger past the engine: no row is refused for it", async () => {
    const { runId, token } = await aClaimedRun(ledger.db);
    const args = { [`a${NUL}`]: [`b${HALF}`, { c: `"\\u0000${NUL}"` }] };
    const call = aCall({ args, outcome: "rejected", result: NUL });
    assert.equal((await respond(ledger.db, { runId, token }, [call])).kind, "committed");
    const [kept] = (await readRun(ledger.db, runId)).calls;
    assert.deepEqual(kept?.args, { "a\ufffd": ["b\ufffd", { c: '"\\u0000\ufffd"' }] });
    assert.equal(kept?.result, "\ufffd");
  });

  it("is the same in memory and read back: the request is rebuilt to the letter", async () => {
    const dirty = `a${NUL}b${HALF}c`;
    const away: ModelOutcome = { kind: "failed", class: "transient", reason: "ModelOverloaded", message: "busy" };
    const { requests } = await run([
      response({
        text: dirty,
        calls: [call("echo", `{"a":"${NUL}"}`), call(`w${HALF}`, "{}"), call("echo", "{}", dirty)],
      }),
      away,
      says("ok"),
    ]);
    assert.deepEqual(requests[2]?.messages, requests[1]?.messages);
  });

  it("may not hold them in arguments: those are never repaired, so the call is refused in words", async () => {
    const tool = writer([]);
    const { record, requests } = await run(
      [
        asks(
          ["write", String.raw`{"to":"a\u0000b"}`],
          ["write", String.raw`{"to":"\ud83d"}`],
          ["write", `{"to":"a${NUL}b"}`],
        ),
        says("ok"),
      ],
      { tools: [quick, tool] },
    );
    assert.equal(tool.sent.length, 0);
    assert.match(results(requests, 1)[0] ?? "", /NUL character or half of a character/);
    assert.match(results(requests, 1)[1] ?? "", /NUL character or half of a character/);
    assert.match(results(requests, 1)[2] ?? "", /not valid JSON/);
    assert.deepEqual(
      record.calls.map(({ outcome }) => outcome),
      ["rejected", "rejected", "rejected", "real"],
    );
  });

  it("may be an error with NUL in its words: the run waits and ends like any other", async () => {
    const bad: ModelOutcome = {
      kind: "failed",
      class: "transient",
      reason: "ModelMalformed",
      message: `x${NUL}y${HALF}`,
    };
    const { row, claims } = await run([bad, bad, bad]);
    assert.deepEqual([row.status, row.message, claims], ["failed", "x\ufffdy\ufffd Given up after 3 attempts.", 3]);
  });

  it("may ask for too many calls: the first 64 run, one result speaks for the rest", async () => {
    const calls = Array.from({ length: 500 }, (_, n): [string, unknown] => ["echo", { n }]);
    const { record, requests } = await run([asks(...calls), says("ok")]);
    const told = results(requests, 1);
    assert.equal(told.length, MAX_CALLS_PER_RESPONSE + 1);
    assert.match(told[63] ?? "", /^echo/);
    assert.match(told[64] ?? "", /64 calls at most, this one asked for 500\. Calls from number 65 on were dropped/);
    assert.equal(record.calls.length, MAX_CALLS_PER_RESPONSE + 2);
  });

  it("may not ask for more calls than its budget has left", async () => {
    const tool = writer([done("written")]);
    const { row, requests, record } = await run(
      [asks(["write", { to: "1" }], ["write", { to: "2" }], ["write", { to: "3" }]), says("Two of three. Go on?")],
      { tools: [quick, tool], agent: { budgets: { toolCalls: 2 } } },
    );
    assert.equal(tool.sent.length, 2);
    assert.deepEqual([requests.length, requests[1]?.tools], [2, []], "the closing call has no tools");
    assert.match(record.calls[2]?.result ?? "", /used up the tool calls/);
    assert.deepEqual([row.status, row.message], ["budget_exhausted", "the budget of 2 tool calls is used up"]);
  });

  it("is bounded where it is long: text, names, results; and arguments are refused", async () => {
    const long = "x".repeat(600_000);
    const tool = writer([done(long)]);
    const { record, requests } = await run(
      [
        response({
          text: long,
          calls: [
            call("echo", "{}", long),
            call(long, "{}"),
            call("write", `{"to":"${long}"}`),
            call("write", '{"to":"y"}'),
          ],
        }),
        says(long),
      ],
      { tools: [{ ...quick, execute: () => Promise.resolve(done(long)) }, tool] },
    );
    const sizes = record.calls.map(({ result }) => result?.length ?? 0);
    assert.ok((sizes[0] ?? 0) <= MAX_RESULT + NOTE && (sizes[0] ?? 0) > MAX_RESULT, `${sizes[0]}`);
    assert.equal(record.calls[1]?.tool.length, MAX_NAME);
    assert.match(record.calls[2]?.result ?? "", new RegExp(`are 60\\d+ characters long, at most ${MAX_ARGUMENTS}`));
    assert.ok(JSON.stringify(record.calls[2]?.args).length <= MAX_REJECTED_ARGUMENTS + NOTE);
    assert.ok((sizes[3] ?? 0) <= MAX_RESULT + NOTE);
    assert.equal(tool.sent.length, 1);
    const step = JSON.stringify(record.steps[0]?.response);
    assert.ok(step.length < MAX_RESPONSE_TEXT + 10_000, `${step.length} characters in the step`);
    assert.match(JSON.stringify(record.calls.at(-1)?.args), /characters left out\]/);
    assert.ok(record.effects.every(({ observation }) => (observation?.length ?? 0) <= MAX_RESULT + NOTE));
    assert.match(results(requests, 1)[0] ?? "", /^x+\n\[… \d+ characters left out\]$/);
  });

  it("may be nested without end or hold numbers without bound: the call is refused", async () => {
    const deep = `{"a":${"[".repeat(20_000)}${"]".repeat(20_000)}}`;
    const { requests } = await run([asks(["echo", deep], ["echo", '{"n":1e999}']), says("ok")]);
    const [first, second] = results(requests, 1);
    assert.match(first ?? "", /more than 64 levels of nesting/);
    assert.match(second ?? "", /a number that is too large/);
  });

  it("may count tokens in fractions, below zero or beyond all bounds", async () => {
    const usage = (inputTokens: number, outputTokens: number) => ({ usage: { inputTokens, outputTokens } });
    const { record, row } = await run([
      response({ calls: [call("echo", "{}")], ...usage(1.5, -3) }),
      response({ calls: [call("echo", "{}")], ...usage(1e300, Number.NaN) }),
      says("ok"),
    ]);
    assert.equal(row.status, "succeeded");
    assert.deepEqual([record.inputTokens, record.outputTokens], [1 + 2 ** 31 - 1 + 7, 3]);
  });

  it("may be blank where something was expected, and the next request is still valid", async () => {
    const blank = { ...quick, execute: () => Promise.resolve(done(" \n")) };
    const { requests, row } = await run(
      [response({ text: "\n\n", calls: [call("echo", "{}")] }), says("  "), says("ok")],
      {
        tools: [blank, writer([])],
      },
    );
    assert.equal(row.status, "succeeded");
    assert.deepEqual(results(requests, 1), ["(empty)"]);
    assert.match(String(requests[2]?.messages.at(-1)?.content), /Your last response was empty/);
  });

  it("may make a tool stumble over its own arguments: that call is refused, the others run", async () => {
    const broken: Tool = {
      ...quick,
      name: "broken",
      parse: () => {
        throw new Error("a bug");
      },
    };
    const { requests, row } = await run([asks(["broken", {}], ["echo", {}]), says("ok")], {
      tools: [quick, broken, writer([])],
    });
    assert.deepEqual(results(requests, 1), ["Not run: broken could not make anything of these arguments.", "echo {}"]);
    assert.equal(row.status, "succeeded");
  });

  for (const effect of ["reply", "ack", "model.inference", "store.verb", "tool.workspace"]) {
    it(`may not be told from outside that a write is a ${effect}`, async () => {
      const tool = writer([done("written")]);
      const { record } = await run([asks(["write", { to: effect }]), says("ok")], {
        tools: [quick, tool],
        agent: { tools: { effects: [{ tool: "write", effect }] } },
      });
      assert.equal(tool.sent.length, 1);
      assert.deepEqual(
        record.effects.map(({ kind, state }) => [kind, state]),
        [
          ["tool.effect", "confirmed"],
          ["reply", "confirmed"],
        ],
      );
    });
  }

  it("ends, by an error of ours, visibly and after a bounded number of claims, naming what is unclear", async () => {
    let asked = 0;
    const boom = () => {
      asked += 1;
      throw new Error(`the adapter ${NUL} is broken`);
    };
    const { row, claims } = await run([asks(["write", { to: "z" }]), boom, boom, boom, boom, boom], {
      tools: [quick, writer([lost()])],
    });
    assert.equal(row.status, "running", "it waits between its attempts");
    assert.deepEqual([row.reason, row.attempts, claims, asked], ["InternalError", 1, 1, 1]);
    const { db } = ledger;
    for (let attempt = 2; attempt <= MAX_INTERNAL_ATTEMPTS; attempt += 1) {
      await db.pool.query("update runs set due_at = pawl_now() where live and due_at is not null");
      await drain(bench(db, [boom], [quick, writer([])]).deps);
    }
    const { rows } = await db.pool.query("select status, reason, message from runs order by queued_at desc limit 1");
    assert.equal(asked, MAX_INTERNAL_ATTEMPTS);
    assert.deepEqual([rows[0]?.status, rows[0]?.reason], ["failed", "InternalError"]);
    assert.match(
      rows[0]?.message,
      /^the adapter \ufffd is broken; this is a fault of Pawl, see the worker's log; the outcome of 1 write is not known/,
    );
  });

  it("that was cancelled by nobody is no busy loop", async () => {
    const { row, requests } = await run([
      { kind: "failed", class: "cancelled", reason: "Cancelled", message: "Cancelled by nobody." },
    ]);
    assert.deepEqual([row.status, requests.length], ["failed", 1]);
  });

  it("ended by a budget is told so even when the worker dies between its last word and the end", async () => {
    let failed = false;
    const db = dyingAt("finish_turn", 1, () => {
      failed = true;
    });
    const script = [asks(["echo", {}]), says("Not done. Go on?")];
    const { record, row } = await run(script, { db, agent: { budgets: { iterations: 1 } } });
    assert.ok(failed);
    assert.deepEqual(
      [row.status, row.reason, row.message],
      ["budget_exhausted", "BudgetExhausted", "the budget of 1 iteration is used up"],
    );
    assert.equal(record.calls.filter(({ class: kind }) => kind === "reply").length, 1);
  });

  /** A ledger that is away, once, when the statement is to be sent for the nth time; the run is due again at once. */
  function dyingAt(name: string, nth: number, tell: () => void): Database {
    let seen = 0;
    const one: Database["one"] = async (statement, params) => {
      if (statement.name === name) seen += 1;
      if (statement.name === name && seen === nth) {
        seen += 1_000;
        tell();
        throw Object.assign(new Error("gone"), { name: "Gone" });
      }
      // What waits because of the fault is due now: the time between is not what is tried here.
      if (statement.name === "release_lease") return ledger.db.one(statement, { ...params, delay_ms: 0 });
      return ledger.db.one(statement, params);
    };
    return withChanges(ledger.db, { one });
  }
});
