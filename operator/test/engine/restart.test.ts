/** The database's power is cut in the middle of many turns (C40). */
import assert from "node:assert/strict";
import { Database } from "#ledger/database.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { Worker } from "#engine/worker.ts";
import { engineAgent } from "../support/engine.ts";
import { realBench, useReality, type WorldEntry } from "../support/reality.ts";
import { RestartablePostgres } from "../support/restartable.ts";
import { aMessage } from "../support/world.ts";

const TURNS = 50;

describe("a database whose power is cut during fifty turns (C40)", function () {
  this.timeout(90_000);
  const fakes = useReality();
  let postgres: RestartablePostgres;

  before(async () => {
    postgres = await RestartablePostgres.start();
  });
  after(async () => {
    await postgres.stop();
  });

  async function liveRuns(db: Database): Promise<number> {
    const { rows } = await db.pool.query<{ n: number }>("select count(*)::int as n from runs where live");
    return rows[0]?.n ?? 0;
  }

  it("costs no turn, no answer and no second write", async () => {
    const write = { method: "POST", url: "{{url}}", body: { text: "once" } };
    const steps = [
      {
        hold: true,
        calls: [
          { name: "calculate", arguments: { expression: "6*7" } },
          { name: "http_request", arguments: write },
        ],
      },
      { text: "written" },
    ];
    await fakes.model.control("PUT", "/script", { scripts: { restart: { steps } } });
    await using db = new Database({ url: postgres.url });
    const { id } = await engineAgent(db, ["calculate", "http_request"], {
      models: { primary: { baseURL: `${fakes.model.url}/v1`, model: "scripted" } },
      tools: { effects: [{ tool: "http_request", key: "Idempotency-Key" }] },
      // All of them are held in their model call at the same time.
      concurrency: { maxRuns: TURNS },
    });
    for (let n = 0; n < TURNS; n += 1) {
      const text = `script:restart url=${fakes.world.url}/keyed/restart/${n}`;
      await ingest(db, aMessage(id, { text, conversationKey: `restart-${n}` }));
    }
    // A crossing may take as long as the restart: what could not leave in time would be told as not sent.
    const settings = { leaseMs: 3_000, renewMs: 700, pollMs: 50, concurrency: TURNS, sendMs: 6_000 };
    const { deps } = realBench(db, { settings });
    const worker = new Worker(deps);
    worker.start();
    try {
      await fakes.model.log(TURNS);
      // Half of the answers arrive while the ledger is away, the crash meets the others' commits and writes.
      await fakes.model.control("POST", "/release");
      await fakes.world.log(TURNS / 4);
      await postgres.crash();
      await fakes.model.control("POST", "/release");
      await postgres.up();
      for (let live = TURNS; live > 0; live = await liveRuns(db)) await fakes.model.control("POST", "/release");
    } finally {
      await worker.stop();
    }
    const { rows } = await db.pool.query("select status, count(*)::int as n from runs group by 1");
    assert.deepEqual(rows, [{ status: "succeeded", n: TURNS }]);
    const writes = ((await fakes.world.log()) as WorldEntry[]).filter(({ outcome }) => outcome === "write");
    assert.deepEqual([writes.length, new Set(writes.map(({ path }) => path)).size], [TURNS, TURNS]);
    const { rows: replies } = await db.pool.query(
      "select count(*)::int as n, count(distinct run_id)::int as runs from commitment_effects where kind = 'reply'",
    );
    assert.deepEqual(replies, [{ n: TURNS, runs: TURNS }]);
    assert.deepEqual(await checkInvariants(db), []);
    assert.deepEqual(await fakes.model.control("GET", "/rejected"), []);
  });
});
