/** What an agent remembers: written with its result, once, under every crash; recalled only where it may be shown. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { armFailpoint, disarmFailpoint } from "#src/failpoints.ts";
import type { Database } from "#ledger/database.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { type Approval, decideApproval, readApprovals } from "#ledger/approvals.ts";
import { driveRun } from "#engine/drive.ts";
import { CODE } from "#rules/limits.ts";
import { applied, says as decision } from "../support/approvals.ts";
import { WorkerProcess } from "../sweep/process.ts";
import { asks, bench, drain, engineAgent, says } from "../support/engine.ts";
import { alone, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { later, outcomeOf, scene, useReality } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";

const VERBS = ["remember", "recall", "forget"];

async function said(db: Database, agentId: string, conversationKey?: string) {
  const key = conversationKey === undefined ? {} : { conversationKey };
  const ingested = await ingest(db, aMessage(agentId, { text: "please", ...key }));
  assert.ok("runId" in ingested);
  return ingested.runId;
}

type Row = {
  id: string;
  text: string;
  audience: string;
  evidence: string[];
  forgotten_at: Date | null;
  call_id: string;
};
const memoriesOf = (db: Database, agentId: string): Promise<Row[]> =>
  sql<Row>(db, "select * from memories where agent_id = $1 order by created_at", [agentId]);

const toolResults = (request: { messages: readonly { role: string; content: unknown }[] } | undefined): string[] =>
  (request?.messages ?? []).filter(({ role }) => role === "tool").map(({ content }) => String(content));

describe("a memory", () => {
  const ledger = useLedger();
  afterEach(async () => {
    disarmFailpoint();
    assert.deepEqual(await checkInvariants(ledger.db), []);
  });

  it("is kept from one turn to the next, and costs a read more than any other quick call", async () => {
    const { id } = await engineAgent(ledger.db, VERBS);
    await said(ledger.db, id, "kept");
    const first = bench(ledger.db, [asks(["remember", { text: "  Alice likes tea  " }]), says("noted")]);
    await drain(first.deps);
    const [memory] = await memoriesOf(ledger.db, id);
    assert.deepEqual([memory?.text, memory?.audience, memory?.evidence], ["Alice likes tea", "conversation", []]);
    assert.deepEqual(toolResults(first.requests[1]), [
      `Remembered as ${memory?.id}. It can be recalled in this conversation only.`,
    ]);
    await said(ledger.db, id, "kept");
    const counts: number[] = [];
    const second = bench(ledger.db, [
      () => {
        counts.push(ledger.db.counted.statements);
        return asks(["recall", { query: "tea" }]);
      },
      () => {
        counts.push(ledger.db.counted.statements);
        return says("tea");
      },
    ]);
    await drain(second.deps);
    const today = new Date().toISOString().slice(0, 10);
    assert.deepEqual(toolResults(second.requests[1]), [`- [${memory?.id}] ${today}, from alice: Alice likes tea`]);
    assert.equal((counts[1] ?? 0) - (counts[0] ?? 0), 2, "one read, one commit");
  });

  it("asked for thirty times in one response is one memory, and each call is told which", async () => {
    const { id } = await engineAgent(ledger.db, VERBS);
    await said(ledger.db, id);
    const calls = Array.from({ length: 30 }, (): [string, unknown] => ["remember", { text: "the same" }]);
    const { deps, requests } = bench(ledger.db, [asks(...calls), says("noted")]);
    await drain(deps);
    const rows = await memoriesOf(ledger.db, id);
    assert.equal(rows.length, 1);
    const told = toolResults(requests[1]);
    assert.equal(told.length, 30);
    assert.ok(told.every((text) => text.includes(rows[0]?.id ?? "-")));
    assert.equal(told.filter((text) => text.startsWith("That is remembered already")).length, 29);
  });

  it("is seen by a recall of the same response, and is gone from it once it is forgotten", async () => {
    const { id } = await engineAgent(ledger.db, VERBS);
    await said(ledger.db, id);
    const { deps, requests } = bench(ledger.db, [
      asks(["remember", { text: "one fact" }], ["recall", {}]),
      async () => {
        const [memory] = await memoriesOf(ledger.db, id);
        return asks(["forget", { id: memory?.id }], ["recall", { query: "fact" }], ["forget", { id: memory?.id }]);
      },
      says("done"),
    ]);
    await drain(deps);
    const told = toolResults(requests[2]);
    assert.match(told[1] ?? "", /one fact$/);
    assert.match(told[2] ?? "", /^Forgotten: /);
    assert.equal(told[3], "Nothing is remembered about that that may be shown here.");
    assert.match(told[4] ?? "", /^Nothing was forgotten: there is no memory [0-9a-f-]+ here\.$/);
    assert.ok((await memoriesOf(ledger.db, id))[0]?.forgotten_at);
  });

  it("is refused in words where its arguments are none", async () => {
    const { id } = await engineAgent(ledger.db, VERBS);
    await said(ledger.db, id);
    const { deps, requests } = bench(ledger.db, [
      asks(
        ["remember", { text: "   " }],
        ["remember", { text: "x".repeat(2_001) }],
        ["forget", { id: "the first one" }],
        ["recall", { query: "x".repeat(501) }],
      ),
      says("sorry"),
    ]);
    await drain(deps);
    assert.deepEqual(toolResults(requests[1]), [
      "Not run: `text` must be a text of 1 to 2000 characters",
      "Not run: `text` must be a text of 1 to 2000 characters",
      "Not run: `id` must be the id that remember or recall gave",
      "Not run: `query` must be at most 500 characters, `limit` from 1 to 20",
    ]);
    assert.equal((await memoriesOf(ledger.db, id)).length, 0);
  });

  it("is no effect: nothing crosses for it, whatever the Agent declares", async () => {
    for (const effect of ["tool.effect", "tool.query"]) {
      const { id } = await engineAgent(ledger.db, VERBS, { tools: { effects: [{ tool: "remember", effect }] } });
      const runId = await said(ledger.db, id);
      let committed: unknown;
      const { deps } = bench(ledger.db, [
        asks(["remember", { text: `declared ${effect}` }]),
        async () => {
          [committed] = await sql(ledger, "select committed_at from runs where id = $1", [runId]);
          return says("noted");
        },
      ]);
      await drain(deps);
      assert.deepEqual(committed, { committed_at: null });
      const { run, effects } = await outcomeOf(ledger.db, runId);
      assert.deepEqual(effects, []);
      assert.deepEqual(run.calls.map(({ class: name, kind }) => [name, kind])[0], ["internal_durable", "store.verb"]);
    }
  });

  it("whose commit was not answered is told by the words that were stored", async () => {
    const { id } = await engineAgent(ledger.db, VERBS);
    await said(ledger.db, id);
    const { deps, requests } = bench(ledger.db, [
      () => {
        armFailpoint("after:commit:1:swallow");
        return asks(["remember", { text: "swallowed" }]);
      },
      says("noted"),
    ]);
    await drain(deps);
    const rows = await memoriesOf(ledger.db, id);
    assert.equal(rows.length, 1);
    const stored = await sql<{ result: string }>(ledger, "select result from tool_calls where id = $1", [
      rows[0]?.call_id,
    ]);
    assert.deepEqual(toolResults(requests[1]), [stored[0]?.result]);
    assert.match(stored[0]?.result ?? "", new RegExp(`^Remembered as ${rows[0]?.id}`));
  });

  it("is not written by a worker that has lost its lease, and once by its heir", async () => {
    const { id } = await engineAgent(ledger.db, VERBS);
    const runId = await said(ledger.db, id);
    await alone(ledger, runId);
    await using ahead = later(ledger.url, 11);
    let heir: Awaited<ReturnType<typeof claimRun>> = null;
    const { deps } = bench(ledger.db, [asks(["remember", { text: "inherited" }])], [], {
      deps: {
        // The last thing before the write: it is asked outside the transaction.
        sensitivity: async () => {
          heir = await claimRun(ahead, "worker-2", 10_000, CODE);
          return "agent";
        },
      },
    });
    await drain(deps);
    assert.equal((await memoriesOf(ledger.db, id)).length, 0, "the transaction was refused whole");
    assert.ok(heir);
    const second = bench(ahead, [says("noted")]);
    await driveRun(second.deps, heir, new AbortController().signal);
    assert.deepEqual(
      (await memoriesOf(ledger.db, id)).map(({ text, audience }) => [text, audience]),
      [["inherited", "conversation"]],
    );
    assert.equal((await outcomeOf(ledger.db, runId)).row.status, "succeeded");
  });

  it("waits for a person where the Agent wants one asked, is looked up after that, and is written once", async () => {
    const { id } = await engineAgent(ledger.db, VERBS, { tools: { requireApproval: ["remember"] } });
    const name = `run-${uuidv7()}`;
    const ingested = await ingest(ledger.db, aMessage(id, { text: "please", applied: applied(name) }));
    assert.ok("runId" in ingested);
    const { deps, requests } = bench(ledger.db, [
      asks(["remember", { text: "approved" }], ["remember", { text: "not approved" }], ["recall", {}]),
      says("noted"),
    ]);
    await drain(deps);
    assert.equal((await memoriesOf(ledger.db, id)).length, 0);
    for (const left of [2, 1]) {
      const waiting: readonly Approval[] = (await readApprovals(ledger.db, ingested.runId)).filter(
        ({ state }) => state === "open",
      );
      assert.equal(waiting.length, left);
      const [next] = waiting;
      assert.ok(next);
      const text = (
        await sql<{ text: string }>(ledger, "select args ->> 'text' as text from tool_calls where id = $1", [
          next.callId,
        ])
      )[0]?.text;
      await decideApproval(ledger.db, decision({ name }, next, { approve: text === "approved" }));
      await drain(deps);
    }
    assert.deepEqual(
      (await memoriesOf(ledger.db, id)).map(({ text }) => text),
      ["approved"],
    );
    const told = toolResults(requests[1]);
    assert.match(told[0] ?? "", /^Remembered as /);
    assert.match(told[1] ?? "", /^Not run: /);
    assert.match(told[2] ?? "", /: approved$/);
  });

  it("belongs to its conversation; elsewhere it is counted, and told to no other agent at all", async () => {
    const [mine, theirs] = [await engineAgent(ledger.db, VERBS), await engineAgent(ledger.db, VERBS)];
    const recalled = async (agentId: string, script: Parameters<typeof bench>[1]) => {
      await said(ledger.db, agentId);
      const { deps, requests } = bench(ledger.db, [...script, asks(["recall", { query: "code" }]), says("ok")]);
      await drain(deps);
      return toolResults(requests.at(-1)).at(-1);
    };
    const codes = asks(["remember", { text: "the door code is 17" }], ["remember", { text: "the safe code is 4" }]);
    assert.match((await recalled(mine.id, [codes])) ?? "", /safe code.*\n.*door code/);
    assert.equal(
      await recalled(mine.id, []),
      "Nothing is remembered about that that may be shown here.\n2 memories are left out: they belong to other conversations.",
    );
    assert.equal(await recalled(theirs.id, []), "Nothing is remembered about that that may be shown here.");
  });

  describe("about which the Agent", () => {
    const audienceWith = async (
      memory: object | undefined,
      sensitivity?: () => Promise<"agent" | "conversation" | "unsure">,
    ) => {
      const tools = memory === undefined ? {} : { memory };
      const { id } = await engineAgent(ledger.db, VERBS, { tools });
      await said(ledger.db, id);
      const deps = sensitivity === undefined ? {} : { sensitivity };
      await drain(bench(ledger.db, [asks(["remember", { text: "a fact" }]), says("ok")], [], { deps }).deps);
      return (await memoriesOf(ledger.db, id)).map(({ audience }) => audience).join();
    };

    it("says who may be shown it is not asked about again", async () => {
      const never = () => Promise.reject(new Error("asked"));
      assert.equal(await audienceWith({ audience: "Agent" }, never), "agent");
      assert.equal(await audienceWith({ audience: "Conversation" }, () => Promise.resolve("agent")), "conversation");
    });

    it("says nothing is as sensitive as the decision model says; unsure, broken or absent is sensitive", async () => {
      assert.equal(await audienceWith(undefined, () => Promise.resolve("agent")), "agent");
      assert.equal(await audienceWith(undefined, () => Promise.resolve("conversation")), "conversation");
      assert.equal(await audienceWith(undefined, () => Promise.resolve("unsure")), "conversation");
      assert.equal(await audienceWith(undefined, () => Promise.reject(new Error("away"))), "conversation");
      assert.equal(await audienceWith({}), "conversation");
    });
  });
});

describe("a worker that dies with a memory asked for and not written", function () {
  this.timeout(60_000);
  const ledger = useLedger();
  const fakes = useReality();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  for (const failpoint of ["after:commit_response:1", "after:remember:1", "before:commit:1", "after:commit:1"]) {
    it(`at ${failpoint} leaves one memory, made once by its heir or by itself`, async () => {
      const steps = [{ calls: [{ name: "remember", arguments: { text: "outlives its worker" } }] }, { text: "noted" }];
      const { runId, agentId } = await scene(ledger.db, fakes, steps, {
        tools: VERBS,
        agent: { tools: { effects: [] } },
      });
      const victim = new WorkerProcess({ ledgerUrl: ledger.url, name: "a", failpoint: `${failpoint}:kill` });
      const { signal } = await victim.exited;
      assert.equal(signal, "SIGKILL");
      const worker = new WorkerProcess({ ledgerUrl: ledger.url, name: "b" });
      await worker.said((line) => line.msg === "a turn ended");
      await worker.stop();
      const rows = await memoriesOf(ledger.db, agentId);
      assert.deepEqual(
        rows.map(({ text }) => text),
        ["outlives its worker"],
      );
      const { run, row } = await outcomeOf(ledger.db, runId);
      assert.equal(row.status, "succeeded");
      assert.match(run.calls[0]?.result ?? "", new RegExp(`^Remembered as ${rows[0]?.id}`));
      assert.equal(run.steps.length, 2, "the response was not sampled again");
    });
  }
});
