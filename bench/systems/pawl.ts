/**
 * Pawl as it is: a message in the mailbox, a claim, and the real engine on a real ledger. The model is a port that
 * answers at once, so that what is measured is what a step costs and nothing else.
 */
import { Database } from "../../operator/src/ledger/database.ts";
import { ingest } from "../../operator/src/ledger/mailbox.ts";
import { migrate } from "../../operator/src/ledger/migrate.ts";
import { LEASE_MS, RENEW_MS } from "../../operator/src/rules/limits.ts";
import { asks, bench, done, drain, engineAgent, quick, says, writer } from "../../operator/test/support/engine.ts";
import { aMessage } from "../../operator/test/support/world.ts";
import type { System, Workload } from "../system.ts";

let db: Database;

export const pawl: System = {
  async open(url) {
    await migrate({ url });
    db = new Database({ url });
  },

  async run(workload, step) {
    const { deps } = workload.effects > 0 ? effectful(workload, step) : stepping(workload, step);
    const room = { iterations: workload.steps + 10, modelCalls: workload.steps + 10, toolCalls: workload.steps + 100 };
    const agent = await engineAgent(db, [...deps.tools.keys()], { budgets: room });
    await ingest(db, aMessage(agent.id, { conversationKey: agent.id, extId: agent.id }));
    await drain(deps);
    const { rows } = await db.pool.query<{ status: string }>("select status from runs where agent_id = $1", [agent.id]);
    if (rows[0]?.status !== "succeeded") throw new Error(`the run ended ${rows[0]?.status}`);
  },

  async close() {
    await db.close();
  },
};

/** The product's own lease: its renewals are part of what a run costs. */
const settings = { leaseMs: LEASE_MS, renewMs: RENEW_MS };

function stepping({ steps }: Workload, step: () => Promise<string>) {
  let asked = 0;
  const tool = { ...quick, execute: async () => done(await step()) };
  return bench(db, [], [tool], {
    settings,
    deps: {
      model: {
        complete: () => Promise.resolve((asked += 1) > steps ? says("That is all.") : asks(["echo", { step: asked }])),
      },
    },
  });
}

function effectful({ effects }: Workload, step: () => Promise<string>) {
  let asked = 0;
  const calls = Array.from({ length: effects }, (_, index): [string, unknown] => ["write", { to: `target/${index}` }]);
  const complete = async () => {
    asked += 1;
    await step();
    return asked > 1 ? says("All written.") : asks(...calls);
  };
  return bench(db, [], [writer([])], { settings, deps: { model: { complete } } });
}
