/** A question to people, from the response that asks it to what the model reads of the answer, or people of its end. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { readEmissions } from "#ledger/emissions.ts";
import type { Database } from "#ledger/database.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { type Answer, answerQuestion, readQuestions } from "#ledger/questions.ts";
import { driveRun } from "#engine/drive.ts";
import { emit, notice, speakerOf } from "#engine/emissions.ts";
import type { OutboundMessage, Posted } from "#engine/ports.ts";
import { traceRun } from "#engine/trace.ts";
import { readRun } from "#ledger/reads.ts";
import { CODE } from "#rules/limits.ts";
import { applied } from "../support/approvals.ts";
import { asks, bench, done, drain, engineAgent, quick, says, type Script, writer } from "../support/engine.ts";
import { alone, lapse, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { answers } from "../support/questions.ts";
import { aMessage } from "../support/world.ts";

/** Says everything, or what a test lets it; and remembers what it was asked to say. */
function recording(answer: (message: OutboundMessage) => Posted | Promise<Posted> = () => ({ kind: "landed" })) {
  const posted: OutboundMessage[] = [];
  return {
    posted,
    post: async (message: OutboundMessage) => {
      posted.push(message);
      return answer(message);
    },
  };
}

describe("a question to people", () => {
  const ledger = useLedger();
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const question = (text = "Which colour?", options?: string[]): [string, unknown] => [
    "ask_user",
    options === undefined ? { question: text } : { question: text, options },
  ];
  const write = (to: string): [string, unknown] => ["write", { to }];

  /** A ledger that a process cannot reach any more when it wants to run this statement. */
  const without = (name: string): Database =>
    new Proxy(ledger.db, {
      get: (target, key, receiver) =>
        key === "one"
          ? (statement: { name: string }, params: never) => {
              if (statement.name === name) throw new Error("the process is gone");
              return target.one(statement as never, params);
            }
          : Reflect.get(target, key, receiver),
    });

  /** A turn of alice's that may ask, driven as far as it goes by itself. */
  async function turn(
    script: Script,
    { spec = {}, outbound = recording(), tools = ["write", "echo", "ask_user"], db = ledger.db } = {},
  ) {
    const name = `run-${uuidv7()}`;
    const agent = await engineAgent(ledger.db, tools, spec);
    const ingested = await ingest(ledger.db, aMessage(agent.id, { text: "paint it", applied: applied(name) }));
    assert.ok("runId" in ingested);
    const { runId, eventId } = ingested;
    const tool = writer([done("written")]);
    const made = bench(ledger.db, script, [tool, quick], { deps: { outbound, db } });
    await drain(made.deps);
    const asked = async () => (await readQuestions(ledger.db, runId)).at(-1);
    const answer = async (text = "blue", changes: Partial<Answer> = {}) => {
      const open = await asked();
      assert.ok(open !== undefined, "nothing was asked");
      return answerQuestion(ledger.db, answers({ name }, open, { text, ...changes }));
    };
    const results = () =>
      made.requests
        .at(-1)
        ?.messages.filter(({ role }) => role === "tool")
        .map(({ content }) => content);
    const emissions = async () => {
      const [row] = await sql<{ id: string }>(ledger, "select request_id as id from runs where id = $1", [runId]);
      return readEmissions(ledger.db, row?.id ?? "");
    };
    const row = () => runRow(ledger, runId);
    return { ...made, agent, runId, eventId, name, tool, outbound, asked, answer, results, emissions, row };
  }
  const expire = (runId: string) =>
    sql(
      ledger,
      `with q as (update questions set asked_at = pawl_now() - interval '2 days', expires_at = pawl_now() - interval '1 day' where run_id = $1)
       update runs set due_at = pawl_now() - interval '1 day' where id = $1`,
      [runId],
    );
  const replyOf = async (runId: string) =>
    (
      await sql<{ text: string }>(
        ledger,
        "select args ->> 'text' as text from tool_calls where run_id = $1 and class = 'reply' and outcome = 'real'",
        [runId],
      )
    )[0]?.text;

  it("is said once, and its turn waits without a lease and says what to do", async () => {
    const { row, asked, outbound, emissions } = await turn([asks(question("Which colour?", ["red", "blue"]))]);
    const { status, reason, lease_owner: owner, committed_at: committed, ...rest } = await row();
    assert.deepEqual([status, reason, owner, committed], ["awaiting_input", "Question", null, null]);
    const open = await asked();
    assert.match(
      (rest as unknown as { message: string }).message,
      /^a person must answer: Which colour\? — apply a Run/,
    );
    assert.ok((rest as unknown as { message: string }).message.endsWith(` ${open?.id}`));
    assert.deepEqual([open?.state, open?.options], ["open", ["red", "blue"]]);
    const [said, ...more] = outbound.posted;
    assert.deepEqual([said?.kind, said?.text, more], ["question", "Which colour?\n- red\n- blue", []]);
    assert.deepEqual(
      (await emissions()).map(({ state }) => state),
      ["landed"],
    );
  });

  it("is answered by anybody, and the model reads by whom, once and nowhere else", async () => {
    const { answer, deps, requests, results, row, runId } = await turn([asks(question()), says("painted blue")]);
    assert.equal((await answer("blue, please")).kind, "answered");
    await drain(deps);
    assert.deepEqual(results(), ["[answer of bob] blue, please"]);
    assert.equal(JSON.stringify(requests.at(-1)?.messages).split("blue, please").length, 2);
    const { status, reason } = await row();
    assert.deepEqual([status, reason], ["succeeded", "Answered"]);
    const trace = await traceRun(ledger.db, runId);
    assert.deepEqual(
      trace?.steps.map(({ kind }) => kind),
      ["ok", "ok"],
      "the request with the answer can be built again from rows",
    );
    const [event] = await sql(ledger, "select state from message_events where run_id = $1 and kind = 'decision'", [
      runId,
    ]);
    assert.equal(event?.["state"], "accounted");
  });

  it("waits as long as its Agent says", async () => {
    const { asked } = await turn([asks(question())], { spec: { answerWithin: "90m" } });
    const open = await asked();
    assert.equal(Number(open?.expiresAt) - Number(open?.askedAt), 5_400_000);
  });

  it("waits a day where its Agent says nothing", async () => {
    const { asked } = await turn([asks(question())]);
    const open = await asked();
    assert.equal(Number(open?.expiresAt) - Number(open?.askedAt), 24 * 3_600_000);
  });

  it("ends a turn that nobody answers, which says what it had needed and what it had done", async () => {
    const { runId, deps, row, answer, requests } = await turn([asks(write("a")), asks(question("Which\ncolour?"))]);
    await expire(runId);
    await drain(deps);
    const { status, reason } = await row();
    assert.deepEqual([status, reason], ["failed", "AnswerTimeout"]);
    const reply = await replyOf(runId);
    assert.match(
      reply ?? "",
      /^To go on I needed an answer to this, and nobody gave one in time:\n> Which\n> colour\?/,
    );
    assert.match(reply ?? "", /https:\/\/world\.test\/a: done/);
    assert.equal(requests.length, 2, "no model was asked");
    assert.equal((await answer()).kind, "late");
  });

  it("ends it in the same words when a worker died between noticing and saying so", async () => {
    const { runId, deps, row } = await turn([asks(question())]);
    await expire(runId);
    const claim = await claimRun(ledger.db, "dies", 10_000, CODE);
    assert.ok(claim !== null);
    const dying = {
      ...deps,
      db: new Proxy(ledger.db, {
        get: (target, key, receiver) =>
          key === "transaction"
            ? () => Promise.reject(new Error("the process is gone"))
            : Reflect.get(target, key, receiver),
      }),
    };
    await driveRun(dying, claim, new AbortController().signal);
    assert.equal((await row()).status, "running");
    await sql(ledger, "update runs set due_at = pawl_now() where id = $1 and due_at is not null", [runId]);
    await drain(deps);
    const { status, reason } = await row();
    assert.deepEqual([status, reason], ["failed", "AnswerTimeout"]);
  });

  it("is one question: another of the same response is not asked, and what stands behind it does not run", async () => {
    const { asked, answer, deps, tool, results, runId } = await turn([
      asks(write("before"), question("first?"), write("behind"), question("second?")),
      says("done"),
    ]);
    assert.deepEqual([(await asked())?.text, (await readQuestions(ledger.db, runId)).length], ["first?", 1]);
    assert.deepEqual(
      tool.sent.map(({ args }) => args["to"]),
      ["before"],
    );
    await answer("yes");
    await drain(deps);
    const [first, ...rest] = results() ?? [];
    assert.deepEqual(
      [first, ...rest],
      [
        "written",
        "[answer of bob] yes",
        "Not run: your question comes first. Call it again if it still fits the answer.",
        "Not asked: one question at a time. Ask it again if it still matters after the answer to the first.",
      ],
    );
    assert.equal(tool.sent.length, 1);
  });

  it("may follow another: the second is said as well", async () => {
    const { answer, deps, outbound, results } = await turn([asks(question("a?")), asks(question("b?")), says("done")]);
    await answer("A");
    await drain(deps);
    await answer("B");
    await drain(deps);
    assert.deepEqual(
      outbound.posted.map(({ text, sequence }) => [text, sequence]),
      [
        ["a?", 1],
        ["b?", 2],
      ],
    );
    assert.deepEqual(results(), ["[answer of bob] A", "[answer of bob] B"]);
  });

  it("needs nobody's approval, changes nothing outside, and cannot be declared to", async () => {
    const effects = [{ tool: "ask_user", effect: "tool.effect", target: "people" }];
    const { row, asked, runId } = await turn([asks(question())], {
      spec: { tools: { requireApproval: ["*"], effects } },
    });
    const { status, committed_at: committed } = await row();
    assert.deepEqual([status, committed, (await asked())?.state], ["awaiting_input", null, "open"]);
    const [call] = await sql(ledger, "select class, kind, gate from tool_calls where run_id = $1", [runId]);
    assert.deepEqual(call, { class: "internal_durable", kind: "harness.call", gate: "none" });
  });

  it("is no tool of an agent that does not list it", async () => {
    const { results, requests } = await turn([asks(question()), says("never mind")], { tools: ["write"] });
    assert.match(results()?.[0] ?? "", /^Not run: there is no tool "ask_user"/);
    assert.equal(
      requests[0]?.tools.some(({ name }) => name === "ask_user"),
      false,
    );
  });

  it("that is no question is sent back to the model with what it must be", async () => {
    const { results } = await turn([
      asks(["ask_user", { question: "" }], ["ask_user", { question: "x", options: Array.from({ length: 9 }, String) }]),
      says("never mind"),
    ]);
    for (const result of results() ?? [])
      assert.match(result ?? "", /^Not run: `question` must be a text of 1 to 1000/);
  });

  it("is cancelled with its turn at once when somebody stops it", async () => {
    const { eventId, row, asked } = await turn([asks(question())]);
    assert.equal(await stop(ledger.db, eventId), "cancelled");
    assert.deepEqual([(await row()).status, (await asked())?.state], ["cancelled", "withdrawn"]);
  });

  it("is taken back when somebody stops a turn that has changed something, which says so before it ends", async () => {
    const { eventId, row, asked, deps, runId } = await turn([asks(write("a"), question())]);
    assert.equal(await stop(ledger.db, eventId), "stopping");
    await drain(deps);
    assert.deepEqual([(await row()).status, (await asked())?.state], ["cancelled", "withdrawn"]);
    assert.match((await replyOf(runId)) ?? "", /^Stopped, as you asked\.[^]*world\.test\/a: done/);
  });

  it("is answered by a message in its conversation as well", async () => {
    const { agent, runId, deps, results, row } = await turn([asks(question()), says("painted red")]);
    const [conversation] = await sql<{ key: string }>(
      ledger,
      "select c.ext_key as key from runs r join conversations c on c.id = r.conversation_id where r.id = $1",
      [runId],
    );
    const said = aMessage(agent.id, {
      conversationKey: conversation?.key ?? "",
      actor: { connector: "kubernetes", extId: "carol" },
      text: "red",
      applied: applied(`run-${uuidv7()}`),
    });
    assert.equal((await ingest(ledger.db, said)).kind, "answers");
    await drain(deps);
    assert.deepEqual([results(), (await row()).status], [["[answer of carol] red"], "succeeded"]);
  });

  it("is not said twice when its worker dies before it knows what became of it, and is answered all the same", async () => {
    const db = without("settle_emission");
    const { outbound, emissions, row, runId, answer, deps } = await turn([asks(question()), says("done")], { db });
    assert.deepEqual([outbound.posted.length, (await emissions())[0]?.state], [1, "reserved"]);
    await sql(ledger, "update emissions set due_at = pawl_now() where run_id = $1", [runId]);
    assert.equal((await emissions())[0]?.state, "unknown");
    await sql(ledger, "update runs set due_at = pawl_now() where id = $1", [runId]);
    await drain({ ...deps, db: ledger.db });
    assert.equal(outbound.posted.length, 1, "asked again by the next worker, and said by nobody");
    assert.equal((await row()).status, "awaiting_input");
    await answer();
    await drain({ ...deps, db: ledger.db });
    assert.equal((await row()).status, "succeeded");
  });

  it("holds nobody up when its receiver never answers", async () => {
    const { row, emissions } = await turn([asks(question())], { outbound: recording(() => new Promise(() => {})) });
    assert.deepEqual([(await row()).status, (await emissions())[0]?.state], ["awaiting_input", "unknown"]);
  });

  it("survives its worker: whoever takes over asks what was recorded, and the model is not asked again", async () => {
    const made = await turn([says("never mind")]);
    const ingested = await ingest(ledger.db, aMessage(made.agent.id, { text: "again" }));
    assert.ok("runId" in ingested);
    const later = bench(ledger.db, [asks(question())], [made.tool]);
    const claim = await claimRun(ledger.db, "dies", 10_000, CODE);
    assert.ok(claim !== null);
    await driveRun({ ...later.deps, db: without("park_for_input") }, claim, new AbortController().signal);
    await sql(ledger, "update runs set due_at = pawl_now() where id = $1 and due_at is not null", [ingested.runId]);
    await drain(later.deps);
    assert.equal((await readQuestions(ledger.db, ingested.runId)).length, 1);
    assert.equal(later.requests.length, 1);
  });

  it("goes back to the model when there is newer input that it knows nothing of", async () => {
    const made = await turn([asks(question()), says("ah, blue")], {
      outbound: recording(),
      spec: { models: { primary: { baseURL: "http://model.test/v1", model: "scripted" } } },
    });
    // Nobody amends yet: the column, as that will set it, between the response and the asking.
    assert.equal((await made.row()).status, "awaiting_input");
    await sql(ledger, "update runs set amend_seq = 2, due_at = pawl_now() where id = $1", [made.runId]);
    await drain(made.deps);
    assert.deepEqual(made.results(), ["Not run: there is newer input. Read it first."]);
    assert.equal((await made.asked())?.state, "withdrawn");
    await sql(ledger, "update runs set amend_seq = 0 where id = $1", [made.runId]);
  });
});

