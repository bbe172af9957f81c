/** What an iteration costs, by counting statements, commits, plans and row versions; never by time. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { settleEffect } from "#ledger/effects.ts";
import { claimRun, nextDue, renewLease } from "#ledger/leases.ts";
import { commitResults } from "#ledger/steps.ts";
import { statements } from "#ledger/statement.ts";
import { alone, end, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { RecordingDatabase } from "../support/verdicts.ts";
import { aCall, aClaimedRun, anAgent, aRun, CODE, cross, respond } from "../support/world.ts";

type Plan = { "Node Type": string; "Index Name"?: string; "Relation Name"?: string; Plans?: Plan[] };

describe("the cost of an iteration", () => {
  const ledger = useLedger();
  const confirmed = { state: "confirmed", receipt: { status: 201 }, observation: "201" } as const;

  /** What `body` sends and commits. */
  async function costOf(body: () => Promise<unknown>): Promise<{ statements: number; commits: number }> {
    const before = { ...ledger.db.counted };
    await body();
    const { statements: sent, commits } = ledger.db.counted;
    return { statements: sent - before.statements, commits: commits - before.commits };
  }

  it("with quick calls is one commit of one statement, however many they are", async () => {
    const run = await aClaimedRun(ledger.db);
    const quick = { class: "pure", kind: "tool.query", target: null, outcome: "real", result: "12:00" } as const;
    for (const [index, many] of [1, 5].entries()) {
      const calls = Array.from({ length: many }, (_, idx) => aCall({ idx, ...quick }));
      const cost = await costOf(() => respond(ledger.db, run, calls, { ordinal: index + 1 }));
      assert.deepEqual(cost, { statements: 1, commits: 1 });
    }
  });

  for (const k of [1, 2, 5]) {
    it(`with ${k} effectful calls is ${k + 1} commits of at most two statements each`, async () => {
      const run = await aClaimedRun(ledger.db);
      const calls = Array.from({ length: k }, (_, idx) => aCall({ idx, target: `issue/${idx}` }));
      const ids = calls.map(() => ({ nonce: uuidv7(), effectId: uuidv7() }));
      const crossing = (tx: Parameters<typeof cross>[0], index: number) => {
        const call = calls[index];
        assert.ok(call !== undefined);
        return cross(tx, run, call, ids[index]);
      };
      const settling = (tx: Parameters<typeof cross>[0], index: number) => {
        const id = ids[index];
        assert.ok(id !== undefined);
        return settleEffect(tx, { ...id, ...confirmed });
      };
      const cost = await costOf(async () => {
        await ledger.db.transaction(async (tx) => {
          await respond(tx, run, calls);
          assert.equal((await crossing(tx, 0)).result.kind, "crossed");
        });
        for (let index = 1; index < k; index += 1) {
          await ledger.db.transaction(async (tx) => {
            assert.equal(await settling(tx, index - 1), "settled");
            assert.equal((await crossing(tx, index)).result.kind, "crossed");
          });
        }
        const results = calls.map(({ id }) => ({ id, outcome: "real" as const, result: "201" }));
        await ledger.db.transaction(async (tx) => {
          assert.equal(await settling(tx, k - 1), "settled");
          assert.equal((await commitResults(tx, { ...run, nonce: uuidv7() }, results)).kind, "committed");
        });
      });
      assert.deepEqual(cost, { statements: 2 * (k + 1), commits: k + 1 });
    });
  }

  it("leaves nine updates of its run in ten on their page: no index is written for them", async () => {
    // A database with one connection, so that its counts are whole once it was told to report them.
    await using db = new RecordingDatabase({ url: await ledger.postgres.create(), max: 1 });
    const run = await aClaimedRun(db);
    for (let ordinal = 1; ordinal <= 20; ordinal += 1) {
      const call = aCall({ class: "pure", kind: "tool.query", target: null });
      await respond(db, run, [call], { ordinal });
      if (ordinal % 3 === 0) await renewLease(db, run.runId, run.token, 10_000);
      const results = [{ id: call.id, outcome: "real" as const, result: "200" }];
      await commitResults(db, { ...run, nonce: uuidv7() }, results);
    }
    await end(db, run);
    await sql(db, "select pg_stat_force_next_flush()");
    const [row] = await sql<{ all: number; hot: number }>(
      db,
      "select n_tup_upd as all, n_tup_hot_upd as hot from pg_stat_user_tables where relname = 'runs'",
    );
    assert.equal(row?.all, 1 + 20 + 6 + 20 + 1, "claim, responses, renewals, results, end");
    assert.ok(row.hot >= 0.9 * row.all, `${row.hot} of ${row.all} were HOT`);
  });

  describe("in a ledger of 5,000 queued and 20,000 ended runs", () => {
    before(async function () {
      this.timeout(60_000);
      await alone(ledger);
      const agent = await anAgent(ledger.db);
      const model = await aRun(ledger.db);
      await sql(
        ledger,
        `with made as (
           select gen_random_uuid() as conversation, gen_random_uuid() as request, gen_random_uuid() as run, n, n <= 5000 as live
           from generate_series(1, 25000) n),
         c as (
           insert into conversations (id, agent_id, connector, ext_key, live_run, created_at)
           select conversation, $1, 'load', n::text, case when live then run end, pawl_now() from made),
         q as (
           insert into logical_requests (id, conversation_id, requester, opened_at)
           select request, conversation, (select id from actors limit 1), pawl_now() from made)
         insert into runs (id, root_id, conversation_id, request_id, journal_scope, agent_id, agent_generation, status, live,
                           due_at, version, queued_at, ended_at, changed_at)
         select run, run, conversation, request, run, $1, 1, case when live then 'queued' else 'succeeded' end, live,
                case when live then pawl_now() - n * interval '1 ms' end, 1, pawl_now(), case when not live then pawl_now() end, pawl_now()
         from made`,
        [agent.id],
      );
      await sql(ledger, "update runs set due_at = pawl_now() - interval '1 hour' where id = $1", [model.runId]);
      await sql(ledger, "analyze");
    });

    /** Every node of the plan that touches a table, as `table by index`. */
    async function scansOf(name: string, params: Readonly<Record<string, unknown>>): Promise<string[]> {
      const statement = statements().find((candidate) => candidate.name === name);
      assert.ok(statement !== undefined);
      assert.deepEqual(new Set(Object.keys(params)), new Set(statement.order));
      const client = await ledger.db.pool.connect();
      try {
        await client.query("begin");
        const { rows } = await client.query<{ "QUERY PLAN": { Plan: Plan }[] }>(
          `explain (format json) ${statement.compiled}`,
          statement.order.map((key) => params[key]),
        );
        const scans: string[] = [];
        const visit = (node: Plan) => {
          if (node["Node Type"].includes("Scan") && (node["Relation Name"] ?? node["Index Name"]) !== undefined) {
            scans.push(`${node["Relation Name"] ?? "bitmap"} by ${node["Index Name"] ?? node["Node Type"]}`);
          }
          for (const child of node.Plans ?? []) visit(child);
        };
        const plan = rows[0]?.["QUERY PLAN"][0]?.Plan;
        assert.ok(plan !== undefined);
        visit(plan);
        return scans;
      } finally {
        await client.query("rollback");
        client.release();
      }
    }

    it("a claim reads of runs their partial indexes and the one that it takes, and never all of anything", async () => {
      const scans = await scansOf("claim_run", { owner: "worker-1", lease_ms: 10_000, code: CODE, max_runs: 100 });
      const ofRuns = new Set(scans.filter((scan) => scan.startsWith("runs ")));
      const partial = ["runs by runs_leased", "runs by runs_begun", "runs by runs_due", "runs by runs_pkey"];
      assert.deepEqual(ofRuns, new Set(partial));
    });

    it("a look at what comes next reads the two partial indexes only", async () => {
      const scans = await scansOf("next_due", { code: CODE });
      assert.deepEqual(new Set(scans), new Set(["runs by runs_leased", "runs by runs_due"]));
      assert.equal(await nextDue(ledger.db, CODE), 0);
    });

    it("a claim takes the run that has waited longest", async () => {
      const [oldest] = await sql<{ id: string }>(ledger, "select id from runs where live order by due_at limit 1");
      assert.equal((await claimRun(ledger.db, "worker-1", 10_000, CODE))?.runId, oldest?.id);
    });

    const RUN = { run: uuidv7(), token: 1 };
    for (const [name, params] of [
      ["renew_lease", { ...RUN, lease_ms: 1000, streamed: 0 }],
      ["release_lease", { ...RUN, delay_ms: 0, reason: null, message: null, failed: false }],
      ["commit_results", { ...RUN, nonce: uuidv7(), results: "[]", bound: null }],
    ] as const) {
      it(`${name} never reads all runs`, async () => {
        const scans = await scansOf(name, params);
        assert.ok(scans.length > 0);
        assert.deepEqual(
          scans.filter((scan) => scan.includes("Seq Scan") && scan.startsWith("runs")),
          [],
        );
      });
    }
  });
});
