/** Taking back a write: by the tool that the Agent declares, once, and only what is known to have taken place. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import type { ModelOutcome, ToolOutcome } from "#engine/ports.ts";
import { asks, bench, done, drain, engineAgent, finder, lost, says, type Script, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

const created = (id: number): ToolOutcome => ({
  kind: "confirmed",
  observation: `created ${id}`,
  receipt: { result: { id } },
});

describe("undo", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const compensate = { tool: "close", arguments: { to: "{to}", id: "{result.id}", of: "{effect.id}" } };
  const tools = { effects: [{ tool: "write", target: "note {to}", compensate }] };
  const closer = (answers: Parameters<typeof writer>[0]) => ({ ...writer(answers), name: "close" });

  async function agent(changes: object = tools) {
    const { id } = await engineAgent(ledger.db, ["write", "close", "find"], { tools: changes });
    const conversationKey = `undo-${uuidv7()}`;
    return async () => {
      const ingested = await ingest(ledger.db, aMessage(id, { conversationKey }));
      assert.ok("runId" in ingested);
      return ingested.runId;
    };
  }

  /** The id of the effect that the newest result names. */
  const undoNamed = (request: { messages: readonly { content?: unknown }[] }): ModelOutcome => {
    const named = /This write is effect (\S+); the tool undo takes it back/.exec(JSON.stringify(request.messages));
    return asks(["undo", { effect: named?.[1] ?? "none" }]);
  };
  const write: ModelOutcome = asks(["write", { to: "a" }]);

  async function drive(script: Script, write = writer([created(7)]), close = closer([done("closed")])) {
    const made = bench(ledger.db, script, [write, close, finder([done("[]")])]);
    await drain(made.deps);
    const results = made.requests.map((request) => String(request.messages.at(-1)?.content));
    return { ...made, results, write, close };
  }

  it("is offered only to an Agent that declares a compensation, which the result of the write then names", async () => {
    const start = await agent({});
    await start();
    const plain = await drive([write, says("ok")]);
    assert.ok(!plain.requests[0]?.tools.some(({ name }) => name === "undo"));
    assert.equal(plain.results[1], "created 7");
  });

  it("runs the declared tool with what the write was called with and answered, as an effect that points at it", async () => {
    const start = await agent();
    const runId = await start();
    const { close, results } = await drive([write, undoNamed, says("taken back")]);
    const { effects, calls } = await readRun(ledger.db, runId);
    const [first, second] = effects.filter(({ kind }) => kind !== "reply");
    assert.deepEqual(close.sent[0]?.args, { to: "a", id: 7, of: first?.id });
    assert.equal(close.sent[0]?.context.effectId, second?.id);
    assert.deepEqual([second?.kind, second?.state, second?.target], ["compensation", "confirmed", "note a"]);
    assert.equal(results[2], "closed");
    assert.deepEqual(
      calls.map(({ tool }) => tool),
      ["write", "undo", "reply"],
    );
    const { rows } = await ledger.db.pool.query("select compensates from commitment_effects where id = $1", [
      second?.id,
    ]);
    assert.deepEqual(rows, [{ compensates: first?.id }]);
  });

  it("of the same write again is the recorded result, in this turn and in a later one", async () => {
    const start = await agent();
    await start();
    const first = await drive([write, undoNamed, undoNamed, says("ok")]);
    assert.equal(first.close.sent.length, 1);
    assert.match(first.results[3] ?? "", /recorded result[^\n]*\nclosed$/);
    await start();
    const id = first.write.sent[0]?.context.effectId;
    const later = await drive([asks(["undo", { effect: id }]), says("ok")]);
    assert.equal(later.close.sent.length, 0);
    assert.match(later.results[1] ?? "", /^\(Not undone again[^\n]*\nclosed$/);
  });

  it("after which the same write is a new one", async () => {
    const start = await agent();
    await start();
    const { write: tool } = await drive([write, undoNamed, write, says("ok")]);
    assert.equal(tool.sent.length, 2);
  });

  it("is refused by words for what is not known, is not this conversation's, did not take place or cannot be undone", async () => {
    const start = await agent();
    await start();
    const elsewhere = await drive([write, says("ok")]);
    const foreign = elsewhere.write.sent[0]?.context.effectId;
    const other = await agent();
    await other();
    const refusal = async (script: Script, tool = writer([created(1)])) =>
      (await drive([...script, says("ok")], tool)).results.at(-1) ?? "";
    assert.match(await refusal([asks(["undo", { effect: foreign }])]), /this conversation knows no such effect/);
    await other();
    assert.match(await refusal([asks(["undo", { effect: "seven" }])]), /effect must be the id of an effect/);
    const ofLast = (tool: ReturnType<typeof writer>) => () =>
      asks(["undo", { effect: tool.sent[0]?.context.effectId }]);
    for (const [answer, why] of [
      [lost(), /its outcome is not known/],
      [{ kind: "failed", observation: "422" } as const, /did not take place/],
      [done("no JSON"), /\{result\.id\} of the declared arguments is not known/],
    ] as const) {
      await other();
      const tool = writer([answer]);
      assert.match(await refusal([write, ofLast(tool)], tool), why);
    }
  });

  it("whose own answer was lost is looked for like any other write, and never sent twice", async () => {
    const probe = { tool: "find", arguments: { key: "{effect.id}" } };
    const start = await agent({ effects: [...tools.effects, { tool: "close", probe }] });
    const runId = await start();
    const close = closer([lost()]);
    const found = finder([(sent) => done(String(sent.args["key"]))]);
    const { deps } = bench(ledger.db, [write, undoNamed, says("ok")], [writer([created(7)]), close, found]);
    await drain(deps);
    assert.deepEqual([close.sent.length, found.sent.length], [1, 1]);
    const { effects } = await readRun(ledger.db, runId);
    assert.deepEqual(
      effects.filter(({ kind }) => kind !== "reply").map(({ kind, state }) => [kind, state]),
      [
        ["tool.effect", "confirmed"],
        ["compensation", "confirmed"],
      ],
    );
  });

  it("by a tool that a person must approve waits for that person, too: it is no way around (C53)", async () => {
    const start = await agent({ ...tools, requireApproval: ["close"] });
    const runId = await start();
    const { close } = await drive([write, undoNamed]);
    const { calls } = await readRun(ledger.db, runId);
    assert.deepEqual([close.sent.length, calls.at(-1)?.tool, calls.at(-1)?.gate], [0, "undo", "open"]);
  });
});
