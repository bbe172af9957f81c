import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { PawlError } from "#rules/errors.ts";
import { commitResults } from "#ledger/steps.ts";
import { count, end, lapse, runRow, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aClaimedRun, respond } from "../support/world.ts";

describe("a response", () => {
  const ledger = useLedger();
  const query = (changes = {}) => aCall({ class: "pure", kind: "tool.query", target: null, ...changes });

  it("is committed whole, one row per call, before any of them runs", async () => {
    const run = await aClaimedRun(ledger.db);
    const calls = [
      query({ idx: 0 }),
      aCall({ idx: 1 }),
      aCall({ idx: 2, class: "reply", kind: "reply", target: null }),
    ];
    assert.deepEqual(await respond(ledger.db, run, calls), { kind: "committed", stop: false, amendSeq: 0 });
    const rows = await sql<{ id: string; outcome: string | null }>(
      ledger,
      "select id, outcome from tool_calls where run_id = $1 order by idx",
      [run.runId],
    );
    assert.deepEqual(
      rows,
      calls.map(({ id }) => ({ id, outcome: null })),
    );
    const [counted] = await sql(
      ledger,
      "select model_calls, tool_calls, input_tokens, output_tokens, next_ordinal, status from runs where id = $1",
      [run.runId],
    );
    assert.deepEqual(counted, {
      model_calls: 1,
      tool_calls: 2,
      input_tokens: 10,
      output_tokens: 5,
      next_ordinal: 2,
      status: "awaiting_tool",
    });
    assert.equal(
      await count(ledger, "run_steps where run_id = $1 and replayability = 'effectful' and lease_token = $2", [
        run.runId,
        run.token,
      ]),
      1,
    );
    assert.equal(await count(ledger, "run_triggers where run_id = $1 and delivered_ordinal = 1", [run.runId]), 1);
  });

  it("with a quick call brings its result along", async () => {
    const run = await aClaimedRun(ledger.db);
    await respond(ledger.db, run, [query({ outcome: "real", result: "12:00" })]);
    assert.equal(
      await count(ledger, "tool_calls where run_id = $1 and outcome = 'real' and closed_at is not null", [run.runId]),
      1,
    );
    assert.equal(await count(ledger, "run_steps where run_id = $1 and replayability = 'pure'", [run.runId]), 1);
    assert.equal((await runRow(ledger, run.runId)).status, "running");
  });

  it("is committed once, and told again as `already`", async () => {
    const run = await aClaimedRun(ledger.db);
    const [calls, nonce] = [[query()], uuidv7()];
    await respond(ledger.db, run, calls, { nonce });
    const before = await runRow(ledger, run.runId);
    assert.deepEqual(await respond(ledger.db, run, calls, { nonce }), { kind: "already", stop: false, amendSeq: 0 });
    assert.deepEqual(await runRow(ledger, run.runId), before);
  });

  it("is refused at any place but the next", async () => {
    const run = await aClaimedRun(ledger.db);
    for (const ordinal of [0, 2]) assert.deepEqual(await respond(ledger.db, run, [], { ordinal }), { kind: "fenced" });
    await respond(ledger.db, run, []);
    assert.deepEqual(await respond(ledger.db, run, [], { ordinal: 1 }), { kind: "fenced" });
    assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 1);
  });

  it("is refused without the lease, and after the end", async () => {
    const run = await aClaimedRun(ledger.db);
    assert.deepEqual(await respond(ledger.db, { ...run, token: run.token + 1 }, []), { kind: "fenced" });
    await lapse(ledger, run.runId);
    assert.deepEqual(await respond(ledger.db, run, []), { kind: "fenced" });
    const ended = await aClaimedRun(ledger.db);
    await end(ledger.db, ended);
    assert.deepEqual(await respond(ledger.db, ended, []), { kind: "ended" });
  });

  it("is not delivered to messages that its request did not contain", async () => {
    const run = await aClaimedRun(ledger.db);
    await respond(ledger.db, run, [], { seenSeq: 0 });
    assert.equal(await count(ledger, "run_triggers where run_id = $1 and delivered_ordinal is null", [run.runId]), 1);
    await respond(ledger.db, run, [], { ordinal: 2 });
    assert.equal(await count(ledger, "run_triggers where run_id = $1 and delivered_ordinal = 2", [run.runId]), 1);
  });

  it("that breaks the schema leaves nothing, and is called a fault of the program", async () => {
    const run = await aClaimedRun(ledger.db);
    const before = await runRow(ledger, run.runId);
    const broken = respond(ledger.db, run, [aCall({ target: null })]);
    await assert.rejects(broken, (error) => error instanceof PawlError && error.reason === "LedgerConstraint");
    assert.deepEqual(await runRow(ledger, run.runId), before);
    assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 0);
  });
});

describe("results", () => {
  const ledger = useLedger();

  const waiting = async () => {
    const run = await aClaimedRun(ledger.db);
    const call = aCall({ class: "pure", kind: "tool.query", target: null });
    await respond(ledger.db, run, [call]);
    return { run, call };
  };
  const result = (id: string, text = "200") => [{ id, outcome: "real" as const, result: text }];

  it("close their calls, and the first one written stays", async () => {
    const { run, call } = await waiting();
    assert.deepEqual(await commitResults(ledger.db, { ...run, nonce: uuidv7() }, result(call.id)), {
      kind: "committed",
      stop: false,
      amendSeq: 0,
    });
    assert.equal(
      (await commitResults(ledger.db, { ...run, nonce: uuidv7() }, result(call.id, "500"))).kind,
      "committed",
    );
    assert.equal(await count(ledger, "tool_calls where id = $1 and result = '200'", [call.id]), 1);
  });

  it("never close a call of another run", async () => {
    const [mine, other] = [await waiting(), await waiting()];
    await commitResults(ledger.db, { ...mine.run, nonce: uuidv7() }, result(other.call.id));
    assert.equal(await count(ledger, "tool_calls where id = $1 and outcome is null", [other.call.id]), 1);
  });

  it("are told again as `already`", async () => {
    const { run, call } = await waiting();
    const nonce = uuidv7();
    await commitResults(ledger.db, { ...run, nonce }, result(call.id));
    const before = await runRow(ledger, run.runId);
    assert.equal((await commitResults(ledger.db, { ...run, nonce }, result(call.id))).kind, "already");
    assert.deepEqual(await runRow(ledger, run.runId), before);
  });

  it("are refused without the lease, and after the end", async () => {
    const { run, call } = await waiting();
    assert.equal(
      (await commitResults(ledger.db, { ...run, token: 7, nonce: uuidv7() }, result(call.id))).kind,
      "fenced",
    );
    await end(ledger.db, run);
    assert.equal((await commitResults(ledger.db, { ...run, nonce: uuidv7() }, result(call.id))).kind, "ended");
    assert.equal(await count(ledger, "tool_calls where id = $1 and outcome = 'cancelled'", [call.id]), 1);
  });
});
