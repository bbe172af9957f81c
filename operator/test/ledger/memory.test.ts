/** Memories and evidence as rows: what is written with a result, found by words, and shown nowhere else. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { armFailpoint, disarmFailpoint } from "#src/failpoints.ts";
import { forgetOf, memoriesOf } from "#cli/memories.ts";
import { readEvidence } from "#ledger/evidence.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { forget, forgetByPerson, listMemories, type NewMemory, recall, remember } from "#ledger/memory.ts";
import { claimRun } from "#ledger/leases.ts";
import { statements } from "#ledger/statement.ts";
import { commitResults } from "#ledger/steps.ts";
import { AUDIENCES, type Evidence, type Limit, mayShow, visibility } from "#rules/provenance.ts";
import { alone, conversationOf, count, end, lapse, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aClaimedRun, aMessage, CODE, respond } from "../support/world.ts";

describe("a memory in the ledger", () => {
  const ledger = useLedger();
  afterEach(async () => {
    disarmFailpoint();
    assert.deepEqual(await checkInvariants(ledger.db), []);
  });

  const CALLS = 4;
  type Run = Awaited<ReturnType<typeof aPlace>>;

  /** A claimed run with open calls of the store; `of` an agent that exists: in a conversation of its own. */
  async function aPlace(of?: { agent: { id: string; name: string } }) {
    const run = of === undefined ? await aClaimedRun(ledger.db) : await anotherRun(of.agent);
    const verb = { class: "internal_durable", kind: "store.verb", tool: "remember", target: null } as const;
    const calls = Array.from({ length: CALLS }, (_, idx) => aCall({ idx, ...verb }));
    await respond(ledger.db, run, calls);
    const [call] = calls;
    assert.ok(call !== undefined);
    const conversationId = await conversationOf(ledger, run.runId);
    return { ...run, call, calls, conversationId, place: { agentId: run.agent.id, conversationId } };
  }

  async function anotherRun(agent: { id: string; name: string }) {
    const ingested = await ingest(ledger.db, aMessage(agent.id));
    assert.ok("runId" in ingested);
    await alone(ledger, ingested.runId);
    const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
    assert.equal(claim?.runId, ingested.runId);
    return { agent, runId: ingested.runId, token: claim.token };
  }

  const memoryOf = (run: Run, text: string, changes: Partial<NewMemory> = {}): NewMemory => ({
    id: uuidv7(),
    callId: run.call.id,
    text,
    audience: "conversation",
    visibility: `conversation:${run.conversationId}`,
    evidence: [],
    ...changes,
  });

  /** Remembers as the engine does: with its call's result, in one transaction. */
  async function remembered(run: Run, memory: NewMemory) {
    const commit = { runId: run.runId, token: run.token, nonce: uuidv7() };
    return ledger.db.transaction(async (tx) => {
      const made = await remember(tx, commit, memory);
      await commitResults(tx, commit, [{ id: memory.callId, outcome: "real", result: made.kind }]);
      return made;
    });
  }

  const found = async (run: Run, query: string, most = 10) => {
    const answer = await recall(ledger.db, { ...run.place, query, most });
    return { ...answer, texts: answer.memories.map(({ text }) => text) };
  };

  it("is written with its call's result, says who had spoken, and is found by its words", async () => {
    const run = await aPlace();
    const memory = memoryOf(run, "Alice wants her invoices on the first");
    assert.deepEqual(await remembered(run, memory), { kind: "remembered", id: memory.id });
    const { memories, leftOut, more, evidence } = await found(run, "invoices ALICE");
    assert.deepEqual(
      memories.map(({ id, text, from }) => ({ id, text, from })),
      [{ id: memory.id, text: memory.text, from: "alice" }],
    );
    assert.deepEqual([leftOut, more, evidence], [0, 0, []]);
  });

  it("is made once when the reply of its commit is lost", async () => {
    const run = await aPlace();
    armFailpoint("after:commit:1:swallow");
    assert.equal((await remembered(run, memoryOf(run, "once"))).kind, "already");
    assert.equal(await count(ledger, "memories where agent_id = $1", [run.agent.id]), 1);
  });

  it("is not made by a worker whose lease has lapsed, nor in a run that has ended", async () => {
    const lapsed = await aPlace();
    await lapse(ledger.db, lapsed.runId);
    assert.equal((await remembered(lapsed, memoryOf(lapsed, "late"))).kind, "fenced");
    const commit = { ...lapsed, nonce: uuidv7() };
    assert.equal((await forget(ledger.db, commit, { id: uuidv7(), callId: lapsed.call.id })).kind, "fenced");
    const ended = await aPlace();
    await end(ledger.db, ended);
    assert.equal((await remembered(ended, memoryOf(ended, "after the end"))).kind, "ended");
    const over = { ...ended, nonce: uuidv7() };
    assert.equal((await forget(ledger.db, over, { id: uuidv7(), callId: ended.call.id })).kind, "ended");
    for (const { agent } of [lapsed, ended]) {
      assert.equal(await count(ledger, "memories where agent_id = $1", [agent.id]), 0);
    }
  });

  it("of the same text in the same places is the one that there is", async () => {
    const first = await aPlace();
    const memory = memoryOf(first, "the door code is on the fridge");
    await remembered(first, memory);
    const commit = { ...first, nonce: uuidv7() };
    const again = memoryOf(first, memory.text, { callId: uuidv7() });
    assert.deepEqual(await remember(ledger.db, commit, again), { kind: "known", id: memory.id });
    // Where it could not be recalled, it would not help that there is one.
    const elsewhere = await aPlace(first);
    assert.equal((await remembered(elsewhere, memoryOf(elsewhere, memory.text))).kind, "remembered");
  });

  it("that was forgotten is out of reach, keeps who and when, and may be made anew", async () => {
    const run = await aPlace();
    const memory = memoryOf(run, "forget me not");
    await remembered(run, memory);
    const commit = { ...run, nonce: uuidv7() };
    const which = { id: memory.id, callId: uuidv7() };
    const elsewhere = await aPlace(run);
    assert.equal((await forget(ledger.db, { ...elsewhere, nonce: uuidv7() }, which)).kind, "unknown_memory");
    const stranger = await aPlace();
    assert.equal((await forget(ledger.db, { ...stranger, nonce: uuidv7() }, which)).kind, "unknown_memory");
    assert.equal((await forget(ledger.db, commit, which)).kind, "forgotten");
    assert.equal((await forget(ledger.db, commit, which)).kind, "unknown_memory");
    for (const query of ["forget", "", "forget me not"]) assert.deepEqual((await found(run, query)).texts, []);
    const listed = await listMemories(ledger.db, { namespace: "demo", agent: run.agent.name, every: true, most: 10 });
    assert.deepEqual(
      listed?.map(({ id, forgotten }) => [id, forgotten?.by]),
      [[memory.id, "the agent"]],
    );
    const anew = memoryOf(run, memory.text, { callId: run.calls[1]?.id ?? "" });
    assert.equal((await remembered(run, anew)).kind, "remembered");
  });

  it("is forgotten once when the reply of that commit is lost", async () => {
    const run = await aPlace();
    const memory = memoryOf(run, "lost and forgotten");
    await remembered(run, memory);
    armFailpoint("after:commit:1:swallow");
    const commit = { ...run, nonce: uuidv7() };
    const callId = run.calls[1]?.id ?? "";
    const told = await ledger.db.transaction(async (tx) => {
      const gone = await forget(tx, commit, { id: memory.id, callId });
      await commitResults(tx, commit, [{ id: callId, outcome: "real", result: gone.kind }]);
      return gone.kind;
    });
    assert.equal(told, "already");
    assert.equal(await count(ledger, "memories where id = $1 and forgotten_call = $2", [memory.id, callId]), 1);
  });

  it("is forgotten by a person once, also when the reply is lost", async () => {
    const run = await aPlace();
    const memory = memoryOf(run, "private");
    await remembered(run, memory);
    armFailpoint("after:forget_by_person:1:swallow");
    const answer = await forgetByPerson(ledger.db, memory.id, "bob");
    assert.ok(answer.kind === "already");
    assert.equal(answer.by, "bob");
    const second = await aPlace();
    const other = memoryOf(second, "private too");
    await remembered(second, other);
    assert.equal((await forgetByPerson(ledger.db, other.id, "bob")).kind, "forgotten");
    assert.equal((await forgetByPerson(ledger.db, uuidv7(), "bob")).kind, "unknown_memory");
    assert.deepEqual((await found(second, "")).texts, []);
  });

  it("belongs to its agent alone, whatever its audience", async () => {
    const mine = await aPlace();
    await remembered(
      mine,
      memoryOf(mine, "secret of mine", { audience: "agent", visibility: `agent:${mine.agent.id}` }),
    );
    const theirs = await aPlace();
    const { texts, leftOut } = await found(theirs, "secret");
    assert.deepEqual([texts, leftOut], [[], 0], "not even counted");
    assert.deepEqual((await found(await aPlace(mine), "secret")).texts, ["secret of mine"]);
  });

  it("is found by all words first, else by the beginning of some, newest first among equals", async () => {
    const run = await aPlace();
    const texts = ["the order of Bob", "orders are shipped on Friday", "Bob likes tea", "Bob likes tea, too"];
    for (const [index, text] of texts.entries()) {
      const made = await remembered(run, memoryOf(run, text, { callId: run.calls[index]?.id ?? "" }));
      assert.equal(made.kind, "remembered");
    }
    assert.deepEqual((await found(run, "bob order")).texts, ["the order of Bob"]);
    assert.deepEqual((await found(run, "order")).texts, ["the order of Bob"]);
    assert.deepEqual(
      (await found(run, "shipp")).texts,
      ["orders are shipped on Friday"],
      "a beginning, when nothing has the word",
    );
    assert.deepEqual((await found(run, "coffee or tea")).texts, ["Bob likes tea, too", "Bob likes tea"]);
    assert.deepEqual((await found(run, "tea -bob")).texts, [], "what must not be in it is not in it");
    assert.deepEqual((await found(run, "'; & | ! <-> :*")).texts, []);
    assert.deepEqual((await found(run, "")).texts, texts.toReversed());
    const { texts: two, more } = await found(run, "", 2);
    assert.deepEqual([two.length, more], [2, 2]);
  });

  describe("built on evidence", () => {
    it("is shown where `mayShow` says, for every audience at every place", async () => {
      const here = await aPlace();
      const there = await aPlace(here);
      const places = [here, there];
      for (const [index, audience] of AUDIENCES.entries()) {
        for (const own of ["conversation", "agent"] as const) {
          const source: Evidence = {
            id: uuidv7(),
            source: "api.example.test",
            audience,
            agentId: here.agent.id,
            conversationId: here.conversationId,
          };
          const run = await aPlace(here);
          const asked = aCall({
            idx: 0,
            class: "pure",
            kind: "tool.query",
            target: null,
            outcome: "real",
            result: "42",
            source,
          });
          const store = aCall({ idx: 1, class: "internal_durable", kind: "store.verb", target: null });
          // The source speaks of the conversation `here`: as if its result had been carried over.
          const skipped = run.calls.map(({ id }) => ({ id, outcome: "skipped" as const, result: "-" }));
          await commitResults(ledger.db, { ...run, nonce: uuidv7() }, skipped);
          await respond(ledger.db, run, [asked, store], { ordinal: 2 });
          await sql(ledger, "update tool_source_evidence set conversation_id = $2 where id = $1", [
            source.id,
            here.conversationId,
          ]);
          const limits: Limit[] = [
            { audience: own, agentId: here.agent.id, conversationId: run.conversationId },
            source,
          ];
          const text = `number${index}${own}`;
          const memory = {
            ...memoryOf(run, text),
            callId: store.id,
            audience: own,
            visibility: visibility(limits),
            evidence: [source.id],
          };
          await remembered(run, memory);
          for (const at of [...places, run]) {
            const { texts, leftOut, evidence } = await found(at, text);
            const shown = mayShow(limits, at.place);
            assert.deepEqual(texts, shown ? [text] : [], `${audience} ${own}`);
            assert.equal(leftOut, shown ? 0 : 1);
            assert.deepEqual(evidence, shown ? [source] : []);
          }
        }
      }
    });

    it("that is gone is shown nowhere", async () => {
      const run = await aPlace();
      await remembered(run, memoryOf(run, "hearsay", { evidence: [uuidv7()] }));
      const { texts, leftOut } = await found(run, "hearsay");
      assert.deepEqual([texts, leftOut], [[], 1]);
      await sql(ledger, "delete from memories where text = 'hearsay'");
    });
  });

  it("is found by the index of its words among thirty thousand of its agent and of others", async function () {
    this.timeout(60_000);
    const [mine, theirs] = [await aPlace(), await aPlace()];
    for (const [run, many] of [
      [mine, 20_000],
      [theirs, 10_000],
    ] as const) {
      await sql(
        ledger,
        `insert into memories (id, agent_id, conversation_id, text, audience, visibility, evidence, run_id, call_id, actors, created_at)
         select gen_random_uuid(), $1::uuid, $2, 'fact' || n || ' about word' || n % 500, 'agent', 'agent:' || $1::uuid, '{}', $3,
                gen_random_uuid(), '{}', pawl_now() from generate_series(1, $4) n`,
        [run.agent.id, run.conversationId, run.runId, many],
      );
    }
    await sql(ledger, "vacuum analyze memories");
    const asked = { agent: mine.agent.id, conversation: mine.conversationId, query: "fact77 word77", most: 10 };
    const statement = statements().find(({ name }) => name === "recall");
    assert.ok(statement !== undefined);
    const plan = JSON.stringify(
      await sql(
        ledger,
        `explain (format json) ${statement.compiled}`,
        statement.order.map((key) => asked[key as keyof typeof asked]),
      ),
    );
    assert.match(plan, /"Index Name":"memories_words"/);
    assert.doesNotMatch(plan, /"Seq Scan"[^}]*"Relation Name":"memories"/);
    assert.deepEqual((await found(mine, asked.query)).texts, ["fact77 about word77"]);
    assert.equal((await found(mine, "word77")).more, 30);
    await sql(ledger, "delete from memories where text like 'fact%'");
  });

  it("is shown and forgotten on the command line", async () => {
    const run = await aPlace();
    const memory = memoryOf(run, "on the command line");
    await remembered(run, memory);
    const which = { namespace: "demo", agent: run.agent.name, every: false };
    assert.match(await memoriesOf(ledger.db, which), new RegExp(`${memory.id} .*on the command line$`));
    const asked = { memory: memory.id, by: "bob" };
    assert.match(await forgetOf(ledger.db, asked), /no agent recalls it any more$/);
    assert.match(await forgetOf(ledger.db, asked), /is forgotten already, since .*, by bob$/);
    assert.match(await memoriesOf(ledger.db, which), /remembers nothing/);
    assert.match(await memoriesOf(ledger.db, { ...which, every: true }), /by bob/);
    await assert.rejects(memoriesOf(ledger.db, { ...which, agent: "nobody" }), { reason: "AgentUnknown" });
  });

  it("is listed for people; no row says that there is no such agent", async () => {
    const run = await aPlace();
    const which = { namespace: "demo", agent: run.agent.name, every: false, most: 10 };
    assert.deepEqual(await listMemories(ledger.db, which), []);
    assert.equal(await listMemories(ledger.db, { ...which, agent: "nobody" }), null);
    await remembered(run, memoryOf(run, "listed"));
    const [listed] = (await listMemories(ledger.db, which)) ?? [];
    assert.deepEqual(
      [listed?.text, listed?.visibility, listed?.actors, listed?.sources, listed?.forgotten],
      ["listed", `conversation:${run.conversationId}`, "alice", [], null],
    );
  });
});

