/** A worker whose lease is somebody else's, or whose ledger is gone: it writes nothing but what it alone knows. */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { Database } from "#ledger/database.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { requestStop } from "#ledger/turns.ts";
import { Database as Ledger } from "#ledger/database.ts";
import { driveRun } from "#engine/drive.ts";
import { Worker } from "#engine/worker.ts";
import { CODE } from "#rules/limits.ts";
import { systemClock } from "#src/clock.ts";
import { asks, bench, done, drain, engineAgent, lost, says, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { SilentProxy } from "../support/proxy.ts";
import { later, rowOf, withChanges } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";

const LEASE_MS = 10_000;
/** Renewals come at once, so that a loss is noticed at once; what they find is decided by the ledger. */
const EAGER = { leaseMs: LEASE_MS, renewMs: 15 };

async function start(db: Database, agent: Record<string, unknown> = {}) {
  const { id } = await engineAgent(db, ["write"], agent);
  const ingested = await ingest(db, aMessage(id, { text: "please" }));
  if (!("runId" in ingested)) throw new Error("no run");
  return ingested;
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort");
}

/** Claims until the wanted run comes: others are due, too, and a row that a renewal is just writing is passed over. */
async function claimOf(db: Database, owner: string, runId: string, leaseMs = LEASE_MS) {
  for (;;) {
    const claim = await claimRun(db, owner, leaseMs, CODE);
    if (claim?.runId === runId) return claim;
  }
}

/** All that a run's worker may write, but for the outcomes of effects. */
async function written(db: Database, runId: string): Promise<unknown> {
  const tables = {
    runs: "select * from runs where id = $1",
    steps: "select * from run_steps where run_id = $1 order by ordinal",
    calls: "select * from tool_calls where run_id = $1 order by ordinal, idx",
    effects: "select id, attempt, nonce, dispatched_at from commitment_effects where run_id = $1 order by id",
    messages: "select * from message_events where run_id = $1 order by seq",
  };
  const found: Record<string, unknown> = {};
  for (const [name, text] of Object.entries(tables)) found[name] = (await db.pool.query(text, [runId])).rows;
  return found;
}

describe("a lease that is lost", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  /** Another worker, whose clock says that the lease has lapsed. */
  async function takeOver(runId: string): Promise<unknown> {
    await using ahead = later(ledger.url, LEASE_MS / 1000 + 1);
    const claim = await claimOf(ahead, "worker-2", runId);
    assert.equal(claim.takeover, true);
    return written(ledger.db, runId);
  }

  async function driveFirst(runId: string, deps: Parameters<typeof driveRun>[0]): Promise<void> {
    await driveRun(deps, await claimOf(ledger.db, "worker-1", runId), new AbortController().signal);
  }

  it("during a model call ends the call, and its answer is not written", async () => {
    const { runId } = await start(ledger.db);
    let since: unknown;
    const { deps, logged } = bench(
      ledger.db,
      [
        async (_request, signal) => {
          since = await takeOver(runId);
          await aborted(signal);
          return says("too late");
        },
      ],
      [writer([])],
      { settings: EAGER },
    );
    await driveFirst(runId, deps);
    assert.deepEqual(await written(ledger.db, runId), since);
    assert.ok(logged.some((line) => line.message === "lease lost"));
  });

  it("during a send lets the outcome be settled, and nothing else be written or sent", async () => {
    const { runId } = await start(ledger.db);
    let since: unknown;
    const tool = writer([
      async () => {
        since = await takeOver(runId);
        return done("created");
      },
    ]);
    const { deps } = bench(ledger.db, [asks(["write", { to: "l1" }], ["write", { to: "l2" }])], [tool], {
      settings: EAGER,
    });
    await driveFirst(runId, deps);
    assert.deepEqual(await written(ledger.db, runId), since);
    const { effects } = await readRun(ledger.db, runId);
    assert.deepEqual(
      effects.map(({ state, observation }) => [state, observation]),
      [["confirmed", "created"]],
    );
    assert.equal(tool.sent.length, 1);
  });

  it("during the wait for a settle time ends the wait, and nothing is sent again", async () => {
    const { runId } = await start(ledger.db, { tools: { effects: [{ tool: "write", key: "Idempotency-Key" }] } });
    const tool = writer([lost(), done("twice")]);
    let since: unknown;
    const clock = {
      ...systemClock,
      sleep: async (ms: number, signal?: AbortSignal) => {
        assert.ok(ms > 60_000, `waits for the settle time, not ${ms}`);
        since = await takeOver(runId);
        assert.ok(signal);
        await aborted(signal);
      },
    };
    const { deps } = bench(ledger.db, [asks(["write", { to: "l3" }])], [{ ...tool, timeLimitMs: 90_000 }], {
      settings: EAGER,
      deps: { clock },
    });
    await driveFirst(runId, deps);
    assert.deepEqual(await written(ledger.db, runId), since);
    assert.equal(tool.sent.length, 1);
  });

  it("before the first call of a response was sent settles its effect as not sent, so that nobody wonders", async () => {
    const { runId } = await start(ledger.db);
    const tool = writer([done("must not be sent")]);
    const { deps } = bench(ledger.db, [asks(["write", { to: "l4" }])], [tool], { settings: EAGER });
    let since: unknown;
    const db = withChanges(ledger.db, {
      transaction: async (body) => {
        const answer = await ledger.db.transaction(body);
        since ??= await takeOver(runId);
        // The renewal says so before the engine goes on.
        while (!logged.some((line) => line.message === "lease lost")) await ledger.db.ping();
        return answer;
      },
    });
    const logged: { message: string }[] = [];
    const warn = (_fields: object, message: string) => logged.push({ message });
    await driveFirst(runId, { ...deps, db, log: { ...deps.log, warn } });
    assert.equal(tool.sent.length, 0);
    assert.deepEqual(await written(ledger.db, runId), since);
    const { effects } = await readRun(ledger.db, runId);
    assert.deepEqual(
      effects.map(({ state }) => state),
      ["failed"],
    );
  });

  it("to a ledger that went silent is noticed within the lease, not a renewal later (C37)", async () => {
    const proxy = await SilentProxy.start({ host: "127.0.0.1", port: ledger.postgres.port });
    const url = new URL(ledger.url);
    url.port = String(proxy.port);
    const through = new Ledger({ url: url.href, max: 2, replyTimeoutMs: 3_000 });
    try {
      const { runId } = await start(ledger.db);
      const settings = { leaseMs: 1_200, renewMs: 1_000 };
      let noticedAfter = 0;
      const tool = writer([]);
      const { deps } = bench(
        through,
        [
          async (_request, signal) => {
            proxy.silence("replies");
            await aborted(signal);
            noticedAfter = performance.now() - askedAt;
            return asks(["write", { to: "black hole" }]);
          },
        ],
        [tool],
        { settings },
      );
      const askedAt = performance.now();
      const claim = await claimOf(through, "worker-1", runId, settings.leaseMs);
      await driveRun(deps, claim, new AbortController().signal, askedAt);
      assert.ok(noticedAfter < 1_900, `noticed after ${noticedAfter} ms; the next renewal would be at 2000`);
      assert.equal(tool.sent.length, 0);
      assert.deepEqual((await readRun(ledger.db, runId)).effects, []);
    } finally {
      await proxy.close();
      await through.close();
    }
  }).timeout(30_000);
});

