/** Writes whose fate is unclear, through the real tool: what is sent again, what is not, and what is said about it. */
import assert from "node:assert/strict";
import { createServer } from "node:net";
import type { WorldControl } from "@pawl/fakes";
import { checkInvariants } from "#ledger/invariants.ts";
import { MAX_EFFECT_ATTEMPTS } from "#rules/journal.ts";
import { drain } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { outcomeOf, realBench, type Scene, scene, SETTLE_MS, UNKEYED, useReality } from "../support/reality.ts";

const post = (url: string, text: string) => ({
  name: "http_request",
  arguments: { method: "POST", url, body: { text } },
});

describe("a write", function () {
  this.timeout(20_000);
  const ledger = useLedger();
  const fakes = useReality();
  afterEach(async () => {
    assert.deepEqual(await checkInvariants(ledger.db), []);
    assert.deepEqual(await fakes.model.control("GET", "/rejected"), []);
    await fakes.world.control("DELETE", "/control");
    await fakes.world.control("POST", "/release");
  });
  const drive = () => drain(realBench(ledger.db).deps);
  const behave = (control: WorldControl) => fakes.world.control("PUT", "/control", control);
  const told = async (run: Scene, step: number) => {
    const entry = (await run.requests()).find((one) => one.step === step);
    return (entry?.request.messages ?? []).filter((one) => one.role === "tool").map((one) => String(one.content));
  };
  const outcomes = async (run: Scene) => (await run.accepted()).map((entry) => entry.outcome);

  it("to a closed port has failed, and the model is told that nothing was sent", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as { port: number };
    await new Promise((resolve) => server.close(resolve));
    const run = await scene(ledger.db, fakes, [
      { calls: [post(`http://127.0.0.1:${port}/x`, "a")] },
      { text: "no luck" },
    ]);
    await drive();
    const { effects, row } = await outcomeOf(ledger.db, run.runId);
    assert.deepEqual(
      effects.map(({ state, attempt }) => [state, attempt]),
      [["failed", 1]],
    );
    assert.match((await told(run, 1))[0] ?? "", /^Nothing was sent\. .*ECONNREFUSED/);
    assert.deepEqual([row.status, row.reason, row.message], ["succeeded", "Answered", null]);
  });

  const unclear: Record<string, object> = {
    "whose connection was cut after it": { mode: "cut" },
    "that was answered with 500 after it": { mode: "error", status: 500 },
    "whose answer did not come within its time": { mode: "hold" },
    "that was answered with garbage": { mode: "garbage" },
  };
  for (const [title, mode] of Object.entries(unclear)) {
    it(`${title}, where nobody declared a key: unknown, not sent again, told, and the run ends saying so`, async () => {
      const run = await scene(
        ledger.db,
        fakes,
        [{ calls: [post("{{plain}}", "a")] }, { text: "I could not find out whether it was written." }],
        { agent: UNKEYED },
      );
      await behave({ path: run.path("plain"), ...mode } as WorldControl);
      await drive();
      const { effects, row, run: record } = await outcomeOf(ledger.db, run.runId);
      assert.deepEqual(
        effects.map(({ state, attempt }) => [state, attempt]),
        [["unknown", 1]],
      );
      assert.deepEqual(await outcomes(run), ["write"]);
      assert.match((await told(run, 1))[0] ?? "", /^Outcome unknown: .* It was not sent again\. Look before/);
      assert.deepEqual([row.status, row.reason], ["succeeded", "EffectUnknown"]);
      assert.match(row.message ?? "", /^the outcome of 1 write is not known \(http:.*\/plain\/.*\): check there/);
      assert.equal(record.calls[0]?.outcome, "unknown");
    });

    it(`${title}, where the key is honoured: again under it after its settle time, and written once`, async () => {
      const run = await scene(ledger.db, fakes, [{ calls: [post("{{keyed}}", "a")] }, { text: "written" }]);
      await behave({ path: run.path("keyed"), times: 1, ...mode } as WorldControl);
      await drive();
      const accepted = await run.accepted();
      assert.deepEqual(
        accepted.map((entry) => entry.outcome),
        ["write", "replay"],
      );
      const [first, second] = accepted;
      const { effects, row } = await outcomeOf(ledger.db, run.runId);
      assert.deepEqual([first?.key, second?.key], [effects[0]?.id, effects[0]?.id]);
      // The first byte left after its row was written, by less than the time that it may take to leave.
      const apart = Date.parse(second?.at ?? "") - Date.parse(first?.at ?? "");
      assert.ok(apart >= SETTLE_MS - 200, `${apart} ms apart`);
      assert.deepEqual([effects[0]?.state, effects[0]?.attempt, row.reason], ["confirmed", 2, "Answered"]);
      assert.match((await told(run, 1))[0] ?? "", /^HTTP 201/);
    });
  }

  it("that gets no answer under its key either is sent a bounded number of times, and then unknown", async () => {
    const run = await scene(ledger.db, fakes, [{ calls: [post("{{keyed}}", "a")] }, { text: "unclear" }]);
    await behave({ path: run.path("keyed"), mode: "cut" });
    await drive();
    assert.deepEqual(await outcomes(run), [
      "write",
      ...Array.from({ length: MAX_EFFECT_ATTEMPTS - 1 }, () => "replay"),
    ]);
    assert.equal(new Set((await run.accepted()).map((entry) => entry.key)).size, 1);
    const { effects, row } = await outcomeOf(ledger.db, run.runId);
    assert.deepEqual([effects[0]?.state, effects[0]?.attempt, row.reason], ["unknown", 5, "EffectUnknown"]);
    assert.match((await told(run, 1))[0] ?? "", /^Outcome unknown: .* It was sent 5 times under one key\./);
  });

  it("that was lost and then refused stays unknown: a later refusal does not undo an earlier send", async () => {
    const run = await scene(ledger.db, fakes, [{ calls: [post("{{keyed}}", "a")] }, { text: "unclear" }]);
    await behave({ path: "/keyed", mode: "reject", status: 422 });
    await behave({ path: run.path("keyed"), mode: "cut", times: 1 });
    await drive();
    assert.deepEqual((await outcomes(run)).slice(0, 2), ["write", "rejected"]);
    const { effects, row } = await outcomeOf(ledger.db, run.runId);
    assert.deepEqual([effects[0]?.state, row.reason], ["unknown", "EffectUnknown"]);
    assert.match((await told(run, 1))[0] ?? "", /^Outcome unknown: .*\nWhat was seen of it: HTTP 422/);
  });

  it("to a target whose last write is unknown is not run, reworded or not, now or in the next response", async () => {
    const run = await scene(
      ledger.db,
      fakes,
      [
        { calls: [post("{{plain}}", "a"), post("{{plain}}", "in other words"), post("{{plain}}/other", "b")] },
        { calls: [post("{{plain}}", "a")] },
        { text: "one is unclear" },
      ],
      { agent: UNKEYED },
    );
    await behave({ path: run.path("plain"), mode: "cut", times: 1 });
    await drive();
    assert.deepEqual(
      (await run.accepted()).map((entry) => [entry.outcome, entry.path.endsWith("/other")]),
      [
        ["write", false],
        ["write", true],
      ],
    );
    const [first, second, third] = await told(run, 1);
    assert.match(first ?? "", /^Outcome unknown/);
    assert.match(second ?? "", /^NOT run now: .*Go and look/);
    assert.match(third ?? "", /^HTTP 201/);
    assert.match((await told(run, 2)).at(-1) ?? "", /^NOT run now/);
    const { row, run: record } = await outcomeOf(ledger.db, run.runId);
    assert.deepEqual([row.status, row.reason], ["succeeded", "EffectUnknown"]);
    assert.deepEqual(
      record.calls.map((call) => call.outcome),
      ["unknown", "skipped", "real", "skipped", "real"],
    );
  });

  it("A, B, A is three writes; A, A is one", async () => {
    const [a, b] = [post("{{plain}}", "a"), post("{{plain}}", "b")];
    const run = await scene(ledger.db, fakes, [{ calls: [a, b] }, { calls: [a, a] }, { text: "done" }]);
    await drive();
    assert.deepEqual(
      (await run.accepted()).map((entry) => entry.bodyPreview),
      ['{"text":"a"}', '{"text":"b"}', '{"text":"a"}'],
    );
    assert.match(
      (await told(run, 2)).at(-1) ?? "",
      /^\(Not sent again: this is the recorded result of the same call\.\)/,
    );
  });

  it("that is unknown is named, too, when the model fails afterwards", async () => {
    const run = await scene(
      ledger.db,
      fakes,
      [{ calls: [post("{{plain}}", "a")] }, { fault: { kind: "status", status: 401 } }],
      { agent: UNKEYED },
    );
    await behave({ path: run.path("plain"), mode: "cut" });
    await drive();
    const { row } = await outcomeOf(ledger.db, run.runId);
    assert.deepEqual([row.status, row.reason], ["failed", "ModelUnauthorized"]);
    assert.match(row.message ?? "", /may use this model; the outcome of 1 write is not known/);
  });

  it("with an address that is too long for an index is written, and its target still told apart", async () => {
    const long = (end: string) => `{{plain}}/${"é".repeat(600)}${end}`;
    const run = await scene(ledger.db, fakes, [
      { calls: [post(long("1"), "a"), post(long("2"), "a")] },
      { text: "done" },
    ]);
    await drive();
    const { effects, row } = await outcomeOf(ledger.db, run.runId);
    assert.equal(row.status, "succeeded");
    assert.deepEqual(
      effects.map(({ state }) => state),
      ["confirmed", "confirmed"],
    );
    assert.equal(new Set(effects.map(({ target }) => target)).size, 2);
    assert.ok(effects.every(({ target }) => Buffer.byteLength(target) <= 1024));
  });
});
