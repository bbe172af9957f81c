/** Who hears of a decision: the holder of the run, and whoever may take up what comes next. A hint, but a quick one. */
import assert from "node:assert/strict";
import { Client } from "pg";
import { ingestDelete } from "#ledger/changes.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { decideAs, undecidedOf } from "../support/steering.ts";
import { aCall, aClaimedRun, cross, respond } from "../support/world.ts";

const AMEND = { midTurn: "amend" } as const;
const PREEMPT = { midTurn: "preempt" } as const;

type Run = Awaited<ReturnType<typeof aClaimedRun>>;

describe("a decision about newer input", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const committedRun = async () => {
    const run = await aClaimedRun(ledger.db);
    const call = aCall();
    await respond(ledger.db, run, [call]);
    await cross(ledger.db, run, call);
    return run;
  };

  /** What both channels said while `body` ran. */
  async function heardWhile(body: () => Promise<void>): Promise<{ signals: (string | undefined)[]; due: number }> {
    const client = new Client({ connectionString: ledger.url });
    await client.connect();
    try {
      const heard: { channel: string; payload?: string | undefined }[] = [];
      client.on("notification", (one) => heard.push(one));
      await client.query("listen pawl_signal; listen pawl_due");
      await body();
      await client.query("select 1");
      const of = (wanted: string) => heard.filter(({ channel }) => channel === wanted);
      return { signals: of("pawl_signal").map(({ payload }) => payload), due: of("pawl_due").length };
    } finally {
      await client.end();
    }
  }

  it("is told to whoever holds the run, by the run's name", async () => {
    const runs = [
      await aClaimedRun(ledger.db),
      await aClaimedRun(ledger.db),
      await committedRun(),
      await aClaimedRun(ledger.db),
    ];
    const [amended, preempted, stopping, cancelled] = runs as [Run, Run, Run, Run];
    const queued = await aClaimedRun(ledger.db);
    const { signals } = await heardWhile(async () => {
      await decideAs(ledger.db, await undecidedOf(ledger, amended), "refines", AMEND);
      await decideAs(ledger.db, await undecidedOf(ledger, preempted), "refines", PREEMPT);
      await decideAs(ledger.db, await undecidedOf(ledger, stopping), "cancels");
      await decideAs(ledger.db, await undecidedOf(ledger, cancelled), "cancels");
      await decideAs(ledger.db, await undecidedOf(ledger, queued), "independent");
    });
    assert.deepEqual(signals, [amended.runId, preempted.runId, stopping.runId, cancelled.runId]);
  });

  it("is told to the holder of the old turn and to whoever may take the new one, both", async () => {
    const restarted = await aClaimedRun(ledger.db);
    const more = await undecidedOf(ledger, restarted);
    const restart = await heardWhile(() => decideAs(ledger.db, more, "refines", PREEMPT).then(() => {}));
    assert.deepEqual(restart, { signals: [restarted.runId], due: 1 });
    // Bob's message waits for the turn behind the one that is stopped, by a message, by hand, and by taking back what was asked.
    for (const how of ["said", "asked", "deleted"] as const) {
      const stopped = await aClaimedRun(ledger.db);
      await undecidedOf(ledger, stopped, { by: "bob", state: "pending" });
      const said = how === "said" ? await undecidedOf(ledger, stopped) : null;
      const heard = await heardWhile(async () => {
        if (said !== null) await decideAs(ledger.db, said, "cancels");
        else if (how === "asked") await stop(ledger.db, stopped.eventId);
        else await ingestDelete(ledger.db, { ...stopped.message, extRev: "2", generation: 1 });
      });
      assert.deepEqual(heard, { signals: [stopped.runId], due: 1 }, how);
    }
  });

  it("is told to whoever knows what the next message means", async () => {
    const run = await aClaimedRun(ledger.db);
    const first = await undecidedOf(ledger, run);
    await undecidedOf(ledger, run);
    const heard = await heardWhile(() => decideAs(ledger.db, first, "independent").then(() => {}));
    assert.deepEqual(heard, { signals: [], due: 1 });
  });
});
