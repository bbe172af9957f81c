/** The real worker process and a ledger that cuts its connections, or says nothing any more (C36, C37). */
import assert from "node:assert/strict";
import { sharedPostgres } from "../support/postgres.ts";
import { SilentProxy } from "../support/proxy.ts";
import { record } from "./points.ts";
import { type LogLine, WorkerProcess } from "./process.ts";
import { type Case, ended, sleep, startCase, startWorld, TIMES, type World } from "./scenario.ts";
import { scenarioOf } from "./scenarios.ts";
import type { EndState } from "./state.ts";
import { judge } from "./verdict.ts";

const scenario = scenarioOf("write");
const isClaim = (line: LogLine): boolean => line.msg === "claimed a run";

describe("a worker whose connections to the ledger", function () {
  this.timeout(90_000);
  let fakes: World;
  let wanted: EndState;
  const workers: WorkerProcess[] = [];

  before(async () => {
    fakes = await startWorld();
    wanted = (await record(await sharedPostgres(), fakes, scenario)).end;
  });
  afterEach(async () => {
    for (const worker of workers) worker.kill("SIGKILL");
    await Promise.all(workers.splice(0).map((worker) => worker.exited));
  });
  after(() => fakes.stop());

  const start = (ledgerUrl: string, name: string, failpoint?: string): WorkerProcess => {
    const worker = new WorkerProcess({ ledgerUrl, name, ...(failpoint === undefined ? {} : { failpoint }) });
    workers.push(worker);
    return worker;
  };

  /** Cuts every connection of the database but the one that asks; how many there were, by state. */
  async function cut({ db }: Case): Promise<Record<string, number>> {
    const { rows } = await db.pool.query<{ state: string }>(
      `select coalesce(state, '') as state, pg_terminate_backend(pid, 5000) from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`,
    );
    return Object.fromEntries(rows.map(({ state }) => [state, rows.filter((row) => row.state === state).length]));
  }

  const over = (item: Case): Promise<void> => ended(item, Promise.resolve(), AbortSignal.timeout(60_000));

  it("are cut while they are idle goes on with new ones, and is the same process (C36)", async () => {
    await using item = await startCase(await sharedPostgres(), fakes, scenario, async (_url, path) => {
      await fakes.world.control("PUT", "/control", { path, mode: "hold", times: 1 });
    });
    const worker = start(item.url, "a");
    // Its write is in flight: the turn waits for the world, and no connection is in use for it.
    const accepted = async () => (await fakes.world.log()).some((entry) => entry["path"] === item.notes);
    while (!(await accepted())) await sleep(20);
    assert.ok(((await cut(item))["idle"] ?? 0) > 0);
    await fakes.world.control("POST", "/release");
    await over(item);
    assert.deepEqual((await judge(fakes, item, wanted)).violations, []);
    assert.equal(worker.lines.filter(isClaim).length, 1);
    assert.equal(worker.child.exitCode, null);
  });

  for (const point of ["before:commit:1", "after:cross_effect:1", "before:finish_turn:1"]) {
    it(`are cut while one is checked out, at ${point}, does the same work over a new one (C36)`, async () => {
      await using item = await startCase(await sharedPostgres(), fakes, scenario);
      const worker = start(item.url, "a", `${point}:stop`);
      while (!worker.paused) await sleep(10);
      const states = await cut(item);
      assert.ok(Object.keys(states).length > 0);
      if (!point.includes("finish_turn")) assert.equal(states["idle in transaction"], 1);
      worker.kill("SIGCONT");
      await over(item);
      assert.deepEqual((await judge(fakes, item, wanted)).violations, []);
      assert.equal(worker.child.exitCode, null);
    });
  }

  it("go silent loses its lease by its own clock, sends nothing after that, and another one finishes (C37)", async () => {
    const postgres = await sharedPostgres();
    const proxy = await SilentProxy.start({ host: "127.0.0.1", port: postgres.port });
    try {
      await using item = await startCase(postgres, fakes, scenario);
      const through = new URL(item.url);
      through.port = String(proxy.port);
      // It stands in front of its first byte when the ledger goes silent, and has everything it needs to send.
      const first = start(through.href, "a", "before:tool.http_request:1:stop");
      while (!first.paused) await sleep(10);
      assert.ok(proxy.silence("replies") > 0);
      const heir = start(item.url, "b");
      const claimed = await heir.said(isClaim);
      // Past its lease and past `send_by`: the paused one must find both out by itself.
      await over(item);
      first.kill("SIGCONT");
      await first.said((line) => line.msg === "lease lost");
      assert.ok(claimed["takeover"] === true);
      const verdict = await judge(fakes, item, wanted);
      assert.deepEqual(verdict.violations, []);
      const sends = (await fakes.world.log()).filter((entry) => entry["path"] === item.notes);
      assert.equal(sends.length, 1, "only the heir sent");
      assert.ok(TIMES.send < TIMES.lease);
    } finally {
      await proxy.close();
    }
  });
});
