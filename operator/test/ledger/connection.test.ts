/** What a bad connection, a server that goes away and a conflict at COMMIT do to one logical result: nothing. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { armFailpoint, disarmFailpoint } from "#src/failpoints.ts";
import { settleEffect } from "#ledger/effects.ts";
import { ingest } from "#ledger/mailbox.ts";
import { hold, untilBlocked } from "../support/interleave.ts";
import { alone, count, end, runRow, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { SilentProxy } from "../support/proxy.ts";
import { RecordingDatabase } from "../support/verdicts.ts";
import { aCall, aClaimedRun, aMessage, cross, respond } from "../support/world.ts";
import { readDatabaseTime } from "#ledger/mirrors.ts";
import { renewLease } from "#ledger/leases.ts";

const confirmed = { state: "confirmed", receipt: { status: 201 }, observation: "201" } as const;

describe("the connection to PostgreSQL", () => {
  const ledger = useLedger();

  afterEach(disarmFailpoint);

  /** A Database that can be told apart in pg_stat_activity. */
  function named(name: string, changes: object = {}) {
    return new RecordingDatabase({ url: ledger.url, name, max: 4, ...changes });
  }
  const terminate = (name: string) =>
    sql<{ gone: boolean }>(
      ledger,
      "select pg_terminate_backend(pid, 5000) as gone from pg_stat_activity where application_name = $1",
      [name],
    );

  describe("that was cut by the server", () => {
    it("while idle is replaced at the next use, each of them", async () => {
      await using db = named("idle");
      await Promise.all([1, 2, 3, 4].map(() => db.transaction((tx) => readDatabaseTime(tx))));
      const opened = db.pool.totalCount;
      assert.ok(opened >= 1);
      const cut = await terminate("idle");
      assert.equal(cut.length, opened);
      assert.ok(cut.every(({ gone }) => gone));
      const times = await Promise.all([1, 2, 3, 4].map(() => readDatabaseTime(db)));
      assert.equal(times.length, 4);
    });

    it("in the middle of a transaction leaves one logical result", async () => {
      await using db = named("middle");
      const run = await aClaimedRun(ledger.db);
      const [call, nonce, ids] = [aCall(), uuidv7(), { nonce: uuidv7(), effectId: uuidv7() }];
      let bodies = 0;
      const answers = await db.transaction(async (tx) => {
        bodies += 1;
        const { kind } = await respond(tx, run, [call], { nonce });
        if (bodies === 1) await terminate("middle");
        return [kind, (await cross(tx, run, call, ids)).result.kind];
      });
      assert.equal(bodies, 2);
      assert.deepEqual(answers, ["committed", "crossed"], "the first try left nothing behind");
      assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 1);
      assert.equal(await count(ledger, "commitment_effects where run_id = $1", [run.runId]), 1);
    });

    it("while a statement waits for a lock leaves one logical result", async () => {
      await using db = named("waiting");
      const run = await aClaimedRun(ledger.db);
      const held = await hold(ledger.db, (tx) => renewLease(tx, run.runId, run.token, 10_000));
      const response = respond(db, run, []);
      await untilBlocked(ledger.url);
      await terminate("waiting");
      await held.commit();
      assert.equal((await response).kind, "committed");
      assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 1);
    });

    it("is not opened again by a Database that was closed: its caller is told at once", async () => {
      await using db = named("closed");
      await db.close();
      await assert.rejects(readDatabaseTime(db), { kind: "transient", reason: "LedgerUnavailable" });
    });
  });

  describe("that says nothing", () => {
    const through = async (body: (db: RecordingDatabase, proxy: SilentProxy) => Promise<void>) => {
      const proxy = await SilentProxy.start({ host: "127.0.0.1", port: ledger.postgres.port });
      const url = new URL(ledger.url);
      url.port = String(proxy.port);
      const db = new RecordingDatabase({ url: url.href, max: 1, replyTimeoutMs: 200 });
      try {
        await body(db, proxy);
      } finally {
        await db.close();
        await proxy.close();
      }
    };

    it("after the request arrived is dropped, and the commit that stood is found", () =>
      through(async (db, proxy) => {
        const run = await aClaimedRun(ledger.db);
        await readDatabaseTime(db);
        assert.equal(proxy.silence("replies"), 1);
        assert.equal((await respond(db, run, [aCall()])).kind, "already");
        assert.equal(await count(ledger, "tool_calls where run_id = $1", [run.runId]), 1);
      }));

    it("before the request arrived is dropped, and the commit is made", () =>
      through(async (db, proxy) => {
        const run = await aClaimedRun(ledger.db);
        await readDatabaseTime(db);
        assert.equal(proxy.silence("requests"), 1);
        assert.equal((await respond(db, run, [aCall()])).kind, "committed");
        assert.equal(await count(ledger, "tool_calls where run_id = $1", [run.runId]), 1);
      }));

    it("past the lease finds it lost, and dispatches nothing", () =>
      through(async (db, proxy) => {
        const run = await aClaimedRun(ledger.db);
        const call = aCall();
        await respond(db, run, [call]);
        proxy.silence("requests");
        const crossing = cross(db, run, call);
        await sql(ledger, "update runs set lease_until = pawl_now() where id = $1", [run.runId]);
        assert.equal((await crossing).result.kind, "fenced");
        assert.equal((await renewLease(db, run.runId, run.token, 10_000)).kind, "lost");
        assert.equal(await count(ledger, "commitment_effects where run_id = $1", [run.runId]), 0);
      }));
  });

  describe("at COMMIT", () => {
    /** The server itself refuses the first COMMIT that inserts into `table` with this SQLSTATE. */
    async function refusingOnce(table: string, state: string): Promise<void> {
      await sql(
        ledger,
        `drop table if exists refused; drop sequence if exists refusals cascade; create sequence refusals;
         create or replace function refuse_once() returns trigger language plpgsql as $$ begin
           if nextval('refusals') = 1 then raise exception 'refused at commit' using errcode = '${state}'; end if;
           return null; end $$;
         drop trigger if exists refuse on ${table};
         create constraint trigger refuse after insert on ${table} deferrable initially deferred
           for each row execute function refuse_once()`,
      );
    }
    const refusals = async () =>
      Number((await sql<{ n: string }>(ledger, "select last_value as n from refusals"))[0]?.n);

    afterEach(() => sql(ledger, "drop function if exists refuse_once cascade"));

    for (const state of ["40001", "40P01"]) {
      it(`a ${state} runs the same body again: one logical result of one statement`, async () => {
        const run = await aClaimedRun(ledger.db);
        await refusingOnce("run_steps", state);
        assert.equal((await respond(ledger.db, run, [aCall()])).kind, "committed");
        assert.equal(await refusals(), 2);
        assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 1);
      });

      it(`a ${state} runs the same body again: one logical result of two statements`, async () => {
        const run = await aClaimedRun(ledger.db);
        const calls = [aCall({ target: "issue/1" }), aCall({ idx: 1, target: "issue/2" })] as const;
        await respond(ledger.db, run, calls);
        const { request } = await cross(ledger.db, run, calls[0]);
        await refusingOnce("commitment_effects", state);
        const ids = { nonce: uuidv7(), effectId: uuidv7() };
        const answers = await ledger.db.transaction(async (tx) => [
          await settleEffect(tx, { ...request, ...confirmed }),
          (await cross(tx, run, calls[1], ids)).result.kind,
        ]);
        assert.deepEqual(answers, ["settled", "crossed"]);
        assert.equal(await refusals(), 2);
        assert.equal(await count(ledger, "commitment_effects where run_id = $1", [run.runId]), 2);
      });
    }

    it("the answer ROLLBACK is a failure: what the body thought it did is done again", async () => {
      const run = await aClaimedRun(ledger.db);
      let bodies = 0;
      const kind = await ledger.db.transaction(async (tx) => {
        bodies += 1;
        const answer = await respond(tx, run, []);
        // A statement fails, and somebody swallows that: the server rolls back, politely.
        if (bodies === 1) await ingest(tx, aMessage(uuidv7())).catch(() => {});
        return answer.kind;
      });
      assert.equal(bodies, 2);
      assert.equal(kind, "committed");
      assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 1);
    });
  });

  describe("in a pool", () => {
    it("is never handed on with an open transaction, whatever the body threw", async () => {
      await using db = named("dirty", { max: 1 });
      const run = await aClaimedRun(ledger.db);
      const oops = new TypeError("a fault in the body");
      let bodies = 0;
      const broken = db.transaction(async (tx) => {
        bodies += 1;
        await respond(tx, run, []);
        throw oops;
      });
      await assert.rejects(
        broken,
        (error) => error === oops,
        "as it was thrown: nothing to retry, nothing to classify",
      );
      assert.equal(bodies, 1);
      assert.equal(await count(db, "pg_stat_activity where pid = pg_backend_pid() and xact_start < query_start"), 0);
      assert.equal(await count(db, "run_steps where run_id = $1", [run.runId]), 0);
    });

    it("is never handed on after a lost reply in the middle of a transaction", async () => {
      await using db = named("lost", { max: 1 });
      const run = await aClaimedRun(ledger.db);
      const nonce = uuidv7();
      const pids: unknown[] = [];
      armFailpoint("after:commit_response:1:swallow");
      await db.transaction(async (tx) => {
        pids.push((await sql(ledger, "select pid from pg_stat_activity where application_name = 'lost'"))[0]?.["pid"]);
        return respond(tx, run, [], { nonce });
      });
      assert.equal(pids.length, 2);
      assert.notEqual(pids[0], pids[1], "the doubtful connection was thrown away");
      assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 1);
    });

    it("keeps the server's limits on statements, locks and forgotten transactions", async () => {
      const [row] = await sql(
        ledger,
        `select current_setting('statement_timeout') as s, current_setting('lock_timeout') as l,
           current_setting('idle_in_transaction_session_timeout') as i`,
      );
      assert.deepEqual(row, { s: "10s", l: "5s", i: "5s" });
    });

    it("carries the skew of database time that a test asks for", async () => {
      await using later = named("later", { settings: { "pawl.skew": "1 hour" } });
      const [now, then] = [await readDatabaseTime(ledger.db), await readDatabaseTime(later)];
      assert.ok(Math.abs(then.getTime() - now.getTime() - 3_600_000) < 60_000);
    });
  });

  it("lets a whole turn pass while every connection is cut between any two of its steps", async () => {
    await using db = named("cut");
    await alone(ledger);
    const run = await aClaimedRun(db);
    const [call, reply] = [aCall(), aCall({ idx: 1, class: "reply", kind: "reply", target: null })];
    await terminate("cut");
    assert.equal((await respond(db, run, [call, reply])).kind, "committed");
    await terminate("cut");
    const { request } = await cross(db, run, call);
    await terminate("cut");
    assert.equal(await settleEffect(db, { ...request, ...confirmed }), "settled");
    await terminate("cut");
    assert.equal((await cross(db, run, reply, { receipt: { row: true } })).result.kind, "crossed");
    await terminate("cut");
    assert.equal((await end(db, run)).kind, "finished");
    assert.equal((await runRow(ledger, run.runId)).status, "succeeded");
  });
});
