import assert from "node:assert/strict";
import { continueRequest, readAsked } from "#ledger/consent.ts";
import { ingest } from "#ledger/mailbox.ts";
import { alone, end, lapse, runRow } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aClaimedRun, aMessage, CODE, cross, respond } from "../support/world.ts";
import { claimRun } from "#ledger/leases.ts";

describe("going on in the journal of a turn that ended at its limit", () => {
  const ledger = useLedger();
  beforeEach(() => alone(ledger));

  async function next() {
    const before = await aClaimedRun(ledger.db);
    const reply = aCall({ class: "reply", kind: "reply", target: null, args: { text: "Go on?" } });
    await respond(ledger.db, before, [reply]);
    await cross(ledger.db, before, reply, { receipt: { row: true } });
    await end(ledger.db, before, { status: "budget_exhausted" });
    const { agentId, conversationKey } = before.message;
    const ingested = await ingest(ledger.db, aMessage(agentId, { conversationKey }));
    const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
    if (!("runId" in ingested) || claim?.runId !== ingested.runId) throw new Error("no run");
    return { runId: claim.runId, token: claim.token, predecessor: before.runId };
  }

  it("is done once, by the holder of the lease; asked again it is done already", async () => {
    const run = await next();
    assert.deepEqual(await readAsked(ledger.db, run.runId), { runId: run.predecessor, question: "Go on?" });
    assert.equal(await continueRequest(ledger.db, run), "continued");
    const before = await runRow(ledger, run.runId);
    assert.equal(await continueRequest(ledger.db, run), "already");
    assert.deepEqual(await runRow(ledger, run.runId), before);
  });

  it("is for a run that has not begun, has not ended, and is still ours", async () => {
    const begun = await next();
    await respond(ledger.db, begun, []);
    assert.equal(await readAsked(ledger.db, begun.runId), null);
    assert.equal(await continueRequest(ledger.db, begun), "fenced");
    const lost = await next();
    await lapse(ledger, lost.runId);
    assert.equal(await continueRequest(ledger.db, lost), "fenced");
    const ended = await next();
    await end(ledger.db, ended, { seenSeq: 3 });
    assert.equal(await continueRequest(ledger.db, ended), "ended");
  });
});
