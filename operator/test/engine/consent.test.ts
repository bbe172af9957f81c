/** A turn ended at its limit and asked whether to go on: what a yes, and everything short of it, make of the next one. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import type { Consent, Judge } from "#engine/judge.ts";
import { traceRun } from "#engine/trace.ts";
import { asks, bench, done, drain, engineAgent, quick, says, type Script, writer } from "../support/engine.ts";
import { sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { outcomeOf } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";

describe("the message after a turn that ended at its limit", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const ALICE = { connector: "kubernetes", extId: "alice" };
  const BOB = { connector: "kubernetes", extId: "bob" };

  /** One write, the limit, a question; then this answer, after which the model asks for the same write again. */
  async function after(answer: string, consent: Consent | undefined, actor = ALICE, then?: Script) {
    const agent = await engineAgent(ledger.db, ["echo", "write"], { budgets: { iterations: 1 } });
    const first = aMessage(agent.id, { actor: ALICE, text: "file it" });
    const opened = await ingest(ledger.db, first);
    const tool = writer([done("filed as 7")]);
    const write = asks(["write", { to: "issues" }]);
    await drain(bench(ledger.db, [write, says("Issue 7 is filed. Shall I go on?")], [quick, tool]).deps);
    const next = await ingest(
      ledger.db,
      aMessage(agent.id, { conversationKey: first.conversationKey, text: answer, actor }),
    );
    if (!("runId" in opened) || !("runId" in next)) throw new Error("no run");
    await sql(ledger, `update runs set slice = '{"iterations": 1}' where id = $1`, [next.runId]);
    const heard: { question: string; answer: string }[] = [];
    const judge: Judge | undefined =
      consent === undefined
        ? undefined
        : {
            consent: (about) => {
              heard.push(about);
              return Promise.resolve(consent);
            },
            sensitivity: () => Promise.resolve("unsure"),
            relation: () => Promise.resolve("unsure"),
          };
    const { deps, requests } = bench(ledger.db, then ?? [write, says("Went on.")], [quick, tool], {
      deps: judge === undefined ? {} : { judge },
    });
    await drain(deps);
    const [link] = await sql<{ continues: boolean; same: boolean; calls: number }>(
      ledger,
      `select q.continues = p.request_id as continues, r.journal_scope = p.journal_scope as same, r.model_calls as calls
       from runs r join logical_requests q on q.id = r.request_id, runs p where r.id = $1 and p.id = $2`,
      [next.runId, opened.runId],
    );
    return { heard, requests, sent: tool.sent.length, link, ...(await outcomeOf(ledger.db, next.runId)) };
  }

  it("goes on in the journal of that turn after a clear yes: the same write gets the recorded result, with a budget of its own", async () => {
    const went = await after("yes, please", "yes");
    assert.deepEqual(went.heard, [{ question: "Issue 7 is filed. Shall I go on?", answer: "yes, please" }]);
    assert.equal(went.sent, 1, "nothing was written a second time");
    assert.match(went.run.calls.at(-2)?.result ?? "", /^\(Not sent again: this is the recorded result.*\nfiled as 7$/s);
    assert.deepEqual(went.link, { continues: true, same: true, calls: 2 });
  });

  it("goes on from where that turn stood: its steps are there, its last words are what they were, and nothing twice", async () => {
    const went = await after("yes, please", "yes");
    const messages = went.requests[0]?.messages.slice(1) ?? [];
    assert.deepEqual(
      messages.map(({ role, content }) => `${role}: ${content ?? ""}`),
      [
        "user: [user alice]\nfile it",
        "assistant: ",
        "tool: filed as 7",
        "assistant: Issue 7 is filed. Shall I go on?",
        "user: [user alice]\nyes, please",
      ],
    );
    assert.deepEqual([went.run.earlier, went.run.continuedThrough], [[], 2]);
    assert.deepEqual(
      went.run.steps.map(({ ordinal }) => ordinal),
      [1, 2, 3, 4],
    );
    assert.equal(went.reply, "Went on.");
    const trace = await traceRun(ledger.db, went.run.id);
    assert.deepEqual(
      trace?.steps.map(({ kind }) => kind),
      ["ok", "ok", "ok", "ok"],
    );
  });

  it("says in the end also what the turn before had done, when it uses up its own budget too", async () => {
    const went = await after("yes, please", "yes", ALICE, [
      asks(["echo", {}]),
      { kind: "failed", class: "terminal", reason: "ModelRejected", message: "No." },
    ]);
    assert.match(went.reply ?? "", /What I had tried to change by then:\n- https:\/\/world\.test\/issues: done/);
    assert.equal(went.run.status, "budget_exhausted");
  });

  it("is history like any other to the turn after it, each of the two once", async () => {
    const went = await after("yes, please", "yes");
    const next = await ingest(
      ledger.db,
      aMessage(went.run.agentId, { conversationKey: went.run.conversationKey, text: "thanks", actor: ALICE }),
    );
    assert.ok("runId" in next);
    const { deps, requests } = bench(ledger.db, [says("Welcome.")]);
    await drain(deps);
    assert.deepEqual(
      requests[0]?.messages.slice(1).map(({ content }) => content),
      [
        "[user alice]\nfile it",
        "Issue 7 is filed. Shall I go on?",
        "[user alice]\nyes, please",
        "Went on.",
        "[user alice]\nthanks",
      ],
    );
  });

  for (const consent of ["unsure", "no", undefined] as const) {
    it(`is an ordinary turn when the answer is ${consent ?? "read by no model"}`, async () => {
      const went = await after("hm, what is still open?", consent);
      assert.deepEqual([went.sent, went.link?.same, went.link?.continues], [2, false, null]);
    });
  }

  it("is not even asked about when somebody else wrote it", async () => {
    const went = await after("yes, please", "yes", BOB);
    assert.deepEqual([went.heard, went.sent, went.link?.same], [[], 2, false]);
  });
});
