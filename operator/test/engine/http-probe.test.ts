/** `http_request` that looks for its own writes, at a service that honours no keys: what it accepted is the evidence. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { drain } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { outcomeOf, realBench, scene, useReality } from "../support/reality.ts";

describe("a write over HTTP to a service without keys", function () {
  this.timeout(20_000);
  const ledger = useLedger();
  const fakes = useReality();
  afterEach(async () => {
    assert.deepEqual(await checkInvariants(ledger.db), []);
    await fakes.world.control("DELETE", "/control");
  });

  const probe = { tool: "http_request", arguments: { method: "GET", url: "{url}" }, absenceIsConclusive: true };
  const agent = { tools: { effects: [{ tool: "http_request", probe }] } };
  const write = { name: "http_request", arguments: { method: "POST", url: "{{plain}}", body: { text: "a" } } };

  for (const [mode, title, attempts] of [
    ["cut", "is found where it was accepted, and is one write", 1],
    ["drop", "is sent again where it was not, and is one write", 2],
  ] as const) {
    it(title, async () => {
      const run = await scene(ledger.db, fakes, [{ calls: [write] }, { text: "done" }], { agent });
      await fakes.world.control("PUT", "/control", { path: run.path("plain"), mode, times: 1 });
      await drain(realBench(ledger.db).deps);
      const writes = (await run.accepted()).filter(({ outcome }) => outcome === "write");
      const { effects, row } = await outcomeOf(ledger.db, run.runId);
      assert.deepEqual([writes.length, effects[0]?.state, effects[0]?.attempt], [1, "confirmed", attempts]);
      assert.deepEqual([row.status, row.reason], ["succeeded", "Answered"]);
    });
  }

  for (const moved of [false, true]) {
    it(`is ${moved ? "not taken back when somebody else has written there since" : "taken back while nothing else has happened there"}`, async () => {
      const state = { tool: "http_request", arguments: { method: "GET", url: "{url}" } };
      const compensate = {
        tool: "http_request",
        arguments: { method: "DELETE", url: "{url}", body: '{"of": {result.id}}' },
      };
      const undoable = { tools: { effects: [{ tool: "http_request", compensate, state }] } };
      const undo = { name: "undo", arguments: { effect: "{{effect}}" } };
      const steps = [{ calls: [write] }, { calls: [undo] }, { text: "done" }];
      const run = await scene(ledger.db, fakes, steps, { agent: undoable });
      const real = realBench(ledger.db);
      let asked = 0;
      const complete: typeof real.deps.model.complete = async (...given) => {
        asked += 1;
        if (moved && asked === 2) {
          await fetch(`${fakes.world.url}${run.path("plain")}`, { method: "POST", body: "mine" });
        }
        return real.deps.model.complete(...given);
      };
      await drain({ ...real.deps, model: { complete } });
      const { effects, run: record } = await outcomeOf(ledger.db, run.runId);
      assert.deepEqual(
        effects.map(({ kind, state: of }) => [kind, of]),
        [["tool.effect", "confirmed"], ...(moved ? [] : [["compensation", "confirmed"]])],
      );
      const said = record.calls[1]?.result ?? "";
      if (moved)
        assert.match(said, /^Not undone: the world has moved since: it was \{"records":\[.*, it is \{"records":\[/);
      else assert.match(said, /^HTTP 200/);
    });
  }
});
