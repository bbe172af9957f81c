/** A person who stops a turn in the middle of a tool leaves a record that the next turn can be built on (C29). */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import type { Tool, ToolOutcome } from "#engine/ports.ts";
import { traceRun } from "#engine/trace.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import { requestStop } from "#ledger/turns.ts";
import { alternatingRefusal } from "../../../fakes/src/model-alternating.ts";
import { checkRequest } from "../../../fakes/src/model-strict.ts";
import { asks, bench, done, drain, engineAgent, quick, says, writer } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

describe("a stop in the middle of a tool (C29)", () => {
  const ledger = useLedger();

  for (const changed of [false, true]) {
    it(`that ${changed ? "followed a write" : "has changed nothing"} is told, and the next message is answered`, async () => {
      const key = uuidv7();
      const agent = await engineAgent(ledger.db, ["slow", "write", "echo"]);
      const first = await ingest(ledger.db, aMessage(agent.id, { conversationKey: key, text: "look it all up" }));
      assert.ok("runId" in first);
      const slow: Tool = {
        ...quick,
        name: "slow",
        quick: false,
        async execute(_args, { signal }): Promise<ToolOutcome> {
          const stop = { extId: `stop-${key}`, actor: { connector: "kubernetes", extId: "alice" }, why: "enough" };
          assert.equal(
            await requestStop(ledger.db, { eventId: first.eventId, ...stop }),
            changed ? "stopping" : "cancelled",
          );
          await new Promise<void>((resolve) => {
            if (signal.aborted) resolve();
            else signal.addEventListener("abort", () => resolve(), { once: true });
          });
          return done("too late");
        },
      };
      const calls = [
        ...(changed ? [["write", { to: "a" }] as const] : []),
        ["slow", {}] as const,
        ["echo", {}] as const,
      ];
      const { deps, requests } = bench(
        ledger.db,
        [asks(...calls.map(([name, args]): [string, unknown] => [name, args])), says("Here you are.")],
        [slow, quick, writer([])],
        { settings: { renewMs: 20 } },
      );
      await drain(deps);
      const stopped = await readRun(ledger.db, first.runId);
      assert.equal(stopped.status, "cancelled");
      if (changed) {
        assert.deepEqual(
          stopped.calls.map(({ tool, outcome }) => [tool, outcome]),
          [
            ["write", "real"],
            ["slow", "cancelled"],
            ["echo", "cancelled"],
            ["reply", "real"],
          ],
        );
        assert.match(stopped.calls[1]?.result ?? "", /a person asked to stop/);
      }
      const second = await ingest(ledger.db, aMessage(agent.id, { conversationKey: key, text: "only the first one" }));
      assert.ok("runId" in second);
      await drain(deps);
      const next = await readRun(ledger.db, second.runId);
      assert.equal(next.status, "succeeded");
      const request = requests[1];
      const tools = request?.tools.map((tool) => ({ type: "function", function: tool }));
      const checked = checkRequest(
        JSON.parse(JSON.stringify({ model: "m", messages: request?.messages, tools })),
        undefined,
      );
      assert.equal(checked.ok ? alternatingRefusal(checked.request) : checked.refusal.message, null);
      const trace = await traceRun(ledger.db, second.runId);
      assert.deepEqual(
        trace?.steps.map(({ kind }) => kind),
        ["ok"],
      );
      assert.deepEqual(await checkInvariants(ledger.db), []);
    });
  }
});
