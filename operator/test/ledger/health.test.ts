import assert from "node:assert/strict";
import { Client } from "pg";
import { oldestSnapshotMs } from "#ledger/health.ts";
import { useLedger } from "../support/postgres.ts";

describe("the age of the oldest snapshot", () => {
  const ledger = useLedger();

  it("rises while somebody holds one open, and is nothing otherwise (C41)", async () => {
    assert.equal(await oldestSnapshotMs(ledger.db), 0);
    const reader = new Client({ connectionString: ledger.url });
    await reader.connect();
    try {
      await reader.query("begin isolation level repeatable read");
      await reader.query("select count(*) from runs");
      const first = await oldestSnapshotMs(ledger.db);
      await ledger.db.pool.query("select pg_sleep(0.02)");
      assert.ok((await oldestSnapshotMs(ledger.db)) >= first + 20);
      await reader.query("commit");
      assert.equal(await oldestSnapshotMs(ledger.db), 0);
    } finally {
      await reader.end();
    }
  });
});
