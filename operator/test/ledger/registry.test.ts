import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { Client } from "pg";
import { statements } from "#ledger/statement.ts";
import { useLedger } from "../support/postgres.ts";

const OIDS: Record<string, number> = {
  uuid: 2950,
  text: 25,
  int4: 23,
  int8: 20,
  bool: 16,
  jsonb: 3802,
  timestamptz: 1184,
  "text[]": 1009,
  "uuid[]": 2951,
};
const DUMMY: Record<string, unknown> = {
  uuid: "00000000-0000-7000-8000-000000000000",
  text: "x",
  int4: 1,
  int8: 1,
  bool: false,
  jsonb: "[]",
  timestamptz: new Date(0),
};

describe("the statement registry", () => {
  const ledger = useLedger();

  before(async () => {
    const directory = join(import.meta.dirname, "../../src/ledger");
    for (const file of await readdir(directory)) await import(join(directory, file));
  });

  it("holds every statement of the ledger", () => {
    assert.ok(statements().length >= 25, `only ${statements().length}`);
  });

  it("runs every statement against the real schema and gets the columns it declares", async () => {
    for (const statement of statements()) {
      const client = new Client({ connectionString: ledger.url });
      await client.connect();
      try {
        await client.query("begin");
        await client.query("set constraints all deferred");
        const values = statement.order.map((key) => {
          const type = statement.params[key] ?? "text";
          return type.endsWith("?") ? null : DUMMY[type];
        });
        const result = await client
          .query(statement.compiled, values)
          .catch((error: { code?: string; message: string }) => {
            // Dummy values may break a foreign key or a check, never the text.
            if (error.code?.startsWith("23") === true) return null;
            throw new Error(`${statement.name}: ${error.message}`);
          });
        if (result === null) continue;
        const found = result.fields.map((field) => `${field.name} ${field.dataTypeID}`);
        const declared = Object.entries(statement.columns).map(
          ([name, type]) => `${name} ${OIDS[type.replace("?", "")]}`,
        );
        assert.deepEqual(new Set(found), new Set(declared), statement.name);
      } finally {
        await client.end();
      }
    }
  });

  it("lets a guarded statement decide on rows that it locked, and on nothing else", () => {
    const guarded = statements().filter((statement) => statement.guarded);
    assert.ok(guarded.length >= 10);
    for (const { name, compiled } of guarded) {
      assert.match(compiled, /\blocked as \(/, name);
      assert.match(compiled, /for no key update/, name);
      const verdicts = [...compiled.matchAll(/\b(?:verdict|judged) as \((.*?)\)(?:,| select| update| insert)/g)].map(
        (match) => match[1] ?? "",
      );
      assert.ok(verdicts.length > 0, `${name} has a verdict`);
      const before = compiled.slice(0, compiled.search(/\b(?:judged|verdict) as \(/));
      assert.doesNotMatch(
        before.replaceAll("for no key update", ""),
        /\b(insert into|update [a-z_]+ [a-z]* ?set|delete from)\b/,
        name,
      );
      for (const verdict of verdicts) {
        const tables = [...verdict.matchAll(/\b(?:from|join) ([a-z_]+)/g)].map((match) => match[1]);
        const allowed = ["locked", "judged", "live_run"];
        assert.deepEqual(
          tables.filter((table) => !allowed.includes(table ?? "")),
          [],
          `${name} decides on ${tables.join(", ")}`,
        );
      }
    }
  });
});