describe("something that a turn says besides its answer", () => {
  const ledger = useLedger();
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  async function speaker(outbound: ReturnType<typeof recording>) {
    const agent = await engineAgent(ledger.db, []);
    const ingested = await ingest(ledger.db, aMessage(agent.id));
    assert.ok("runId" in ingested);
    const { deps } = bench(ledger.db, [], [], { deps: { outbound } });
    const run = await readRun(ledger.db, ingested.runId);
    return { deps, run, who: speakerOf({ run }), states: () => readEmissions(ledger.db, run.requestId) };
  }

  it("is said where its conversation is, under a key of its request, and never again", async () => {
    const outbound = recording(() => ({ kind: "landed", receipt: { ts: "1" } }));
    const { deps, run, who } = await speaker(outbound);
    assert.equal(await notice(deps, who, 3, "Too late: I undo it next."), "landed");
    assert.equal(await notice(deps, who, 3, "Too late: I undo it next."), "taken");
    assert.equal(await notice(deps, who, 4, "And that too."), "landed");
    const conversation = { id: run.conversationId, connector: run.connector, key: run.conversationKey };
    assert.deepEqual(outbound.posted[0], {
      conversation,
      request: run.requestId,
      kind: "notice",
      sequence: 3,
      text: "Too late: I undo it next.",
      key: `${run.requestId}/notice/3`,
    });
    assert.equal(outbound.posted.length, 2);
  });

  for (const [what, answer, state] of [
    ["refuses", () => ({ kind: "failed", why: "no such channel" }) as const, "failed"],
    ["does not say whether it came through", () => ({ kind: "unknown", why: "reset" }) as const, "unknown"],
    ["breaks", () => Promise.reject(new Error("bang")), "unknown"],
  ] as const) {
    it(`is ${state} when its receiver ${what}, and holds up nobody`, async () => {
      const outbound = recording(answer);
      const { deps, who, states } = await speaker(outbound);
      const saying = { kind: "progress", sequence: 0, text: "still at it" } as const;
      assert.equal(await emit(deps, who, saying), state);
      assert.equal(await emit(deps, who, saying), "taken");
      assert.deepEqual([(await states()).map((row) => row.state), outbound.posted.length], [[state], 1]);
    });
  }

  it("is not said by a worker that holds its run no more", async () => {
    const outbound = recording();
    const { deps, who, run } = await speaker(outbound);
    const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
    await lapse(ledger, run.id);
    assert.equal(await emit(deps, who, { kind: "progress", sequence: 0, text: "x" }, claim?.token ?? 0), "fenced");
    assert.equal(outbound.posted.length, 0);
    await sql(ledger, "update runs set lease_until = pawl_now() + interval '1 year' where id = $1", [run.id]);
  });

  it("is said once by two who would say it at the same moment", async () => {
    const outbound = recording();
    const { deps, who } = await speaker(outbound);
    const [first, second] = await Promise.all([notice(deps, who, 7, "once"), notice(deps, who, 7, "once")]);
    assert.deepEqual([first, second].toSorted(), ["landed", "taken"]);
    assert.equal(outbound.posted.length, 1);
  });
});