describe("a stop", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));
  let asked = 0;
  const stop = (eventId: string) => {
    asked += 1;
    return requestStop(ledger.db, {
      eventId,
      extId: `stop-${asked}`,
      actor: { connector: "kubernetes", extId: "bob" },
      why: "enough",
    });
  };

  it("during a model call after the boundary ends the call, and the reply tells what was done", async () => {
    const { runId, eventId } = await start(ledger.db);
    const { deps, requests } = bench(
      ledger.db,
      [
        asks(["write", { to: "s1" }]),
        async (_request, signal) => {
          assert.equal(await stop(eventId), "stopping");
          await aborted(signal);
          return { kind: "failed", class: "cancelled", reason: "Cancelled", message: "" };
        },
      ],
      [writer([done("created")])],
      { settings: EAGER },
    );
    await drain(deps);
    const run = await readRun(ledger.db, runId);
    assert.equal(run.status, "cancelled");
    assert.equal(requests.length, 2);
    assert.match(JSON.stringify(run.calls.at(-1)?.args), /Stopped, as you asked\. .*s1: done/);
  });

  it("during the wait before a resend gives the write up at once when the time has come, without a busy loop", async () => {
    const { runId, eventId } = await start(ledger.db, {
      tools: { effects: [{ tool: "write", key: "Idempotency-Key" }] },
    });
    const tool = writer([lost(), done("must not be sent")]);
    const { deps } = bench(ledger.db, [asks(["write", { to: "s2" }])], [tool], {
      // No renewal tells of the stop: the ledger's refusal has to.
      settings: { renewMs: 60_000 },
      deps: {
        clock: {
          ...systemClock,
          sleep: async (ms, signal) => {
            assert.equal(await stop(eventId), "stopping");
            await systemClock.sleep(ms, signal);
          },
        },
      },
    });
    const before = ledger.db.counted.statements;
    await drain(deps);
    assert.ok(ledger.db.counted.statements - before < 40, `${ledger.db.counted.statements - before} statements`);
    const run = await readRun(ledger.db, runId);
    assert.deepEqual([run.status, tool.sent.length, run.calls[0]?.outcome], ["cancelled", 1, "unknown"]);
    const { message } = await rowOf(ledger.db, runId);
    assert.match(message ?? "", /outcome of 1 write is not known/);
    assert.match(JSON.stringify(run.calls.at(-1)?.args), /s2: outcome unknown, please check/);
  });

  it("of a run whose worker is dead settles all the same, and frees its conversation (C64)", async () => {
    const { runId, eventId } = await start(ledger.db);
    const claim = await claimRun(ledger.db, "dead", LEASE_MS, CODE);
    assert.equal(claim?.runId, runId);
    assert.equal(await stop(eventId), "cancelled");
    const row = await rowOf(ledger.db, runId);
    assert.deepEqual([row.status, row.lease_owner, row.due_ms], ["cancelled", null, null]);
  });

  it("is not undone by a late write of the worker (C65)", async () => {
    const { runId, eventId } = await start(ledger.db);
    let since: unknown;
    const tool = writer([]);
    const { deps } = bench(
      ledger.db,
      [
        async () => {
          assert.equal(await stop(eventId), "cancelled");
          since = await written(ledger.db, runId);
          return asks(["write", { to: "s3" }]);
        },
      ],
      [tool],
    );
    await drain(deps);
    assert.equal(tool.sent.length, 0);
    assert.deepEqual(await written(ledger.db, runId), since);
  });
});

