/** Answers that are odd, cut or lost on the way: what runs, what does not, and that the next request is always valid. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { drain } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { outcomeOf, realBench, type Scene, scene, useReality } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";
import { WorkerProcess } from "../sweep/process.ts";

const post = (url: string, body: string) => ({
  name: "http_request",
  arguments: { method: "POST", url, body: JSON.stringify({ text: body }) },
});
const sum = { name: "calculate", arguments: { expression: "6*7" } };

describe("answers of a model", function () {
  this.timeout(20_000);
  const ledger = useLedger();
  const fakes = useReality();
  afterEach(async () => {
    assert.deepEqual(await checkInvariants(ledger.db), []);
    assert.deepEqual(await fakes.model.control("GET", "/rejected"), [], "a strict endpoint takes every request");
  });
  const drive = () => drain(realBench(ledger.db).deps);
  const results = async (run: Scene, step: number) => {
    const entry = (await run.requests()).find((one) => one.step === step);
    return (entry?.request.messages ?? []).filter((one) => one.role === "tool").map((one) => String(one.content));
  };

  for (const finish of ["stop", null, "end_turn", "function_calls"]) {
    it(`run their calls whatever the finish reason says: ${String(finish)} (C23)`, async () => {
      const run = await scene(ledger.db, fakes, [{ finish, calls: [sum, post("{{plain}}", "one")] }, { text: "done" }]);
      await drive();
      assert.equal((await run.accepted()).length, 1);
      assert.equal((await results(run, 1))[0], "42");
      assert.equal((await outcomeOf(ledger.db, run.runId)).row.status, "succeeded");
    });
  }

  const cut = {
    "with whole arguments, cut at the output limit": { finish: "length", calls: [post("{{plain}}", "cut here")] },
    "with arguments that are half a JSON": {
      calls: [{ name: "http_request", argumentsText: '{"method":"POST","url":"{{plain}}","body":"half' }],
    },
  };
  for (const [title, answer] of Object.entries(cut)) {
    it(`${title} run nothing, are asked again twice, and then fail the run visibly (C24)`, async () => {
      const run = await scene(ledger.db, fakes, [answer, answer, answer, { text: "never asked for" }]);
      await drive();
      const { row, run: record, reply } = await outcomeOf(ledger.db, run.runId);
      assert.deepEqual([row.status, row.reason], ["failed", "ModelUnusable"]);
      assert.match(reply ?? "", /^I could not answer this: the model .* gave no answer that I could work with/);
      assert.match(row.message ?? "", /3 responses in a row .* try another model or simplify the tools/);
      assert.equal((await run.accepted()).length, 0);
      assert.equal((await run.requests()).length, 3);
      assert.match((await results(run, 1))[0] ?? "", /^Not run: .*(cut at the output limit|not valid JSON)/);
      assert.ok(record.calls.every((call) => call.class === "reply" || call.outcome === "rejected"));
    });
  }

  it("that were cut once are mended by the next one (C24)", async () => {
    const run = await scene(ledger.db, fakes, [
      cut["with arguments that are half a JSON"],
      { calls: [post("{{plain}}", "whole")] },
      { text: "written" },
    ]);
    await drive();
    assert.deepEqual(
      (await run.accepted()).map((entry) => entry.bodyPreview),
      ['{"text":"whole"}'],
    );
    assert.equal((await outcomeOf(ledger.db, run.runId)).reply, "written");
  });

  it("whose text was cut are given as they are, and say so", async () => {
    const run = await scene(ledger.db, fakes, [{ text: "The three rules are: first", finish: "length" }]);
    await drive();
    const { reply } = await outcomeOf(ledger.db, run.runId);
    assert.equal(reply, "The three rules are: first\n\n[This answer was cut at the model's output limit.]");
  });

  const ids = {
    "empty ids": ["", ""],
    "one id twice": ["call_1", "call_1"],
    "ids that are names": ["http_request", "http_request"],
  };
  for (const [title, [first, second]] of Object.entries(ids)) {
    for (const slots of ["index", "zero"] as const) {
      it(`with ${title}${slots === "zero" ? ", all at stream index 0," : ""} are two calls with two results (C25)`, async () => {
        const calls = [
          { ...post("{{plain}}/a", "one"), id: first },
          { ...post("{{plain}}/b", "two"), id: second },
        ];
        const run = await scene(ledger.db, fakes, [{ slots, calls }, { text: "done" }]);
        await drive();
        assert.deepEqual(
          (await run.accepted()).map((entry) => [entry.path.slice(-2), entry.bodyPreview]),
          [
            ["/a", '{"text":"one"}'],
            ["/b", '{"text":"two"}'],
          ],
        );
        const told = await results(run, 1);
        assert.deepEqual(told.length, 2);
        assert.match(told[0] ?? "", /"path":"[^"]*\/a"/);
        assert.match(told[1] ?? "", /"path":"[^"]*\/b"/);
      });
    }
  }

  it("that ask for the same read five times get five fresh answers, in one response and in several (C57)", async () => {
    const read = { name: "http_request", arguments: { method: "GET", url: "{{plain}}" } };
    const run = await scene(ledger.db, fakes, [
      { calls: [read, read] },
      { calls: [read] },
      { calls: [post("{{plain}}", "changed"), read] },
      { calls: [read] },
      { text: "seen" },
    ]);
    await drive();
    const reads = (await run.accepted()).filter((entry) => entry.outcome === "read");
    assert.equal(reads.length, 5);
    const last = await results(run, 4);
    assert.match(last.at(-1) ?? "", /changed/);
    assert.match(last[0] ?? "", /"records":\[\]/);
  });

  it("that ask for one write thirty times make one, and every call gets its result (C56)", async () => {
    const run = await scene(ledger.db, fakes, [
      { calls: Array.from({ length: 30 }, () => post("{{plain}}", "once")) },
      { text: "done" },
    ]);
    await drive();
    assert.equal((await run.accepted()).length, 1);
    const told = await results(run, 1);
    assert.equal(told.length, 30);
    assert.ok(
      told.every((result) => result.includes('"text":"once"')),
      told[29],
    );
  });

  it("and the message that comes as they are given is the next turn's (C58)", async () => {
    const run = await scene(ledger.db, fakes, [{ text: "first", hold: true }]);
    const { deps } = realBench(ledger.db);
    const say = (text: string) =>
      ingest(
        ledger.db,
        aMessage(run.agentId, { conversationKey: run.conversationKey, text: `script:${run.id} ${text}` }),
      );
    for (let round = 1; round <= 8; round += 1) {
      await say(`opens round ${round}`);
      const before = (await fakes.model.log()).length;
      const driven = drain(deps);
      await fakes.model.log(before + 1);
      await Promise.all([say(`meets the end of round ${round}`), fakes.model.control("POST", "/release")]);
      await releaseUntil(driven);
    }
    await releaseUntil(drain(deps));
    const { rows } = await ledger.db.pool.query(
      "select state, count(*)::int as n from message_events e join conversations c on c.id = e.conversation_id where c.ext_key = $1 group by 1",
      [run.conversationKey],
    );
    assert.deepEqual(rows, [{ state: "accounted", n: 17 }]);
  });

  /** Lets every held answer go until the engine has nothing more to do. */
  async function releaseUntil(driven: Promise<unknown>): Promise<void> {
    const end = driven.then(() => "over");
    while ((await Promise.race([end, fakes.model.control("POST", "/release")])) !== "over");
  }

  describe("when their worker is killed", () => {
    const worker = (name: string, failpoint?: string) =>
      new WorkerProcess({ ledgerUrl: ledger.url, name, ...(failpoint === undefined ? {} : { failpoint }) });

    async function killedAt(failpoint: string, run: Scene, occurrence = 1): Promise<void> {
      await worker("first", `${failpoint}:${occurrence}:kill`).exited;
      const second = worker("second");
      await second.said((line) => line.msg === "a turn ended" && line["run"] === run.runId);
      await second.stop();
    }

    it("after the commit and before any result: each call gets exactly one (C28)", async () => {
      const calls = [
        sum,
        { name: "http_request", arguments: { method: "GET", url: "{{plain}}" } },
        post("{{keyed}}", "w"),
      ];
      const run = await scene(ledger.db, fakes, [{ calls }, { text: "done" }]);
      await killedAt("after:commit_response", run);
      const told = await results(run, 1);
      assert.equal(told.length, 3);
      assert.equal(told[0], "42");
      assert.match(told[2] ?? "", /HTTP 201/);
      assert.equal((await outcomeOf(ledger.db, run.runId)).row.status, "succeeded");
    });

    it("between two steps: the one that goes on is told so, once, and by the record for ever after", async () => {
      const run = await scene(ledger.db, fakes, [{ calls: [sum] }, { calls: [sum] }, { text: "done" }]);
      await killedAt("after:model", run, 2);
      const told = (await run.requests()).map(({ request }) =>
        request.messages.flatMap(({ content }, at) => (content?.includes("another one goes on") === true ? [at] : [])),
      );
      // Behind the first step's result, in the request that is sent again and in those after it.
      assert.deepEqual(told, [[], [], [4], [4]]);
    });

    it("before the commit: the model says it in other words, and the write happens once (C55)", async () => {
      const run = await scene(ledger.db, fakes, [
        { calls: [post("{{plain}}", "in its first words")] },
        { text: "done" },
      ]);
      await killedAt("after:model", run);
      const writes = (await run.accepted()).filter((entry) => entry.outcome === "write");
      assert.equal(writes.length, 1);
      assert.match(writes[0]?.bodyPreview ?? "", /In other words/);
      assert.deepEqual(
        (await run.requests()).map((entry) => [entry.step, entry.sample]),
        [
          [0, 0],
          [0, 1],
          [1, 0],
        ],
      );
    });

    it("after the commit: it is never asked again, and what was recorded is written (C55)", async () => {
      const run = await scene(ledger.db, fakes, [
        { calls: [post("{{keyed}}", "in its first words")] },
        { text: "done" },
      ]);
      await killedAt("before:tool.http_request", run);
      const accepted = await run.accepted();
      assert.deepEqual(
        accepted.map((entry) => [entry.outcome, entry.bodyPreview]),
        [["write", '{"text":"in its first words"}']],
      );
      assert.deepEqual(
        (await run.requests()).map((entry) => [entry.step, entry.sample]),
        [
          [0, 0],
          [1, 0],
        ],
      );
    });
  });
});
