import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { requestStop } from "#ledger/turns.ts";
import type { Database } from "#ledger/database.ts";
import { asks, bench, done, drain, engineAgent, lost, quick, says, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

async function start(
  db: Database,
  tools: readonly string[],
  changes: Record<string, unknown> = {},
  conversationKey?: string,
) {
  const agent = await engineAgent(db, tools, changes);
  const message = aMessage(agent.id, { text: "please", ...(conversationKey === undefined ? {} : { conversationKey }) });
  const ingested = await ingest(db, message);
  if (!("runId" in ingested)) throw new Error("no run");
  return { agent, message, runId: ingested.runId, eventId: ingested.eventId };
}

const reply = async (db: Database, runId: string) => {
  const run = await readRun(db, runId);
  const call = run.calls.find((row) => row.class === "reply" && row.outcome === "real");
  return { run, text: (call?.args as { text?: string } | undefined)?.text };
};

describe("driving a turn", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  it("answers a message", async () => {
    const { runId } = await start(ledger.db, []);
    const { deps, requests } = bench(ledger.db, [says("hello")]);
    assert.equal(await drain(deps), 1);
    const { run, text } = await reply(ledger.db, runId);
    assert.deepEqual([run.status, text, run.committed, run.replied], ["succeeded", "hello", true, true]);
    assert.equal(requests.length, 1);
    assert.deepEqual(requests[0]?.messages.slice(1), [{ role: "user", content: "[user alice]\nplease" }]);
  });

  it("runs a quick iteration in one commit of one statement, and k effectful calls in k + 1 commits", async () => {
    await start(ledger.db, ["echo", "write"]);
    const tool = writer([done("one"), done("two"), done("three")]);
    const counts: [number, number][] = [];
    const note =
      <T>(value: T) =>
      () => {
        counts.push([ledger.db.counted.statements, ledger.db.counted.commits]);
        return value;
      };
    const { deps } = bench(
      ledger.db,
      [
        note(asks(["echo", { a: 1 }])),
        note(asks(["write", { to: "a" }], ["write", { to: "b" }], ["write", { to: "c" }])),
        note(says("done")),
      ],
      [quick, tool],
    );
    await drain(deps);
    const [first, second, third] = counts;
    assert.ok(first && second && third);
    assert.deepEqual([second[0] - first[0], second[1] - first[1]], [1, 1], "quick iteration");
    assert.equal(third[1] - second[1], 4, "three effects, four commits");
    assert.equal(third[0] - second[0], 8, "of two statements each");
    assert.equal(tool.sent.length, 3);
  });

  it("sends the effect's id as its key and records every outcome before the next request", async () => {
    const { runId } = await start(ledger.db, ["write"]);
    const tool = writer([done("created 17"), { kind: "failed", observation: "refused: 403" }]);
    const { deps, requests } = bench(
      ledger.db,
      [asks(["write", { to: "d" }], ["write", { to: "e" }]), says("ok")],
      [tool],
    );
    await drain(deps);
    const { run } = await reply(ledger.db, runId);
    assert.deepEqual(
      run.effects.filter((effect) => effect.kind !== "reply").map((effect) => [effect.id, effect.state]),
      [
        [tool.sent[0]?.context.effectId, "confirmed"],
        [tool.sent[1]?.context.effectId, "failed"],
      ],
    );
    assert.deepEqual(
      requests[1]?.messages.slice(-2).map((message) => message.content),
      ["created 17", "refused: 403"],
    );
  });

  it("leaves a lost write unknown where nobody declared a key, tells the model, and ends saying so", async () => {
    const { runId } = await start(ledger.db, ["write"]);
    const tool = writer([lost()]);
    const { deps, requests } = bench(ledger.db, [asks(["write", { to: "f" }]), says("I could not find out")], [tool]);
    await drain(deps);
    assert.equal(tool.sent.length, 1);
    assert.match(String(requests[1]?.messages.at(-1)?.content), /^Outcome unknown/);
    const { run } = await reply(ledger.db, runId);
    assert.equal(run.status, "succeeded");
    assert.equal(run.effects.find((effect) => effect.kind !== "reply")?.state, "unknown");
  });

  it("sends a lost write again under the same key, after its settle time, where the Agent says that the host honours it", async () => {
    const { runId } = await start(ledger.db, ["write"], {
      tools: { effects: [{ tool: "write", key: "Idempotency-Key" }] },
    });
    const tool = writer([lost(), done("created once")]);
    const { deps, requests } = bench(ledger.db, [asks(["write", { to: "g" }]), says("done")], [tool]);
    await drain(deps);
    assert.equal(tool.sent.length, 2);
    assert.equal(tool.sent[0]?.context.effectId, tool.sent[1]?.context.effectId);
    assert.equal(tool.sent[1]?.context.keyHeader, "Idempotency-Key");
    assert.equal(requests[1]?.messages.at(-1)?.content, "created once");
    const { run } = await reply(ledger.db, runId);
    assert.deepEqual([run.status, run.effects.find((effect) => effect.kind !== "reply")?.attempt], ["succeeded", 2]);
  });

  it("makes one effect of the same write asked for thirty times in one response", async () => {
    const { runId } = await start(ledger.db, ["write"]);
    const tool = writer([done("created")]);
    const calls = Array.from({ length: 30 }, (): [string, unknown] => ["write", { to: "h" }]);
    const { deps, requests } = bench(ledger.db, [asks(...calls), says("done")], [tool]);
    await drain(deps);
    assert.equal(tool.sent.length, 1);
    const results = requests[1]?.messages.filter((message) => message.role === "tool") ?? [];
    assert.equal(results.length, 30);
    assert.ok(results.every((result) => result.content.endsWith("created")));
    assert.equal((await reply(ledger.db, runId)).run.effects.filter((effect) => effect.kind !== "reply").length, 1);
  });

  it("rejects an unknown tool and malformed arguments with words for the model, and goes on", async () => {
    await start(ledger.db, ["echo", "write"]);
    const { deps, requests } = bench(
      ledger.db,
      [asks(["nope", {}], ["write", '{"to": "x'], ["write", { to: 5 }], ["echo", {}]), says("fine")],
      [quick, writer([])],
    );
    await drain(deps);
    const results =
      requests[1]?.messages.filter((message) => message.role === "tool").map((message) => message.content) ?? [];
    assert.match(results[0] ?? "", /there is no tool "nope"/);
    assert.match(results[1] ?? "", /not valid JSON/);
    assert.match(results[2] ?? "", /`to` must be a string/);
    assert.match(results[3] ?? "", /^echo/);
  });

  it("fails visibly after three responses in a row that nothing could be done with", async () => {
    const { runId } = await start(ledger.db, ["echo"]);
    const cut = { ...asks(["echo", {}]), truncated: true } as ReturnType<typeof asks>;
    const { deps, requests } = bench(ledger.db, [cut, asks(["echo", "{"]), says("")]);
    await drain(deps);
    assert.equal(requests.length, 3);
    assert.equal((await readRun(ledger.db, runId)).status, "failed");
  });

  it("tries a transient failure again, keeps the wait the endpoint asked for, and gives up in words", async () => {
    const { runId } = await start(ledger.db, []);
    const busy = { kind: "failed", class: "transient", reason: "ModelRateLimited", message: "429" } as const;
    const { deps, requests } = bench(ledger.db, [busy, busy, busy]);
    assert.equal(await drain(deps), 3);
    assert.equal(requests.length, 3);
    const { rows } = await ledger.db.pool.query("select status, reason, message from runs where id = $1", [runId]);
    assert.deepEqual(rows[0], {
      status: "failed",
      reason: "ModelRateLimited",
      message: "429 Given up after 3 attempts.",
    });
  });

  it("counts a failure from the last response on, not from the claim's first", async () => {
    const { runId } = await start(ledger.db, ["echo"]);
    const busy = { kind: "failed", class: "transient", reason: "ModelOverloaded", message: "529" } as const;
    // Two of three attempts are used up before the first response; the next call has three of its own.
    const { deps, requests } = bench(ledger.db, [busy, busy, asks(["echo", {}]), busy, busy, says("at last")]);
    await drain(deps);
    assert.equal(requests.length, 6);
    assert.equal((await reply(ledger.db, runId)).text, "at last");
  });

  it("waits with a reason while a Secret is missing, without a lease", async () => {
    const { runId } = await start(ledger.db, [], {
      models: {
        primary: { baseURL: "http://model.test/v1", model: "m", apiKeySecretRef: { name: "model-key", key: "key" } },
      },
    });
    const { deps, requests } = bench(ledger.db, [], [], { settings: { waitForPersonMs: 60_000 } });
    assert.equal(await drain(deps), 1);
    assert.equal(requests.length, 0);
    const { rows } = await ledger.db.pool.query(
      "select status, reason, message, lease_owner, due_at is not null as due from runs where id = $1",
      [runId],
    );
    assert.deepEqual(rows[0], {
      status: "running",
      reason: "SecretMissing",
      message: "create Secret model-key",
      lease_owner: null,
      due: true,
    });
  });

  it("begins no turn while its Agent is suspended, and goes on afterwards", async () => {
    const { agent, runId } = await start(ledger.db, []);
    const suspend = (value: boolean) =>
      ledger.db.pool.query("update agents set suspended = $1 where id = $2", [value, agent.id]);
    const { deps, requests } = bench(ledger.db, [says("awake")], [], { settings: { waitForPersonMs: 60_000 } });
    await suspend(true);
    assert.equal(await drain(deps), 1);
    const { rows } = await ledger.db.pool.query("select status, reason, lease_owner from runs where id = $1", [runId]);
    assert.deepEqual(
      [rows, requests.length],
      [[{ status: "running", reason: "AgentSuspended", lease_owner: null }], 0],
    );
    await suspend(false);
    await ledger.db.pool.query("update runs set due_at = pawl_now() where id = $1", [runId]);
    await drain(deps);
    assert.equal((await reply(ledger.db, runId)).text, "awake");
  });

  it("queues messages that arrive while a turn runs, and takes all of them into the next one", async () => {
    const { agent, runId } = await start(ledger.db, [], {}, "thread-1");
    const more = [1, 2, 3, 4, 5].map((n) => aMessage(agent.id, { conversationKey: "thread-1", text: `more ${n}` }));
    const { deps, requests } = bench(ledger.db, [
      async () => {
        for (const message of more) assert.equal((await ingest(ledger.db, message)).kind, "queued");
        return says("first");
      },
      says("second"),
    ]);
    assert.equal(await drain(deps), 2);
    assert.equal((await readRun(ledger.db, runId)).status, "succeeded");
    assert.deepEqual(
      requests[1]?.messages.slice(1).map((message) => message.content),
      ["[user alice]\nplease", "first", more.map((message) => `[user alice]\n${message.text}`).join("\n\n")],
    );
  });

  it("stops after the boundary with one reply that tells what was done", async () => {
    const { runId, eventId } = await start(ledger.db, ["write"]);
    const tool = writer([
      async () => {
        const stopped = await requestStop(ledger.db, {
          eventId,
          extId: "stop-1",
          actor: { connector: "kubernetes", extId: "bob" },
          why: "enough",
        });
        assert.equal(stopped, "stopping");
        return done("created");
      },
    ]);
    const { deps, requests } = bench(ledger.db, [asks(["write", { to: "s1" }], ["write", { to: "s2" }])], [tool]);
    await drain(deps);
    const { run, text } = await reply(ledger.db, runId);
    assert.deepEqual([run.status, tool.sent.length, requests.length], ["cancelled", 1, 1]);
    assert.match(text ?? "", /^Stopped, as you asked.*https:\/\/world.test\/s1: done$/s);
    assert.deepEqual(
      run.calls.map((call) => call.outcome),
      ["real", "cancelled", "real"],
    );
  });

  it("drops a turn that a person cancelled before it changed anything", async () => {
    const { runId, eventId } = await start(ledger.db, []);
    const { deps } = bench(ledger.db, [
      async () => {
        assert.equal(
          await requestStop(ledger.db, {
            eventId,
            extId: "stop-2",
            actor: { connector: "kubernetes", extId: "alice" },
            why: null,
          }),
          "cancelled",
        );
        return says("too late");
      },
    ]);
    assert.equal(await drain(deps), 1);
    const { run, text } = await reply(ledger.db, runId);
    assert.deepEqual([run.status, text, run.committed], ["cancelled", undefined, false]);
  });

  it("ends with a closing message when a budget is used up", async () => {
    const { runId } = await start(ledger.db, ["echo"], { budgets: { iterations: 2 } });
    const { deps, requests } = bench(ledger.db, [asks(["echo", {}]), asks(["echo", {}]), says("Half done. Go on?")]);
    await drain(deps);
    const { run, text } = await reply(ledger.db, runId);
    assert.deepEqual([run.status, requests.length, text], ["budget_exhausted", 3, "Half done. Go on?"]);
  });
});
