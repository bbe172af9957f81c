/** A secret that is planted in everything that comes in is in nothing that is kept: no column of the ledger, no log line. */
import assert from "node:assert/strict";
import { createLog } from "#observability/log.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import type { ModelOutcome, Tool } from "#engine/ports.ts";
import { MAX_KNOWN_SECRETS, Redaction } from "#engine/redaction.ts";
import { formsOf } from "#rules/secrets.ts";
import { asks, bench, done, drain, engineAgent, quick, says, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

const KEY = 'zq7/Secret+Value"0123\\456789';
const TOKEN = `ghp_${"aB3dE6gH9".repeat(4)}`;
/** JSON within JSON at most: storing and logging add a level each. */
const forms = formsOf(KEY).filter((form) => !/\\{5}/.test(form));
const everywhere = [KEY, TOKEN, ...forms, Buffer.from(`x${KEY}y`).toString("base64")].join(" ");
/** As JSON with every character escaped: only parsing shows what it says. */
const escaped = KEY.replaceAll(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

describe("a secret in what comes in", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  /** Every text and JSON column of every table, as PostgreSQL knows them. */
  async function everything(): Promise<string> {
    const { rows } = await ledger.db.pool.query<{ table: string; column: string }>(
      `select c.table_name as table, c.column_name as column from information_schema.columns c
       join information_schema.tables t using (table_schema, table_name)
       where c.table_schema = 'public' and t.table_type = 'BASE TABLE' and c.data_type in ('text', 'jsonb', 'ARRAY', 'character varying')`,
    );
    assert.ok(rows.length > 60, `${rows.length} columns`);
    const texts: string[] = [];
    for (const { table, column } of rows) {
      const found = await ledger.db.pool.query<{ value: unknown }>(`select "${column}" as value from "${table}"`);
      for (const { value } of found.rows) texts.push(typeof value === "string" ? value : JSON.stringify(value));
    }
    return texts.join("\n");
  }

  function assertClean(text: string, where: string): void {
    const kept = [...formsOf(KEY), TOKEN, KEY.slice(0, 12)];
    assert.deepEqual(
      kept.filter((form) => text.includes(form)),
      [],
      where,
    );
  }

  const leaking: Tool = {
    ...quick,
    name: "leak",
    execute: () => Promise.resolve({ kind: "confirmed", observation: everywhere, receipt: { [KEY]: everywhere } }),
  };
  const throwing: Tool = {
    ...writer([]),
    name: "throw",
    target: () => "https://world.test/throw",
    execute: () => Promise.reject(new Error(everywhere)),
  };

  it("is in no column and in no log line, in none of its forms", async () => {
    const agent = await engineAgent(ledger.db, ["echo", "leak", "write", "throw", "remember"], {
      models: {
        primary: {
          baseURL: "http://model.test/v1",
          model: "scripted",
          apiKeySecretRef: { name: "openai", key: "apiKey" },
        },
      },
    });
    const ingested = await ingest(ledger.db, aMessage(agent.id, { text: "please" }));
    assert.ok("runId" in ingested);
    const lines: string[] = [];
    const redaction = new Redaction();
    const log = createLog("debug", "worker-1", (line) => redaction.text(line), { write: (line) => lines.push(line) });
    const write = writer([
      { kind: "confirmed", observation: everywhere, receipt: { body: everywhere, [KEY]: 1 } },
      { kind: "failed", observation: everywhere },
      { kind: "unknown", observation: everywhere },
    ]);
    const failure = (kind: "transient" | "overflow"): ModelOutcome => ({
      kind: "failed",
      class: kind,
      reason: "ModelUnavailable",
      message: `It said: ${everywhere}`,
    });
    const said = (text: string, outcome: ModelOutcome): ModelOutcome =>
      outcome.kind === "response" ? { ...outcome, text } : outcome;
    const { deps } = bench(
      ledger.db,
      [
        failure("transient"),
        said(everywhere, asks(["echo", { n: everywhere }])),
        asks(["echo", `{"n":"${escaped}"}`], ["echo", `{"n":"${KEY}`]),
        asks(["leak", {}], ["write", { to: "a" }], ["leak", {}], ["write", { to: "b" }]),
        asks(["write", { to: KEY }], ["write", { to: "c" }]),
        asks(["throw", { to: "d" }], ["remember", { text: `The key is ${KEY}` }]),
        {
          kind: "response",
          text: null,
          calls: [{ providerId: KEY, name: TOKEN, argumentsText: everywhere }],
          truncated: false,
          usage: null,
          finishReason: KEY,
        },
        says(`The key is ${everywhere}`),
      ],
      [quick, leaking, write, throwing],
      {
        settings: { waitForPersonMs: 0 },
        deps: { redaction, log, credentials: { get: () => Promise.resolve({ kind: "found", value: `${KEY}\n` }) } },
      },
    );
    const retry = deps.retry;
    await drain({
      ...deps,
      retry: (input) => {
        const decision = retry(input);
        return decision.kind === "wait" ? { kind: "wait", ms: 0 } : decision;
      },
    });
    log.error({ error: everywhere, nested: { [KEY]: [everywhere] } }, everywhere);
    const run = await readRun(ledger.db, ingested.runId);
    assert.equal(run.status, "succeeded");
    assertClean(await everything(), "the ledger");
    assertClean(lines.join("\n"), "the log");
    assert.ok(
      lines.some((line) => line.includes("a tool threw")),
      "something was logged",
    );
    assert.ok(write.sent.every(({ args }) => !JSON.stringify(args).includes(KEY)));
    assert.deepEqual(
      write.sent.map(({ args }) => args["to"]),
      ["a", "b", "c"],
    );
    const results = run.calls.map(({ result }) => result ?? "");
    assert.equal(results.filter((result) => /arguments contain a credential/.test(result)).length, 5);
    assert.match(results.join("\n"), /\[redacted: Secret demo\/openai\]/);
    const reply = run.calls.find((call) => call.class === "reply");
    assert.match(
      (reply?.args as { text?: string } | undefined)?.text ?? "",
      /^The key is \[redacted: Secret demo\/openai\]/,
    );
    // What the model reads next is what stands in rows.
    for (const effect of run.effects) assertClean(JSON.stringify(effect), effect.id);
  });

  it("stays out of what a run says while it waits, and of what it says when it fails", async () => {
    const agent = await engineAgent(ledger.db, [], {
      models: {
        primary: { baseURL: "http://model.test/v1", model: "m", apiKeySecretRef: { name: "openai", key: "k" } },
      },
    });
    const ingested = await ingest(ledger.db, aMessage(agent.id, { text: "please" }));
    assert.ok("runId" in ingested);
    const failed: ModelOutcome = {
      kind: "failed",
      class: "transient",
      reason: "ModelUnavailable",
      message: everywhere,
    };
    const seen: string[] = [];
    const message = async (): Promise<string> => {
      const { rows } = await ledger.db.pool.query<{ message: string | null }>(
        "select message from runs where id = $1",
        [ingested.runId],
      );
      return rows[0]?.message ?? "";
    };
    const look = async (): Promise<ModelOutcome> => {
      seen.push(await message());
      return failed;
    };
    const { deps } = bench(ledger.db, [failed, look, look], [], {
      deps: { credentials: { get: () => Promise.resolve({ kind: "found", value: KEY }) } },
    });
    await drain(deps);
    seen.push(await message());
    assert.equal((await readRun(ledger.db, ingested.runId)).status, "failed");
    assert.equal(seen.length, 3);
    for (const text of seen) {
      assertClean(text, "the message");
      assert.match(text, /\[redacted: /);
    }
  });

  it("is known for as long as it may be met: the process's own for ever, others until many newer ones came", () => {
    const redaction = new Redaction([{ what: "own", value: "own-secret-0" }]);
    for (let n = 0; n <= MAX_KNOWN_SECRETS; n += 1) {
      redaction.learn({ what: "one", value: `learned-secret-${n}-` });
      // What is asked for again stays.
      redaction.learn({ what: "used", value: "used-secret-0" });
    }
    const text = "own-secret-0 used-secret-0 learned-secret-0- learned-secret-1- learned-secret-2-";
    assert.equal(
      redaction.text(text),
      "[redacted: own] [redacted: used] learned-secret-0- learned-secret-1- [redacted: one]",
    );
  });

  it("that a tool needs may be handed to it by the port, and is known before the tool has it", async () => {
    const redaction = new Redaction();
    const port = redaction.watching({ get: () => Promise.resolve({ kind: "found", value: KEY }) });
    assert.equal(redaction.text(KEY), KEY);
    await port.get("demo", { name: "mcp", key: "token" }, "mcp.test");
    assert.equal(redaction.text(KEY), "[redacted: Secret demo/mcp]");
    const tool = redaction.covering({ ...quick, execute: () => Promise.resolve(done(KEY)) });
    assert.equal(
      (await tool.execute({}, { run: {} as never, signal: new AbortController().signal, timeLimitMs: 1 })).observation,
      "[redacted: Secret demo/mcp]",
    );
  });
});
