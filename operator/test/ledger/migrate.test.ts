import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { checkSchema, incompatibility, migrate, migrations } from "#ledger/migrate.ts";
import { sharedPostgres } from "../support/postgres.ts";

const SHIPPED = join(import.meta.dirname, "../../migrations");
/** The one that everything began with; what came later is written by each test. */
const FIRST = "0001_ledger.sql";

describe("migrations", function () {
  this.timeout(60_000);
  let directory = "";

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "pawl-migrations-"));
    await writeFile(join(directory, FIRST), await readFile(join(SHIPPED, FIRST)));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  const write = (file: string, text: string) => writeFile(join(directory, file), text);
  const empty = async () => (await sharedPostgres()).create({ empty: true });

  async function query<R extends object>(url: string, text: string): Promise<R[]> {
    const client = new Client({ connectionString: url });
    await client.connect();
    try {
      return (await client.query<R>(text)).rows;
    } finally {
      await client.end();
    }
  }

  /** Every table, column, index and constraint, as text. */
  const schemaOf = (url: string) =>
    query(
      url,
      `select table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable as line
         from information_schema.columns where table_schema = 'public'
       union all select indexdef from pg_indexes where schemaname = 'public'
       union all select conrelid::regclass || ' ' || pg_get_constraintdef(oid) from pg_constraint
         where connamespace = 'public'::regnamespace order by 1`,
    );
  const appliedTo = async (url: string) =>
    (await query<{ name: string }>(url, "select name from schema_migrations order by version")).map(({ name }) => name);

  it("by twenty at once end in one schema, each migration applied by one of them", async () => {
    await write("0002_more.sql", "create table more (id int primary key);\n");
    const [crowd, single] = [await empty(), await empty()];
    const done = await Promise.all(Array.from({ length: 20 }, () => migrate({ url: crowd, directory })));
    assert.deepEqual(
      done.flat().toSorted((a, b) => a - b),
      [1, 2],
    );
    assert.deepEqual(await migrate({ url: single, directory }), [1, 2]);
    const schema = await schemaOf(single);
    assert.ok(schema.length > 150);
    assert.deepEqual(await schemaOf(crowd), schema);
    assert.deepEqual(await migrate({ url: crowd, directory }), [], "a second time there is nothing to do");
  });

  it("tell what they apply, in order", async () => {
    await write("0002_more.sql", "create table more (id int primary key);\n");
    const lines: string[] = [];
    await migrate({ url: await empty(), directory, log: (line) => lines.push(line) });
    assert.deepEqual(lines, ["applying 0001_ledger.sql", "applying 0002_more.sql"]);
  });

  it("are refused when one that was applied has another text now", async () => {
    const url = await empty();
    await migrate({ url });
    await query(url, "update schema_migrations set sha256 = 'other' where version = 1");
    const message = "migration 0001_ledger.sql in the ledger differs from the one in this version";
    const expected = { kind: "terminal", reason: "SchemaIncompatible", message };
    await assert.rejects(migrate({ url }), expected);
    await assert.rejects(checkSchema(url), expected);
  });

  it("of newer code are tolerated when they break nothing, and refused when they do", async () => {
    const shipped = await migrations();
    for (const { name } of shipped) await write(name, await readFile(join(SHIPPED, name), "utf8"));
    for (const breaking of [false, true]) {
      const url = await empty();
      await write("9000_newer.sql", `-- pawl:breaking=${breaking}\ncreate table newer (id int primary key);\n`);
      assert.deepEqual(await migrate({ url, directory }), [...shipped.map(({ version }) => version), 9000]);
      if (!breaking) {
        assert.deepEqual(await migrate({ url }), []);
        await checkSchema(url);
        continue;
      }
      const expected = {
        kind: "terminal",
        reason: "SchemaIncompatible",
        message: "the ledger was migrated by newer code (9000_newer.sql) that this version cannot read",
      };
      await assert.rejects(migrate({ url }), expected);
      await assert.rejects(checkSchema(url), expected);
    }
  });

  it("that fail leave nothing of themselves, and everything before them", async () => {
    const url = await empty();
    await write("0002_good.sql", "create table good (id int primary key);\n");
    await write("0003_bad.sql", "create table half (id int primary key);\ncreate table half (id int);\n");
    await assert.rejects(migrate({ url, directory }), /relation "half" already exists/);
    assert.deepEqual(await appliedTo(url), ["0001_ledger.sql", "0002_good.sql"]);
    const [found] = await query(url, "select to_regclass('good')::text as good, to_regclass('half')::text as half");
    assert.deepEqual(found, { good: "good", half: null });
    await write("0003_bad.sql", "create table half (id int primary key);\n");
    assert.deepEqual(await migrate({ url, directory }), [3], "the lock was given back, the mended text applies");
  });

  it("that fail say in which way they cannot help themselves", async () => {
    const url = await empty();
    await write("0002_bad.sql", "creat table typo ();\n");
    await assert.rejects(migrate({ url, directory }), {
      kind: "terminal",
      reason: "MigrationFailed",
      message: /0002_bad.sql.*syntax error/,
    });
  });

  it("must have a number each and be named after what they bring", async () => {
    await write("0003_later.sql", "");
    assert.deepEqual(
      (await migrations(directory)).map(({ version }) => version),
      [1, 3],
      "a number may be reserved for one that comes later",
    );
    await write("0003_other.sql", "");
    await assert.rejects(migrations(directory), { reason: "MigrationTwice", message: /0003_later.sql and 0003_other/ });
    await write("0002-odd.sql", "");
    await assert.rejects(migrations(directory), { reason: "MigrationName" });
  });

  it("that come with a lower number after a higher one are applied all the same", async () => {
    const url = await empty();
    await write("0003_later.sql", "create table later (id int primary key);\n");
    assert.deepEqual(await migrate({ url, directory }), [1, 3]);
    await write("0002_earlier.sql", "create table earlier (id int primary key);\n");
    assert.deepEqual(await migrate({ url, directory }), [2]);
  });

  it("wait for the one who holds the lock and can be told to stop waiting", async () => {
    const url = await empty();
    const holder = new Client({ connectionString: url });
    await holder.connect();
    try {
      await holder.query("select pg_advisory_lock($1)", [0x7061776c]);
      await assert.rejects(migrate({ url, directory, signal: AbortSignal.abort() }), { kind: "cancelled" });
      const waiting = migrate({ url, directory });
      await holder.query("select pg_advisory_unlock($1)", [0x7061776c]);
      assert.deepEqual(await waiting, [1]);
    } finally {
      await holder.end();
    }
  });

  it("refuse a database that may lose what it confirmed", async () => {
    const url = await empty();
    const name = new URL(url).pathname.slice(1);
    await (await sharedPostgres()).admin(`alter database ${name} set synchronous_commit = off`);
    const expected = {
      kind: "terminal",
      reason: "SynchronousCommitOff",
      message: /synchronous_commit is off.*set it to on/,
    };
    await assert.rejects(migrate({ url }), expected);
    await assert.rejects(checkSchema(url), expected);
    for (const setting of ["local", "remote_write", "on", "remote_apply"]) {
      await (await sharedPostgres()).admin(`alter database ${name} set synchronous_commit = ${setting}`);
      await migrate({ url });
    }
  });

  it("are asked for when the schema is missing or older than the code", async () => {
    const url = await empty();
    const expected = { kind: "transient", reason: "SchemaBehind", message: /run `pawl migrate`/ };
    await assert.rejects(checkSchema(url), expected);
    await migrate({ url });
    await checkSchema(url);
    await query(url, "delete from schema_migrations");
    await assert.rejects(checkSchema(url), expected);
  });

  it("of an unreachable server are worth another try", async () => {
    const url = "postgres://nobody@127.0.0.1:1/none";
    await assert.rejects(migrate({ url }), { kind: "transient", reason: "LedgerUnavailable" });
    await assert.rejects(checkSchema(url), { kind: "transient", reason: "LedgerUnavailable" });
  });

  it("fit the code if every one that it knows has the same text, and nothing newer breaks", () => {
    const one = { version: 1, name: "0001_a.sql", sha256: "a", breaking: true };
    const known = [{ ...one, sql: "" }];
    assert.equal(incompatibility(known, []), null);
    assert.equal(incompatibility(known, [one]), null, "a breaking migration that is known breaks nothing");
    assert.match(incompatibility(known, [{ ...one, sha256: "b" }]) ?? "", /differs/);
    assert.match(incompatibility(known, [one, { ...one, version: 2, name: "0002_b.sql" }]) ?? "", /0002_b\.sql/);
    assert.equal(incompatibility(known, [one, { ...one, version: 2, breaking: false }]), null);
  });
});
