/** A turn whose message came too late for an earlier one is told what that had changed, and what can be taken back. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import type { ToolOutcome } from "#engine/ports.ts";
import { driveRun } from "#engine/drive.ts";
import { traceRun } from "#engine/trace.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { decideEvent } from "#ledger/decide.ts";
import { AT_ONCE, ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { downgradeWords } from "#rules/downgrade.ts";
import type { Policy } from "#rules/interrupt.ts";
import { CODE } from "#rules/limits.ts";
import { asks, bench, done, drain, engineAgent, lost, says, type Script, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

const created = (id: number): ToolOutcome => ({
  kind: "confirmed",
  observation: `created ${id}`,
  receipt: { result: { id } },
});

describe("a turn that puts an earlier one right", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const compensate = { tool: "close", arguments: { to: "{to}", id: "{result.id}" } };
  const undoable = { effects: [{ tool: "write", target: "note {to}", compensate }] };

  /** Two turns of one conversation; the second one is about the first one's request where `late`. */
  async function turns(first: Script, tools: object = undoable, late = true) {
    const { id } = await engineAgent(ledger.db, ["write", "close"], { tools });
    const conversationKey = uuidv7();
    const one = await ingest(ledger.db, aMessage(id, { conversationKey, text: "note a, please" }));
    assert.ok("runId" in one);
    const write = writer([created(7), lost()]);
    const close = { ...writer([done("closed")]), name: "close" };
    await drain(bench(ledger.db, first, [write, close]).deps);
    const two = await ingest(ledger.db, aMessage(id, { conversationKey, text: "no, note b" }));
    assert.ok("runId" in two);
    const { requestId } = await readRun(ledger.db, one.runId);
    if (late) {
      await ledger.db.pool.query(
        "update logical_requests q set reconciles = $1 from runs r where r.id = $2 and q.id = r.request_id",
        [requestId, two.runId],
      );
    }
    const go = async (script: Script) => {
      const made = bench(ledger.db, script, [write, close]);
      await drain(made.deps);
      return made;
    };
    return { first: one.runId, second: two.runId, write, close, go };
  }

  const texts = (request: { messages: readonly { content?: unknown }[] } | undefined): string[] =>
    (request?.messages ?? []).map(({ content }) => String(content));
  const write = asks(["write", { to: "a" }]);

  it("reads in front of its message what was done, with the receipt and the id that undo takes", async () => {
    const scene = await turns([write, says("noted a")]);
    const { requests } = await scene.go([says("ok")]);
    const effect = scene.write.sent[0]?.context.effectId;
    const last = texts(requests[0]).at(-1) ?? "";
    assert.match(last, /^\(From Pawl, not from a person: what follows came too late for an earlier turn of yours/);
    assert.ok(
      last.includes(`- effect ${effect}, write on note a: done ({"result":{"id":7}}); the tool undo takes it back`),
    );
    assert.match(last, /stays as it is\.\)\n\n\[user alice\]\nno, note b$/);
  });

  it("takes it back, and every request of it begins with the same words; a trace builds them again", async () => {
    const scene = await turns([write, says("noted a")]);
    const undo = () => asks(["undo", { effect: scene.write.sent[0]?.context.effectId }]);
    const { requests } = await scene.go([undo, says("taken back")]);
    assert.equal(scene.close.sent.length, 1);
    assert.equal(texts(requests[1])[3], texts(requests[0])[3]);
    const trace = await traceRun(ledger.db, scene.second);
    assert.deepEqual(
      trace?.steps.map(({ kind }) => kind),
      ["ok", "ok"],
    );
  });

  it("is told the same words again by the worker that takes it over, whatever has been undone since", async () => {
    const scene = await turns([write, says("noted a")]);
    const undo = () => asks(["undo", { effect: scene.write.sent[0]?.context.effectId }]);
    const shutdown = new AbortController();
    const first = bench(
      ledger.db,
      [undo],
      [
        scene.write,
        {
          ...scene.close,
          execute: () => {
            shutdown.abort();
            return Promise.resolve(done("closed"));
          },
        },
      ],
    );
    const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
    assert.equal(claim?.runId, scene.second);
    await driveRun(first.deps, claim, shutdown.signal);
    assert.equal(first.requests.length, 1);
    const heir = await scene.go([says("taken back")]);
    assert.equal(texts(heir.requests[0])[3], texts(first.requests[0])[3]);
  });

  it("is told of what nobody knows and of what nothing takes back, so that its answer admits that", async () => {
    const plain = { effects: [{ tool: "write", target: "note {to}" }] };
    const scene = await turns([asks(["write", { to: "a" }], ["write", { to: "b" }]), says("noted")], plain);
    const { requests } = await scene.go([says("ok")]);
    const lines = (texts(requests[0]).at(-1) ?? "").split("\n");
    assert.match(lines[1] ?? "", /write on note b: outcome unknown; look whether/);
    assert.match(lines[2] ?? "", /write on note a: done .*; nothing takes it back: say so in your answer$/);
  });

  it("answers on the word of those that the earlier writes were answered by", async () => {
    const { id } = await engineAgent(ledger.db, ["write"], {});
    const conversationKey = uuidv7();
    const one = await ingest(ledger.db, aMessage(id, { conversationKey }));
    const tool = { ...writer([created(7)]), source: () => "tracker.test" };
    await drain(bench(ledger.db, [write, says("noted")], [tool]).deps);
    const two = await ingest(ledger.db, aMessage(id, { conversationKey }));
    assert.ok("runId" in one && "runId" in two);
    const { requestId } = await readRun(ledger.db, one.runId);
    // Nothing of the earlier answer stands in this conversation any more: only the note tells of it.
    await ledger.db.pool.query("update commitment_effects set built_on = '{}' where run_id = $1 and kind = 'reply'", [
      one.runId,
    ]);
    await ledger.db.pool.query(
      "update logical_requests q set reconciles = $1 from runs r where r.id = $2 and q.id = r.request_id",
      [requestId, two.runId],
    );
    await drain(bench(ledger.db, [says("ok")], [tool]).deps);
    const { rows } = await ledger.db.pool.query<{ sources: string[] }>(
      `select array(select e.source from tool_source_evidence e where e.id = any (f.built_on)) as sources
       from commitment_effects f where f.run_id = $1 and f.kind = 'reply'`,
      [two.runId],
    );
    assert.deepEqual(rows[0]?.sources, ["tracker.test"]);
  });

  it("is the next one after a correction that came too late to restart the work, whose author is told so", async () => {
    const { id } = await engineAgent(ledger.db, ["write", "close"], { tools: undoable });
    const conversationKey = uuidv7();
    const policy: Policy = { ...AT_ONCE, midTurn: "preempt", afterCommit: "reconcile" };
    const said = (text: string) => ingest(ledger.db, aMessage(id, { conversationKey, text, policy, askable: true }));
    const one = await said("note a, please");
    assert.ok("runId" in one);
    const tool = writer([created(7)]);
    const correction = async () => {
      const two = await said("no, note b");
      assert.equal(two.kind, "undecided");
      const { conversationId } = await readRun(ledger.db, one.runId);
      const refines = { conversationId, eventId: two.eventId, relation: "refines", source: "model", policy } as const;
      const decided = await decideEvent(ledger.db, refines);
      assert.ok(decided.kind === "reconcile");
      assert.equal(
        downgradeWords({ asked: policy.midTurn, done: decided.kind, reason: decided.reason }, [
          { target: "note a", undoable: true },
        ]),
        "Too late to restart: note a was changed already. I put it right next: undo note a.",
      );
      return says("noted a");
    };
    const { deps, requests } = bench(
      ledger.db,
      [write, correction, says("put right")],
      [tool, { ...tool, name: "close" }],
    );
    await drain(deps);
    assert.match(
      texts(requests[2]).at(-1) ?? "",
      /write on note a: done .*; the tool undo takes it back, by this id\n[^\n]*\n\n\[user alice\]\nno, note b$/,
    );
  });

  it("is no other turn: one that only comes next is told nothing", async () => {
    const scene = await turns([write, says("noted a")], undoable, false);
    const { requests } = await scene.go([says("ok")]);
    assert.doesNotMatch(texts(requests[0]).join("\n"), /From Pawl/);
  });
});
