/** Whoever works on a turn hears of a stop or a restart while a model thinks: at once when told, soon when not. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { driveRun } from "#engine/drive.ts";
import { LOOK_AT_RUN_MS } from "#engine/lease.ts";
import type { EngineSettings } from "#engine/deps.ts";
import { Signals } from "#engine/signals.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { listenToLedger } from "#ledger/notify.ts";
import { RENEW_MS } from "#rules/limits.ts";
import { asks, bench, engineAgent, quick, type Script } from "../support/engine.ts";
import { alone, count, runRow } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { decideAs, undecidedOf } from "../support/steering.ts";
import { aMessage, CODE } from "../support/world.ts";

const PREEMPT = { midTurn: "preempt" } as const;
/** No timer of the lease finds anything out before the test is over. */
const UNTOLD = { leaseMs: 600_000, renewMs: 3_600_000, lookMs: 3_600_000 };

describe("a worker whose turn somebody stops or restarts", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  async function opened() {
    const { id } = await engineAgent(ledger.db, ["echo"]);
    const run = await ingest(ledger.db, aMessage(id, { text: "please" }));
    if (run.kind !== "new_run") throw new Error("no run");
    await alone(ledger, run.runId);
    return run;
  }

  /** Drives the run; while its model thinks, `meanwhile` happens. Comes back when the call was given up and all is over. */
  async function drive(
    runId: string,
    meanwhile: (signals: Signals) => Promise<void>,
    settings: Partial<EngineSettings> = UNTOLD,
    before: Script = [],
  ) {
    const signals = new Signals();
    const thinking: Script[number] = async (_request, signal) => {
      await meanwhile(signals);
      if (!signal.aborted) await once(signal, "abort");
      return { kind: "failed", class: "cancelled", reason: "Cancelled", message: "given up" };
    };
    const { deps, logged, requests } = bench(ledger.db, [...before, thinking], [quick], {
      settings,
      deps: { signals },
    });
    const claim = await claimRun(ledger.db, "worker-1", 600_000, CODE);
    assert.equal(claim?.runId, runId);
    if (claim !== null) await driveRun(deps, claim, new AbortController().signal);
    return { logged, requests };
  }
  const looks = (logged: { fields: Readonly<Record<string, unknown>> }[]) => logged.map(({ fields }) => fields["why"]);

  it("gives its model call up when it is told that the turn begins anew, and writes nothing more", async () => {
    const run = await opened();
    const { logged } = await drive(run.runId, async (signals) => {
      const found = await decideAs(ledger.db, await undecidedOf(ledger, run), "refines", PREEMPT);
      assert.equal(found.kind, "preempted");
      signals.tell(run.runId);
    });
    assert.ok(looks(logged).includes("the run ended"));
    const row = await runRow(ledger, run.runId);
    assert.deepEqual([row.status, row.reason, row.next_ordinal], ["cancelled", "Superseded", 1]);
    assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 0);
  });

  it("gives its model call up when it is told that the turn was stopped", async () => {
    const run = await opened();
    await drive(run.runId, async (signals) => {
      const stop = await undecidedOf(ledger, run, { text: "stop" });
      assert.equal((await decideAs(ledger.db, stop, "cancels")).kind, "cancelled");
      signals.tell(run.runId);
    });
    assert.equal((await runRow(ledger, run.runId)).status, "cancelled");
  });

  it("finds out by itself, long before its lease is renewed, when nobody tells it", async () => {
    assert.ok(LOOK_AT_RUN_MS * 2 <= RENEW_MS);
    const run = await opened();
    const { logged } = await drive(
      run.runId,
      async () => {
        await decideAs(ledger.db, await undecidedOf(ledger, run), "refines", PREEMPT);
      },
      { ...UNTOLD, lookMs: 15 },
    );
    assert.ok(looks(logged).includes("the run ended"));
  });

  it("looks at every run that it holds when a connection that may have missed something is new", async () => {
    const run = await opened();
    await drive(run.runId, async (signals) => {
      await decideAs(ledger.db, await undecidedOf(ledger, run), "cancels");
      signals.tell(null);
    });
    assert.equal((await runRow(ledger, run.runId)).status, "cancelled");
  });

  it("does not care about what is said to other runs, nor to its own when it has let go of that", () => {
    const signals = new Signals();
    const heard: string[] = [];
    const deaf = signals.on("a", () => heard.push("a"));
    signals.on("b", () => heard.push("b"));
    signals.tell("a");
    signals.tell("c");
    deaf();
    signals.tell("a");
    signals.tell(null);
    assert.deepEqual(heard, ["a", "b"]);
  });

  it("is told by the ledger itself: the commit that restarts a turn is what ends its model call", async () => {
    const run = await opened();
    const over = new AbortController();
    try {
      await drive(run.runId, async (signals) => {
        const listening = Promise.withResolvers<void>();
        const signal = (runId: string | null) => {
          if (runId === null) listening.resolve();
          else signals.tell(runId);
        };
        listenToLedger(ledger.url, { due() {}, signal }, over.signal);
        await listening.promise;
        await decideAs(ledger.db, await undecidedOf(ledger, run), "refines", PREEMPT);
      });
      assert.equal((await runRow(ledger, run.runId)).reason, "Superseded");
    } finally {
      over.abort();
    }
  });

  it("leaves the steps that it had committed to the successor", async () => {
    const run = await opened();
    let next: string | null = null;
    const echo = asks(["echo", { n: 1 }]);
    const meanwhile = async (signals: Signals) => {
      const found = await decideAs(ledger.db, await undecidedOf(ledger, run), "refines", PREEMPT);
      next = "nextRunId" in found ? found.nextRunId : null;
      signals.tell(run.runId);
    };
    await drive(run.runId, meanwhile, UNTOLD, [echo]);
    assert.equal(
      await count(ledger, "runs where id = $1 and inherits = array[$2::uuid] and next_ordinal = 2", [next, run.runId]),
      1,
    );
  });
});
