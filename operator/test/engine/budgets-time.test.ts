/** Time at work and the model call that is reserved: kept by the statements that take and give the lease. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { driveRun } from "#engine/drive.ts";
import type { Tool } from "#engine/ports.ts";
import { CODE } from "#rules/limits.ts";
import { asks, bench, done, drain, engineAgent, quick, says, type Script } from "../support/engine.ts";
import { lapse, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { later, outcomeOf } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";

describe("the budget of time at work", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  async function start(budgets: object, tools: readonly string[] = ["echo"]) {
    const agent = await engineAgent(ledger.db, tools, { budgets });
    const ingested = await ingest(ledger.db, aMessage(agent.id));
    if (!("runId" in ingested)) throw new Error("no run");
    return ingested.runId;
  }
  type Row = { worked_ms: number; leased: boolean; reserved_calls: number; charged_calls: number; model_calls: number };
  const rowOf = async (runId: string) => {
    const [row] = await sql<Row>(
      ledger,
      "select worked_ms, leased_at is not null as leased, reserved_calls, charged_calls, model_calls from runs where id = $1",
      [runId],
    );
    if (row === undefined) throw new Error("no run");
    return row;
  };
  const claim = (db = ledger.db, leaseMs = 10_000) => claimRun(db, "worker-1", leaseMs, CODE);
  const hangs: Script[number] = (_request, signal) =>
    new Promise((resolve) => {
      const end = () => resolve({ kind: "failed", class: "cancelled", reason: "Cancelled", message: "cancelled" });
      if (signal.aborted) end();
      signal.addEventListener("abort", end, { once: true });
    });

  it("ends a model call that hangs, and the closing call has its own time", async () => {
    const runId = await start({ wallClock: "80ms" });
    await drain(bench(ledger.db, [hangs, says("Nothing yet. Go on?")]).deps);
    const { row, reply } = await outcomeOf(ledger.db, runId);
    assert.deepEqual(
      [row.status, row.message, reply],
      ["budget_exhausted", "the budget of 1 s of work is used up", "Nothing yet. Go on?"],
    );
    assert.ok((await rowOf(runId)).worked_ms >= 80);
  });

  it("ends a tool that can be cancelled, and runs none after it", async () => {
    const slow: Tool = {
      ...quick,
      name: "slow",
      quick: false,
      execute: (_args, { signal }) =>
        new Promise((resolve) => {
          signal.addEventListener("abort", () => resolve({ kind: "failed", observation: "aborted" }), { once: true });
        }),
    };
    const runId = await start({ wallClock: "80ms" }, ["slow"]);
    await drain(bench(ledger.db, [asks(["slow", {}], ["slow", {}]), says("Go on?")], [slow]).deps);
    const { row, run } = await outcomeOf(ledger.db, runId);
    assert.equal(row.status, "budget_exhausted");
    assert.deepEqual(
      run.calls.map(({ outcome, result }) => [outcome, result]).slice(0, 2),
      [1, 2].map(() => ["cancelled", "Not run to its end: the time that this request may take is used up."]),
    );
  });

  it("of the Run itself is the lower one", async () => {
    const agent = await engineAgent(ledger.db, [], { budgets: { wallClock: "1h" } });
    const ingested = await ingest(ledger.db, aMessage(agent.id, { slice: { wallClock: "50ms" } }));
    await drain(bench(ledger.db, [hangs, says("Go on?")]).deps);
    assert.equal((await outcomeOf(ledger.db, (ingested as { runId: string }).runId)).row.status, "budget_exhausted");
  });

  it("does not pass while the run waits without a lease: in the queue, for a Secret, for an endpoint", async () => {
    const runId = await start({ wallClock: "1s" });
    const away: Script[number] = {
      kind: "failed",
      class: "transient",
      reason: "ModelUnavailable",
      message: "away",
      retryAfterMs: 3_600_000,
    };
    // An hour in the queue, then an hour of the endpoint's own wait.
    await using anHour = later(ledger.url, 3_600);
    await drain(bench(anHour, [away]).deps);
    assert.deepEqual(
      { ...(await rowOf(runId)), worked_ms: 0 },
      {
        worked_ms: 0,
        leased: false,
        reserved_calls: 0,
        charged_calls: 0,
        model_calls: 0,
      },
    );
    await using another = later(ledger.url, 7_300);
    await drain(bench(another, [says("made it")]).deps);
    const { row, reply } = await outcomeOf(ledger.db, runId);
    assert.deepEqual([row.status, reply], ["succeeded", "made it"]);
    assert.ok((await rowOf(runId)).worked_ms < 60_000);
  });

  it("of a worker that died counts until its lease lapsed, not until somebody noticed", async () => {
    const runId = await start({});
    await claim(ledger.db, 5_000);
    await using muchLater = later(ledger.url, 3_600);
    await claim(muchLater);
    const { worked_ms: worked } = await rowOf(runId);
    assert.ok(worked > 4_000 && worked <= 5_000, String(worked));
    const { workedMs } = await readRun(muchLater, runId);
    assert.ok(workedMs >= worked && workedMs < worked + 60_000, String(workedMs));
    await sql(ledger, "update runs set lease_until = pawl_now() + interval '1 year' where id = $1", [runId]);
  });

  describe("and the reserved model call", () => {
    const reserved = async (runId: string) => {
      const { reserved_calls: next, charged_calls: charged, model_calls: calls } = await rowOf(runId);
      return [next, charged, calls];
    };

    it("is written by the claim, kept by a response without open calls, and gone with the end", async () => {
      const runId = await start({});
      const seen: number[][] = [];
      const look =
        (answer: Script[number]): Script[number] =>
        async () => {
          seen.push(await reserved(runId));
          return answer as ReturnType<typeof says>;
        };
      await drain(bench(ledger.db, [look(asks(["echo", {}])), look(says("done"))]).deps);
      assert.deepEqual(
        [...seen, await reserved(runId)],
        [
          [1, 0, 0],
          [1, 0, 1],
          [0, 0, 2],
        ],
      );
    });

    it("is used up when its worker dies in the call: a takeover charges it, and asks with what is left", async () => {
      const runId = await start({ modelCalls: 3 });
      await claim();
      await lapse(ledger, runId);
      await claim();
      assert.deepEqual(await reserved(runId), [1, 1, 1]);
      await lapse(ledger, runId);
      const { deps, requests } = bench(ledger.db, [says("never asked for more work"), says("none")]);
      await drain(deps);
      // Two died in their calls: what is left is the closing call.
      const { row } = await outcomeOf(ledger.db, runId);
      assert.deepEqual([row.status, requests.length, await reserved(runId)], ["budget_exhausted", 1, [0, 2, 3]]);
      const [cost] = await sql(ledger, "select cost_micros from runs where id = $1", [runId]);
      assert.equal(cost?.["cost_micros"], null, "what a call without an answer cost is not known");
    });

    it("is not charged when its worker died over a tool: no model was asked", async () => {
      const slow: Tool = { ...quick, name: "slow", quick: false, execute: () => Promise.resolve(done("ok")) };
      const runId = await start({}, ["slow"]);
      const first = await claim();
      assert.ok(first !== null);
      const shutdown = new AbortController();
      const { deps } = bench(
        ledger.db,
        [
          () => {
            shutdown.abort();
            return asks(["slow", {}]);
          },
        ],
        [slow],
      );
      await driveRun(deps, first, shutdown.signal);
      assert.deepEqual(await reserved(runId), [0, 0, 1], "given back before its tool ran");
      await claim();
      await lapse(ledger, runId);
      await claim();
      assert.deepEqual(await reserved(runId), [0, 0, 1]);
      await lapse(ledger, runId);
      await drain(bench(ledger.db, [says("done")], [slow]).deps);
      assert.deepEqual(await reserved(runId), [0, 0, 2]);
    });
  });
});
