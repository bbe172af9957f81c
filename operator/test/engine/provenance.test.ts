/** Where results came from follows them: into memories, into replies, and over restarts. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import type { Database } from "#ledger/database.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import type { Audience } from "#rules/provenance.ts";
import { CODE } from "#rules/limits.ts";
import { driveRun } from "#engine/drive.ts";
import type { Tool } from "#engine/ports.ts";
import { asks, bench, done, drain, engineAgent, lost, quick, says, type Script, writer } from "../support/engine.ts";
import { sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { outcomeOf } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";

const TOOLS = ["look", "write", "echo", "remember", "recall"];

/** A read from outside. */
const look = (audience?: Audience): Tool => ({
  ...quick,
  name: "look",
  quick: false,
  source: (args) => (args as { host?: string }).host ?? "host.test",
  ...(audience === undefined ? {} : { audience }),
});
const post = { ...writer([done("201"), lost()]), source: () => "writes.test" };

describe("provenance", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  async function said(agentId: string, conversationKey: string) {
    const ingested = await ingest(ledger.db, aMessage(agentId, { text: "please", conversationKey }));
    assert.ok("runId" in ingested);
    return ingested.runId;
  }

  const evidenceOf = (db: Database, runId: string) =>
    sql<{ source: string; audience: string; result: string }>(
      db,
      `select e.source, e.audience, c.result from tool_source_evidence e join tool_calls c on c.id = e.call_id
       where e.run_id = $1 order by c.ordinal, c.idx`,
      [runId],
    );

  /** One turn of an agent in a conversation. */
  async function turn(
    agentId: string,
    conversationKey: string,
    script: Script,
    tools: readonly Tool[] = [look(), post, quick],
  ) {
    const runId = await said(agentId, conversationKey);
    const { deps, requests } = bench(ledger.db, script, tools);
    await drain(deps);
    const told = requests.flatMap(({ messages }) => messages).filter(({ role }) => role === "tool");
    return { runId, requests, told: String(told.at(-1)?.content) };
  }

  const agentWide = () => engineAgent(ledger.db, TOOLS, { tools: { memory: { audience: "Agent" } } });

  it("is a row for every result from outside, in its commit, and none for what came from within", async () => {
    const { id } = await engineAgent(ledger.db, TOOLS);
    const { runId } = await turn(id, uuidv7(), [
      asks(["echo", {}], ["look", { host: "one.test" }], ["write", { to: "a" }], ["write", { to: "b" }], ["look", "{"]),
      says("ok"),
    ]);
    assert.deepEqual(
      (await evidenceOf(ledger.db, runId)).map(({ source, audience, result }) => [
        source,
        audience,
        result.slice(0, 15),
      ]),
      [
        ["one.test", "conversation", 'echo {"host":"o'],
        ["writes.test", "conversation", "201"],
        ["writes.test", "conversation", "Outcome unknown"],
      ],
    );
  });

  it("of a write whose tool is gone by now is a row all the same, by the name that the tool had", async () => {
    const { id } = await engineAgent(ledger.db, TOOLS);
    const runId = await said(id, uuidv7());
    const shutdown = new AbortController();
    const tool = writer([
      () => {
        shutdown.abort();
        return lost();
      },
    ]);
    const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
    assert.ok(claim);
    await driveRun(bench(ledger.db, [asks(["write", { to: "gone" }])], [tool]).deps, claim, shutdown.signal);
    await drain(bench(ledger.db, [says("I could not find out")], []).deps);
    assert.deepEqual(
      (await evidenceOf(ledger.db, runId)).map(({ source, audience }) => [source, audience]),
      [["write", "conversation"]],
    );
  });

  it("of a write that another tool looks for is for those only who may see both", async () => {
    const probe = { tool: "look", arguments: {}, found: "there", absenceIsConclusive: false };
    const { id } = await engineAgent(ledger.db, TOOLS, { tools: { effects: [{ tool: "write", probe }] } });
    for (const [own, other, both] of [
      ["public", undefined, "conversation"],
      ["public", "agent", "agent"],
      ["agent", "public", "agent"],
    ] as const) {
      const tool = { ...writer([done("201")]), source: () => "writes.test", audience: own };
      const { runId } = await turn(id, uuidv7(), [asks(["write", { to: uuidv7() }]), says("ok")], [tool, look(other)]);
      assert.deepEqual(
        (await evidenceOf(ledger.db, runId)).map(({ audience }) => audience),
        [both],
      );
    }
  });

  it("costs no statement more", async () => {
    const { id } = await engineAgent(ledger.db, TOOLS);
    const counts: number[] = [];
    const counted = (answer: ReturnType<typeof says>) => () => {
      counts.push(ledger.db.counted.statements);
      return answer;
    };
    await turn(id, uuidv7(), [counted(asks(["look", {}], ["look", { host: "b" }])), counted(says("ok"))]);
    assert.equal((counts[1] ?? 0) - (counts[0] ?? 0), 2, "the response, the results");
    const own: number[] = [];
    const quickLook = { ...look(), quick: true };
    const note = (answer: ReturnType<typeof says>) => () => {
      own.push(ledger.db.counted.statements);
      return answer;
    };
    const { runId } = await turn(id, uuidv7(), [note(asks(["look", {}])), note(says("ok"))], [quickLook]);
    assert.equal((own[1] ?? 0) - (own[0] ?? 0), 1, "a quick one rides with its response");
    assert.equal((await evidenceOf(ledger.db, runId)).length, 1);
  });

  it("has a name that is bounded, and never none", async () => {
    const { id } = await engineAgent(ledger.db, TOOLS);
    const odd: Tool = {
      ...look(),
      source: (args) => {
        const { host } = args as { host?: string };
        if (host === undefined) throw new Error("no host");
        return `${host}\0`;
      },
    };
    const { runId } = await turn(
      id,
      uuidv7(),
      [asks(["look", {}], ["look", { host: "x".repeat(1_000) }], ["look", { host: " " }]), says("ok")],
      [odd],
    );
    const names = (await evidenceOf(ledger.db, runId)).map(({ source }) => source);
    assert.deepEqual([names[0], names[1]?.length], ["look", 256]);
    assert.equal(names.length, 3);
  });

  it("of a reply is all that its run had seen, and what earlier replies were built on", async () => {
    const { id } = await engineAgent(ledger.db, TOOLS);
    const key = uuidv7();
    const first = await turn(id, key, [asks(["look", { host: "one.test" }]), says("it says 1")]);
    const second = await turn(id, key, [asks(["look", { host: "two.test" }]), says("1 and 2")]);
    const builtOn = async (runId: string) =>
      (
        await sql<{ source: string }>(
          ledger,
          `select e.source from commitment_effects f join tool_source_evidence e on e.id = any (f.built_on)
           where f.run_id = $1 and f.kind = 'reply' order by e.created_at`,
          [runId],
        )
      ).map(({ source }) => source);
    assert.deepEqual(await builtOn(first.runId), ["one.test"]);
    assert.deepEqual(await builtOn(second.runId), ["one.test", "two.test"]);
  });

  it("limits a memory: what it was built on may not be shown elsewhere, whatever the Agent says of memories", async () => {
    const { id } = await agentWide();
    const home = uuidv7();
    const { told } = await turn(id, home, [
      asks(["look", { host: "crm.test" }]),
      asks(["remember", { text: "the customer owes 40" }]),
      says("noted"),
    ]);
    assert.match(told, /in this conversation only \(it was built on results of crm\.test\)\.$/);
    await turn(id, uuidv7(), [asks(["remember", { text: "the customer is nice" }]), says("noted")]);
    const elsewhere = await turn(id, uuidv7(), [asks(["recall", { query: "customer" }]), says("ok")]);
    assert.match(
      elsewhere.told,
      /^- \[.*the customer is nice\n1 memory is left out: they belong to other conversations\.$/,
    );
    assert.match((await turn(id, home, [asks(["recall", { query: "customer" }]), says("ok")])).told, /owes 40/);
  });

  it("is not washed off by a reply: what a later turn remembers of it is limited likewise", async () => {
    const { id } = await agentWide();
    const home = uuidv7();
    await turn(id, home, [asks(["look", {}]), says("the number is 7")]);
    await turn(id, home, [asks(["remember", { text: "number seven" }]), says("noted")]);
    const elsewhere = await turn(id, uuidv7(), [asks(["recall", { query: "number" }]), says("ok")]);
    assert.match(elsewhere.told, /1 memory is left out/);
  });

  it("of a recalled memory joins that of the run, and of what it remembers and says next", async () => {
    const { id } = await agentWide();
    await turn(
      id,
      uuidv7(),
      [asks(["look", {}]), asks(["remember", { text: "wide fact" }]), says("ok")],
      [look("agent")],
    );
    const other = uuidv7();
    const { runId } = await turn(id, other, [
      asks(["recall", { query: "wide" }]),
      asks(["remember", { text: "derived fact" }]),
      says("ok"),
    ]);
    const { evidence } = await readRun(ledger.db, runId);
    assert.deepEqual(
      evidence.map(({ source, audience }) => [source, audience]),
      [["host.test", "agent"]],
    );
    const rows = await sql<{ evidence: string[] }>(ledger, "select evidence from memories where run_id = $1", [runId]);
    assert.deepEqual(rows[0]?.evidence, [evidence[0]?.id]);
    const [reply] = await sql<{ built_on: string[] }>(
      ledger,
      "select built_on from commitment_effects where run_id = $1 and kind = 'reply'",
      [runId],
    );
    assert.deepEqual(reply?.built_on, [evidence[0]?.id]);
  });

  it("is read back by the worker that goes on", async () => {
    const { id } = await agentWide();
    const runId = await said(id, uuidv7());
    const shutdown = new AbortController();
    const first = bench(
      ledger.db,
      [
        asks(["look", { host: "before.test" }]),
        () => {
          shutdown.abort();
          return { kind: "failed", class: "cancelled", reason: "Cancelled", message: "shutting down" };
        },
      ],
      [look()],
    );
    const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
    assert.ok(claim);
    await driveRun(first.deps, claim, shutdown.signal);
    const second = bench(ledger.db, [asks(["remember", { text: "over the restart" }]), says("ok")], [look()]);
    await drain(second.deps);
    const rows = await sql<{ source: string }>(
      ledger,
      "select e.source from memories m join tool_source_evidence e on e.id = any (m.evidence) where m.run_id = $1",
      [runId],
    );
    assert.deepEqual(rows, [{ source: "before.test" }]);
    assert.equal((await outcomeOf(ledger.db, runId)).row.status, "succeeded");
  });

  describe("of another conversation, planted under an earlier reply", () => {
    /** As no statement leaves it: a reply of this conversation that was built on a result of another one. */
    async function planted() {
      const { id } = await engineAgent(ledger.db, TOOLS);
      const [other, home] = [uuidv7(), uuidv7()];
      const foreign = await turn(id, other, [asks(["look", { host: "hr.test" }]), says("salaries")]);
      const earlier = await turn(id, home, [says("hello")]);
      await sql(
        ledger,
        `update commitment_effects f set built_on = array(select e.id from tool_source_evidence e where e.run_id = $1)
         where f.run_id = $2 and f.kind = 'reply'`,
        [foreign.runId, earlier.runId],
      );
      const broken = await checkInvariants(ledger.db);
      assert.deepEqual(
        broken.map(({ invariant }) => invariant),
        ["provenance_a_reply_shows_only_what_may_be_shown"],
      );
      return { id, home, earlier };
    }
    const restore = (runId: string) =>
      sql(ledger, "update commitment_effects set built_on = '{}' where run_id = $1 and kind = 'reply'", [runId]);

    it("withholds the answer with the reason on its row, tells the model which source it was, and ends visibly", async () => {
      const { id, home, earlier } = await planted();
      const { runId, requests } = await turn(id, home, [says("they earn 9"), says("they earn 10")]);
      assert.match(
        String(requests[1]?.messages.at(-1)?.content),
        /^\(That answer was not sent: .* may not be shown in this conversation \(hr\.test\); answer without it/,
      );
      const { run, row, reply } = await outcomeOf(ledger.db, runId);
      assert.deepEqual([row.status, row.reason], ["failed", "SourceWithheld"]);
      assert.match(
        reply ?? "",
        /^I could not answer this: .* may not be shown in this conversation\. Nothing outside was changed/,
      );
      assert.deepEqual(
        run.calls.map(({ outcome }) => outcome),
        ["withheld", "withheld", "real"],
      );
      assert.match(run.calls[0]?.result ?? "", /hr\.test/);
      await restore(earlier.runId);
    });

    it("does not keep Pawl from saying in its own words how it ended", async () => {
      const { id, home, earlier } = await planted();
      const runId = await said(id, home);
      await sql(ledger, `update runs set slice = '{"iterations": 1}' where id = $1`, [runId]);
      await drain(bench(ledger.db, [says("they earn 9")]).deps);
      const { row, reply } = await outcomeOf(ledger.db, runId);
      assert.equal(row.status, "budget_exhausted");
      assert.match(reply ?? "", /^I could not finish/);
      await restore(earlier.runId);
    });
  });
});
