/** Writes whose answer was lost and that can be looked for: what the look says is what happens next. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { driveRun } from "#engine/drive.ts";
import type { ToolOutcome } from "#engine/ports.ts";
import { MAX_EFFECT_ATTEMPTS, MAX_PROBES } from "#rules/journal.ts";
import { CODE } from "#rules/limits.ts";
import { asks, bench, done, drain, engineAgent, finder, lost, says, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

const nothing = done("[]");
const away: ToolOutcome = { kind: "failed", observation: "HTTP 503" };
const gone: ToolOutcome = { kind: "failed", observation: "HTTP 404", absent: true };

describe("a write that can be looked for", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const probe = { tool: "find", arguments: { key: "{effect.id}", at: "{to}" } };
  const conclusive = { probe: { ...probe, absenceIsConclusive: true } };

  async function start(declared: Record<string, unknown>) {
    const effects = [{ tool: "write", ...declared }];
    const agent = await engineAgent(ledger.db, ["write", "find"], { tools: { effects } });
    const ingested = await ingest(ledger.db, aMessage(agent.id));
    assert.ok("runId" in ingested);
    return ingested.runId;
  }

  /** One response that writes, one that answers. `sends` and `looks` are answered in order. */
  async function told(
    declared: Record<string, unknown>,
    sends: Parameters<typeof writer>[0],
    looks: Parameters<typeof finder>[0],
  ) {
    const runId = await start(declared);
    const [write, find] = [writer(sends), finder(looks)];
    const { deps, requests } = bench(ledger.db, [asks(["write", { to: "a" }]), says("ok")], [write, find]);
    await drain(deps);
    const run = await readRun(ledger.db, runId);
    const effect = run.effects.find(({ kind }) => kind === "tool.effect");
    const content = String(requests[1]?.messages.at(-1)?.content);
    return { write, find, effect, content, run };
  }

  it("is confirmed by the look that finds its id, and is not sent again, though it has a key", async () => {
    const found = (sent: { args: Readonly<Record<string, unknown>> }) => done(`note ${String(sent.args["key"])}`);
    const { write, find, effect, content } = await told({ probe, key: "Idempotency-Key" }, [lost()], [found]);
    assert.deepEqual([write.sent.length, find.sent.length], [1, 1]);
    assert.deepEqual(find.sent[0]?.args, { key: write.sent[0]?.context.effectId, at: "a" });
    assert.equal(effect?.state, "confirmed");
    assert.match(content, /^Its answer was lost; find found that it took place:\nnote /);
    const { rows } = await ledger.db.pool.query("select resolved_by, receipt from commitment_effects where id = $1", [
      effect.id,
    ]);
    assert.deepEqual(rows, [{ resolved_by: "probe", receipt: { probe: "find", result: { found: 1 } } }]);
  });

  it("is unknown where nothing is found and nobody said that this proves anything", async () => {
    const { write, find, effect, content } = await told({ probe }, [lost()], [nothing]);
    assert.deepEqual([write.sent.length, find.sent.length, effect?.state], [1, 1, "unknown"]);
    assert.match(content, /^Outcome unknown: [\s\S]*A look for it found nothing, which does not prove/);
  });

  it("is sent again under the same id where the absence is conclusive, without any key", async () => {
    for (const absent of [nothing, gone]) {
      const { write, effect, content } = await told(conclusive, [lost(), done("created")], [absent]);
      assert.deepEqual([write.sent.length, effect?.state, effect?.attempt], [2, "confirmed", 2]);
      assert.equal(new Set(write.sent.map(({ context }) => context.effectId)).size, 1);
      assert.equal(content, "created");
    }
  });

  it("has failed, for certain, when it is refused after a send that left nothing", async () => {
    const { effect, content } = await told(conclusive, [lost(), { kind: "failed", observation: "422" }], [nothing]);
    assert.deepEqual([effect?.state, content], ["failed", "422"]);
  });

  it("has failed, for certain, when none of its sends has left anything", async () => {
    const { write, effect, content } = await told(conclusive, [lost()], [nothing]);
    assert.deepEqual([write.sent.length, effect?.state], [MAX_EFFECT_ATTEMPTS, "failed"]);
    assert.match(content, /^Not applied: .*nothing is there/);
  });

  it("is looked for a bounded number of times when there is no answer, and then unknown", async () => {
    const { find, effect, content } = await told(conclusive, [lost()], [away]);
    assert.deepEqual([find.sent.length, effect?.state], [MAX_PROBES, "unknown"]);
    assert.match(content, /looked for 3 times, without an answer: HTTP 503/);
  });

  it("is looked for again after a look without an answer", async () => {
    const found = (sent: { args: Readonly<Record<string, unknown>> }) => done(String(sent.args["key"]));
    const { find, effect } = await told({ probe }, [lost()], [away, found]);
    assert.deepEqual([find.sent.length, effect?.state], [2, "confirmed"]);
  });

  it("is unknown, with a reason, where the look cannot even be made", async () => {
    for (const [change, why] of [
      [{ arguments: { at: "{title}" } }, /\{title\} is not known/],
      [{ arguments: { key: "{effect.id}", bad: "yes" } }, /cannot be looked for with find\. /],
      [{ tool: "write", arguments: { to: "x" } }, /write: that call would change something/],
      [{ tool: "nothing" }, /the tool that would look for it is gone/i],
    ] as const) {
      const { write, effect, content } = await told({ probe: { ...probe, ...change } }, [lost()], [nothing]);
      assert.deepEqual([write.sent.length, effect?.state], [1, "unknown"]);
      assert.match(content, why);
    }
  });

  it("that stands in another's way is looked for once more, and the other runs when it was seen (C55)", async () => {
    const runId = await start({ probe, target: "notes" });
    const found = (sent: { args: Readonly<Record<string, unknown>> }) => done(String(sent.args["key"]));
    const [write, find] = [writer([lost(), done("second")]), finder([away, away, away, found])];
    const script = [asks(["write", { to: "a" }], ["write", { to: "in other words" }]), says("ok")];
    const { deps, requests } = bench(ledger.db, script, [write, find]);
    await drain(deps);
    assert.equal(write.sent.length, 2);
    const contents = requests[1]?.messages.slice(-2).map(({ content }) => String(content)) ?? [];
    assert.match(contents[0] ?? "", /^Outcome unknown/);
    assert.equal(contents[1], "second");
    const { effects } = await readRun(ledger.db, runId);
    const states = effects.filter(({ kind }) => kind === "tool.effect").map(({ state, target }) => [state, target]);
    assert.deepEqual(states, [
      ["confirmed", "notes"],
      ["confirmed", "notes"],
    ]);
  });

  it("and still is not found leaves the other one not run", async () => {
    await start({ probe, target: "notes" });
    const [write, find] = [writer([lost()]), finder([nothing])];
    const script = [asks(["write", { to: "a" }], ["write", { to: "in other words" }]), says("ok")];
    const { deps, requests } = bench(ledger.db, script, [write, find]);
    await drain(deps);
    assert.deepEqual([write.sent.length, find.sent.length], [1, 2]);
    assert.match(String(requests[1]?.messages.at(-1)?.content), /^NOT run now/);
  });

  it("is looked for by the worker that takes the turn over, and not sent again", async () => {
    const runId = await start({ probe });
    const gone = new AbortController();
    const write = writer([
      () => {
        gone.abort();
        return lost();
      },
    ]);
    const found = (sent: { args: Readonly<Record<string, unknown>> }) => done(String(sent.args["key"]));
    const find = finder([found]);
    const first = bench(ledger.db, [asks(["write", { to: "a" }])], [write, find]);
    const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
    assert.equal(claim?.runId, runId);
    await driveRun(first.deps, claim, gone.signal);
    assert.equal(find.sent.length, 0, "not before its settle time, and not by a worker that ends");
    await drain(bench(ledger.db, [says("ok")], [write, find]).deps);
    const { effects, status } = await readRun(ledger.db, runId);
    assert.deepEqual([write.sent.length, find.sent.length], [1, 1]);
    assert.deepEqual([status, effects[0]?.state], ["succeeded", "confirmed"]);
  });

  it("has the target that the Agent names, and the tool's own where an argument is missing", async () => {
    const runId = await start({ target: "note {to}/{part}" });
    const write = writer([done("ok")]);
    const script = [asks(["write", { to: "a", part: 1 }], ["write", { to: "b" }]), says("ok")];
    await drain(bench(ledger.db, script, [write, finder([nothing])]).deps);
    const { effects } = await readRun(ledger.db, runId);
    assert.deepEqual(
      effects.filter(({ kind }) => kind === "tool.effect").map(({ target }) => target),
      ["note a/1", "https://world.test/b"],
    );
  });
});

describe("a tool that may not be used in this place", () => {
  const ledger = useLedger();

  it("is not offered, and refused by words when it is called all the same", async () => {
    const byPlace = [{ place: "Direct", deny: ["wri*"] }];
    const agent = await engineAgent(ledger.db, ["write", "find"], { tools: { byPlace } });
    await ingest(ledger.db, aMessage(agent.id));
    const write = writer([done("ok")]);
    const { deps, requests } = bench(ledger.db, [asks(["write", { to: "a" }]), says("ok")], [write, finder([nothing])]);
    await drain(deps);
    assert.deepEqual(
      requests[0]?.tools.map(({ name }) => name),
      ["find", "read_result", "read_earlier"],
    );
    assert.equal(write.sent.length, 0);
    assert.equal(requests[1]?.messages.at(-1)?.content, "Not run: write may not be used in this place.");
  });
});