describe("a shutdown", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  it("during a send awaits and records the outcome, starts no further write, and gives the lease back at once", async () => {
    const { runId } = await start(ledger.db);
    const shutdown = new AbortController();
    const tool = writer([
      () => {
        shutdown.abort();
        return done("created");
      },
    ]);
    const { deps } = bench(ledger.db, [asks(["write", { to: "d1" }], ["write", { to: "d2" }])], [tool]);
    await driveRun(deps, await claimOf(ledger.db, "worker-1", runId), shutdown.signal);
    assert.equal(tool.sent.length, 1);
    const { effects } = await readRun(ledger.db, runId);
    assert.deepEqual(
      effects.map(({ state }) => state),
      ["confirmed"],
    );
    const row = await rowOf(ledger.db, runId);
    assert.deepEqual([row.status, row.lease_owner, row.attempts], ["awaiting_tool", null, 0]);
    assert.ok((row.due_ms ?? 1) <= 0);

    const next = writer([done("second")]);
    const heir = bench(ledger.db, [says("both written")], [next]);
    await drain(heir.deps);
    assert.deepEqual(
      next.sent.map(({ args }) => args["to"]),
      ["d2"],
    );
    assert.equal((await readRun(ledger.db, runId)).status, "succeeded");
  });

  it("while a settle time is waited for gives the lease back, and the next worker waits and sends", async () => {
    const { runId } = await start(ledger.db, { tools: { effects: [{ tool: "write", key: "Idempotency-Key" }] } });
    const shutdown = new AbortController();
    const tool = writer([lost(), done("once")]);
    const { deps } = bench(ledger.db, [asks(["write", { to: "d3" }])], [tool], {
      deps: {
        clock: {
          ...systemClock,
          sleep: () => {
            shutdown.abort();
            return Promise.resolve();
          },
        },
      },
    });
    await driveRun(deps, await claimOf(ledger.db, "worker-1", runId), shutdown.signal);
    assert.equal(tool.sent.length, 1);
    assert.equal((await rowOf(ledger.db, runId)).lease_owner, null);
    await drain(bench(ledger.db, [says("ok")], [tool]).deps);
    assert.deepEqual(
      (await readRun(ledger.db, runId)).effects.map(({ state, attempt }) => [state, attempt]).slice(0, 1),
      [["confirmed", 2]],
    );
  });

  it("of a worker ends its model calls, and its run is due for the next one", async () => {
    const { runId } = await start(ledger.db);
    const { promise: asked, resolve } = Promise.withResolvers<void>();
    const { deps } = bench(ledger.db, [
      async (_request, signal) => {
        resolve();
        await aborted(signal);
        return { kind: "failed", class: "cancelled", reason: "Cancelled", message: "" };
      },
    ]);
    const worker = new Worker(deps);
    worker.start();
    await asked;
    await worker.stop();
    const row = await rowOf(ledger.db, runId);
    assert.deepEqual([row.status, row.lease_owner, row.attempts], ["running", null, 0]);
    await drain(bench(ledger.db, [says("hello")]).deps);
    assert.equal((await readRun(ledger.db, runId)).status, "succeeded");
  });
});

describe("a run of newer code (C66)", () => {
  const ledger = useLedger();

  it("is claimed by nobody who cannot read it, looked for by nobody, and by the next version at once", async () => {
    const { runId } = await start(ledger.db);
    await ledger.db.pool.query("update runs set min_code = $2 where id = $1", [runId, CODE + 1]);
    assert.equal(await claimRun(ledger.db, "old", LEASE_MS, CODE), null);
    assert.equal((await claimRun(ledger.db, "new", LEASE_MS, CODE + 1))?.runId, runId);
  });
});
