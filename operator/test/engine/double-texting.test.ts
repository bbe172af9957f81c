/** The Agent and the Run of docs/double-texting.md as they stand, and what the page says that they do. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { Decider } from "#engine/decider.ts";
import { Classifier } from "#engine/classify.ts";
import { ModelJudge } from "#engine/judge.ts";
import { recordAgent } from "#ledger/agents.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { policyOf } from "#rules/interrupt.ts";
import { asks, bench, done, drain, says, type Script, writer } from "../support/engine.ts";
import { sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage, NAMESPACE_UID } from "../support/world.ts";

type Manifest = { spec: Record<string, unknown> & { conversation?: string; input?: { text: string } } };
const text = readFileSync(join(import.meta.dirname, "../../../docs/double-texting.md"), "utf8");
const [agent, run] = [...text.matchAll(/```yaml\n([\s\S]*?)```/g)].map(([, yaml]) => parse(yaml ?? "") as Manifest);

describe("docs/double-texting.md", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  it("restarts for the page's Run a turn that has changed nothing, and puts right in the next turn what came too late", async () => {
    assert.ok(agent !== undefined && run !== undefined);
    const stored = { namespaceUid: NAMESPACE_UID, namespace: "demo", name: "clerk", specHash: "h", suspended: false };
    const { id } = await recordAgent(ledger.db, { ...stored, spec: agent.spec });
    const policy = policyOf(agent.spec);
    const say = (words: string) =>
      ingest(ledger.db, aMessage(id, { conversationKey: "office", text: words, policy, askable: true }));
    /** The windows are over, whatever they are. */
    const later = () => sql(ledger, "update runs set due_at = pawl_now() where live and status = 'queued'");
    /** Somebody says something more, and a worker finds out what it means. */
    const meanwhile = async (words: string): Promise<string> => {
      const { kind } = await say(words);
      const { deps } = bench(ledger.db, [says('{"relation":"refines"}')]);
      const decider = new Decider({ ...deps, judge: new ModelJudge(new Classifier(deps)) });
      await decider.look();
      await decider.settled();
      return kind;
    };
    const order = { ...writer([done("ordered")]), name: "http_request" };
    const work = async (script: Script) => {
      await later();
      const made = bench(ledger.db, script, [order]);
      await drain(made.deps);
      return made.requests;
    };

    await say("Order tea.");
    const correction = run.spec.input?.text ?? "";
    await work([
      async () => {
        assert.equal(await meanwhile(correction), "undecided");
        return says("One is ordered.");
      },
    ]);
    assert.equal(order.sent.length, 0);
    const runs = () =>
      sql(
        ledger,
        "select status, reason, cardinality(inherits) as inherits from runs where agent_id = $1 order by queued_at",
        [id],
      );
    assert.deepEqual(await runs(), [
      { status: "cancelled", reason: "Superseded", inherits: 0 },
      { status: "queued", reason: null, inherits: 1 },
    ]);

    const requests = await work([
      asks(["http_request", { to: "two" }]),
      async () => {
        await meanwhile("Rather none.");
        return says("Two are ordered.");
      },
    ]);
    const asked = JSON.stringify(requests[0]?.messages);
    assert.ok(asked.includes("Order tea.") && asked.includes(correction), asked);
    assert.equal(order.sent.length, 1, "one write, of what was said last");
    const [late] = await work([says("I cannot take it back.")]);
    assert.match(JSON.stringify(late?.messages), /came too late for an earlier turn of yours[^]*Rather none\./);
    assert.deepEqual(
      (await runs()).map(({ status }) => status),
      ["cancelled", "succeeded", "succeeded"],
    );
  });
});