describe("evidence in the ledger", () => {
  const ledger = useLedger();
  afterEach(async () => {
    disarmFailpoint();
    assert.deepEqual(await checkInvariants(ledger.db), []);
  });
  const query = (changes = {}) => aCall({ class: "pure", kind: "tool.query", target: null, ...changes });
  const from = (source: string): Evidence => ({
    id: uuidv7(),
    source,
    audience: "public",
    agentId: uuidv7(),
    conversationId: uuidv7(),
  });

  it("comes with the result that it is of: of a quick call with the response, of another with the results", async () => {
    const run = await aClaimedRun(ledger.db);
    const [one, two] = [from("one.test"), from("two.test")];
    const calls = [query({ outcome: "real", result: "1", source: one }), query({ idx: 1 })] as const;
    await respond(ledger.db, run, calls);
    armFailpoint("after:commit_results:1:swallow");
    const results = [{ id: calls[1].id, outcome: "real" as const, result: "2", source: two, restsOn: [one] }];
    assert.equal((await commitResults(ledger.db, { ...run, nonce: uuidv7() }, results)).kind, "already");
    const conversationId = await conversationOf(ledger, run.runId);
    // Whose it is says the run, not the caller.
    const own = { agentId: run.agent.id, conversationId };
    assert.deepEqual(await readEvidence(ledger.db, run.runId, 50), [
      { ...one, ...own },
      { ...two, ...own },
    ]);
    const rows = await sql<{ evidence: string[] }>(
      ledger,
      "select evidence from tool_calls where run_id = $1 order by idx",
      [run.runId],
    );
    assert.deepEqual(
      rows.map(({ evidence }) => evidence),
      [[one.id], [two.id, one.id]],
    );
  });

  it("is not made by a result that is not taken", async () => {
    const run = await aClaimedRun(ledger.db);
    const call = query();
    await respond(ledger.db, run, [call]);
    await lapse(ledger.db, run.runId);
    const results = [{ id: call.id, outcome: "real" as const, result: "late", source: from("late.test") }];
    assert.equal((await commitResults(ledger.db, { ...run, nonce: uuidv7() }, results)).kind, "fenced");
    assert.equal(await count(ledger, "tool_source_evidence where source = 'late.test'"), 0);
  });
});
