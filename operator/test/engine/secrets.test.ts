/** A key never reaches a log or a row, whoever says it. */
import assert from "node:assert/strict";
import type { ModelScript } from "@pawl/fakes";
import { useLedger } from "../support/postgres.ts";
import { driveToTheEnd, realBench, rowOf, scene, useReality } from "../support/reality.ts";

const KEY = "zq7-Secret_Value.0123456789abcdefghijklmnop";

describe("a model key", function () {
  this.timeout(20_000);
  const ledger = useLedger();
  const fakes = useReality();

  async function everyRow(): Promise<string> {
    const { rows } = await ledger.db.pool.query<{ name: string }>(
      "select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'",
    );
    const texts = await Promise.all(
      rows.map(async ({ name }) => JSON.stringify((await ledger.db.pool.query(`select * from "${name}"`)).rows)),
    );
    return texts.join("\n");
  }

  const echoed = `you sent Authorization: Bearer ${KEY}, which is wrong`;
  const answers: Record<string, Exclude<ModelScript["steps"][number], readonly unknown[]>> = {
    "a refusal": { fault: { kind: "status", status: 401, body: { error: { message: echoed } } } },
    "a failure": { fault: { kind: "status", status: 500, body: { error: { message: echoed } } } },
    "an error with status 200": { fault: { kind: "error-200", error: { message: echoed, type: "server_error" } } },
    "an error in a stream": { fault: { kind: "error-event", error: { message: echoed, code: KEY } } },
    "a quote that ends inside of it": {
      fault: { kind: "status", status: 401, body: { error: { message: `${"x ".repeat(140)}${KEY}` } } },
    },
  };
  for (const [title, answer] of Object.entries(answers)) {
    it(`that an endpoint echoes in ${title} stays out of logs, rows and messages`, async () => {
      const run = await scene(ledger.db, fakes, [answer], {
        model: { apiKeySecretRef: { name: "model-key", key: "key" } },
      });
      const logged: unknown[] = [];
      await driveToTheEnd(ledger.url, run, (db) => {
        const bench = realBench(db, {
          deps: { credentials: { get: () => Promise.resolve({ kind: "found", value: `${KEY}\n` }) } },
        });
        logged.push(bench.logged);
        return bench;
      });
      const { status, message } = await rowOf(ledger.db, run.runId);
      assert.equal(status, "failed");
      assert.match(message ?? "", /\[key\]/);
      for (const text of [JSON.stringify(logged), await everyRow()]) {
        assert.ok(!text.includes(KEY.slice(0, 8)), title);
      }
    });
  }
});
