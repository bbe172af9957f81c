/** A call that waits for a person, and every answer that a person can get. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { decideApproval } from "#ledger/approvals.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun, nextDue, releaseLease } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { commitResults } from "#ledger/steps.ts";
import { CODE } from "#rules/limits.ts";
import { aGatedRun, applied, approvalOf, decide, type Gated, park, person, says } from "../support/approvals.ts";
import { overlap } from "../support/interleave.ts";
import { alone, count, end, lapse, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { met, RecordingDatabase } from "../support/verdicts.ts";
import { aCall, aClaimedRun, aMessage, aRun, cross, NAMESPACE_UID, respond } from "../support/world.ts";

describe("a call that waits for a person", () => {
  const ledger = useLedger();
  let other: RecordingDatabase;
  before(() => {
    other = new RecordingDatabase({ url: ledger.url, name: "other" });
  });
  after(() => other.close());
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const gateOf = async (run: Gated, index = 0) =>
    (await sql<{ gate: string }>(ledger, "select gate from tool_calls where id = $1", [run.calls[index]?.id]))[0]?.gate;
  const decisionsOf = (run: Gated) =>
    sql(
      ledger,
      `select d.actor, d.asked, d.done, d.why, d.reason from approval_decisions d join approvals a on a.id = d.approval_id
       where a.run_id = $1 order by d.at`,
      [run.runId],
    );
  const expire = (run: Gated) =>
    sql(
      ledger,
      `update approvals set requested_at = pawl_now() - interval '2 minutes', expires_at = pawl_now() - interval '1 minute' where run_id = $1`,
      [run.runId],
    );
  const parked = async (calls = 1, rules: Parameters<typeof park>[2] = {}) => {
    const run = await aGatedRun(ledger.db, calls);
    assert.equal(await park(ledger.db, run, rules), "parked");
    return run;
  };
  const reclaim = async (run: Gated) => {
    const claim = await claimRun(ledger.db, "worker-2", 10_000, CODE);
    assert.equal(claim?.runId, run.runId);
    run.token = claim.token;
  };

  describe("gives the lease back", () => {
    it("and is due when the request expires, with a word that says what it waits for", async () => {
      const run = await parked(2);
      const row = await runRow(ledger, run.runId);
      assert.deepEqual(
        [row.status, row.lease_owner, row.reason, row.live],
        ["awaiting_tool", null, "WaitingForApproval", true],
      );
      const [asked] = await sql<{ n: number; due: boolean }>(
        ledger,
        "select count(*) as n, bool_and(a.expires_at = r.due_at) as due from approvals a join runs r on r.id = a.run_id where r.id = $1",
        [run.runId],
      );
      assert.deepEqual(asked, { n: 2, due: true }, "a person sees both calls at once");
      assert.equal(await claimRun(ledger.db, "worker-2", 10_000, CODE), null);
      assert.ok((await nextDue(ledger.db, CODE)) !== 0);
    });

    it("once: its worker is fenced from then on, and asking again asks for nothing new", async () => {
      const run = await parked();
      const nonce = uuidv7();
      assert.equal(await park(ledger.db, run), "fenced");
      await decide(ledger.db, run, { approve: false });
      await reclaim(run);
      assert.equal(await park(ledger.db, run, { nonce }), "decided");
      assert.equal((await runRow(ledger, run.runId)).lease_owner, "worker-2");
      assert.equal(await count(ledger, "approvals where run_id = $1", [run.runId]), 1);
    });

    it("not to somebody whose lease lapsed, nor for a turn that ended", async () => {
      const lapsed = await aGatedRun(ledger.db);
      await lapse(ledger, lapsed.runId);
      assert.equal(await park(ledger.db, lapsed), "fenced");
      const ended = await aGatedRun(ledger.db);
      await end(ledger.db, ended);
      assert.equal(await park(ledger.db, ended), "ended");
      assert.equal(await count(ledger, "approvals where run_id = any ($1)", [[lapsed.runId, ended.runId]]), 0);
    });

    it("so that code which does not know of approvals never claims it", async () => {
      const run = await parked();
      await decide(ledger.db, run);
      assert.equal(await claimRun(ledger.db, "old", 10_000, 1), null);
      await reclaim(run);
    });
  });

  describe("runs only when it was approved", () => {
    it("refused while it is open, rejected or expired, and let through once approved, with the same arguments alone", async () => {
      const open = await aGatedRun(ledger.db);
      assert.equal((await cross(ledger.db, open, open.calls[0])).result.kind, "approval");
      for (const end of ["rejected", "expired"] as const) {
        const run = await parked();
        if (end === "rejected") await decide(ledger.db, run, { approve: false });
        else {
          await expire(run);
          await sql(ledger, "update runs set due_at = pawl_now() where id = $1", [run.runId]);
        }
        await reclaim(run);
        if (end === "expired") assert.equal(await park(ledger.db, run), "expired");
        assert.equal(await gateOf(run), end);
        assert.equal((await cross(ledger.db, run, run.calls[0])).result.kind, "approval");
      }
      const run = await parked();
      await decide(ledger.db, run);
      await reclaim(run);
      assert.equal((await cross(ledger.db, run, run.calls[0], { argsHash: "other" })).result.kind, "approval");
      assert.equal((await cross(ledger.db, run, run.calls[0])).result.kind, "crossed");
    });

    it("and a call beside it that nobody has to approve crosses as ever", async () => {
      const run = await aClaimedRun(ledger.db);
      const free = aCall({ idx: 1 });
      await respond(ledger.db, run, [aCall({ gate: "open" }), free]);
      assert.equal((await cross(ledger.db, run, free)).result.kind, "crossed");
    });
  });

  describe("answers a decision", () => {
    it("that approves: the gate is open to it, the run is due at once, and who said so is kept", async () => {
      const run = await parked();
      const { version } = await runRow(ledger, run.runId);
      assert.deepEqual(await decide(ledger.db, run, { reason: "go" }), {
        kind: "approved",
        runId: run.runId,
        already: false,
      });
      const row = await runRow(ledger, run.runId);
      assert.deepEqual([await gateOf(run), row.reason, row.version], ["approved", null, version + 1]);
      assert.deepEqual(await decisionsOf(run), [
        { actor: "bob", asked: "approve", done: "approved", why: null, reason: "go" },
      ]);
      await reclaim(run);
    });

    it("that rejects, with its reason", async () => {
      const run = await parked();
      assert.equal((await decide(ledger.db, run, { approve: false, reason: "not on a Friday" })).kind, "rejected");
      const approval = await approvalOf(ledger.db, run);
      assert.deepEqual(
        [approval.state, approval.decidedBy, approval.reason, await gateOf(run)],
        ["rejected", "bob", "not on a Friday", "rejected"],
      );
      await reclaim(run);
    });

    it("about one of two calls without touching the other", async () => {
      const run = await parked(2);
      await decide(ledger.db, run, {}, 1);
      assert.deepEqual([await gateOf(run, 0), await gateOf(run, 1)], ["open", "approved"]);
      await reclaim(run);
      assert.equal(await park(ledger.db, run), "parked");
      assert.equal(await park(ledger.db, run), "fenced");
    });

    it("the first valid one only: who comes later hears what was decided and by whom", async () => {
      const run = await parked();
      await decide(ledger.db, run);
      const late = await decide(ledger.db, run, { actor: person("carol"), approve: false });
      assert.deepEqual(late, {
        kind: "late",
        state: "approved",
        by: "bob",
        over: "AlreadyDecided",
        already: false,
      });
      assert.equal(await gateOf(run), "approved");
      assert.deepEqual(
        (await decisionsOf(run)).map((row) => [row["actor"], row["done"]]),
        [
          ["bob", "approved"],
          ["carol", "late"],
        ],
      );
    });

    it("as late once it has expired, whether anybody noticed or not, and once its turn ended", async () => {
      const run = await parked();
      await expire(run);
      const late = await decide(ledger.db, run);
      assert.deepEqual(late, { kind: "late", state: "open", by: null, over: "Expired", already: false });
      assert.equal(await gateOf(run), "open");
      const stopped = await parked();
      assert.equal(await stop(ledger.db, stopped.eventId), "cancelled");
      assert.equal((await decide(ledger.db, stopped)).kind, "late");
    });

    it("that names another hash with a refusal, and approves nothing that was not named at all", async () => {
      const run = await parked();
      for (const hash of ["another", null]) {
        const refused = await decide(ledger.db, run, { hash });
        assert.deepEqual(refused, { kind: "refused", why: "HashDiffers", already: false });
      }
      assert.equal(await gateOf(run), "open");
      assert.equal((await decide(ledger.db, run, { approve: false, hash: null })).kind, "rejected", "no needs no hash");
    });

    it("of whoever asked for the work with a refusal that is kept, unless the Agent lets him; he may always say no (C53)", async () => {
      const run = await parked();
      const own = await decide(ledger.db, run, { actor: person("alice") });
      assert.deepEqual(own, { kind: "refused", why: "RequesterMayNotApprove", already: false });
      assert.equal((await runRow(ledger, run.runId)).reason, "WaitingForApproval");
      assert.deepEqual(await decisionsOf(run), [
        { actor: "alice", asked: "approve", done: "refused", why: "RequesterMayNotApprove", reason: null },
      ]);
      assert.equal((await decide(ledger.db, run, { actor: person("alice"), approve: false })).kind, "rejected");
      const open = await parked(1, { requesterMayApprove: true });
      assert.equal((await decide(ledger.db, open, { actor: person("alice") })).kind, "approved");
    });

    it("of each of those whose messages are in the turn in the same way", async () => {
      const name = `run-${uuidv7()}`;
      const first = await aRun(ledger.db, { applied: applied(name) });
      const second = aMessage(first.message.agentId, {
        conversationKey: first.message.conversationKey,
        actor: { connector: "kubernetes", extId: "mallory" },
      });
      assert.equal((await ingest(ledger.db, second)).kind, "folded");
      const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
      assert.equal(claim?.runId, first.runId);
      const calls = [aCall({ gate: "open" })] as [ReturnType<typeof aCall>];
      const run = { ...first, token: claim.token, name, calls };
      await respond(ledger.db, run, calls);
      await park(ledger.db, run);
      const refused = await decide(ledger.db, run, { actor: person("mallory") });
      assert.deepEqual(refused, { kind: "refused", why: "RequesterMayNotApprove", already: false });
    });

    it("of those alone whom the Agent names, by user or by group", async () => {
      const approvers = { users: ["carol"], groups: ["release-managers"] };
      for (const [actor, kind] of [
        [person("bob"), "refused"],
        [person("bob", "developers"), "refused"],
        [person("carol"), "approved"],
        [person("dave", "developers", "release-managers"), "approved"],
      ] as const) {
        const run = await parked(1, { approvers });
        const answer = await decide(ledger.db, run, { actor });
        assert.equal(answer.kind, kind, JSON.stringify(actor));
        if (answer.kind === "refused") assert.equal(answer.why, "NotAnApprover");
      }
      const nobody = await parked(1, { approvers: { users: [], groups: [] } });
      assert.equal((await decide(ledger.db, nobody)).kind, "refused");
    });

    it("about another Run than the one it names as about nothing that it knows", async () => {
      const run = await parked();
      const elsewhere = await parked();
      for (const subject of [
        { namespaceUid: NAMESPACE_UID, name: elsewhere.name },
        { namespaceUid: "another namespace", name: run.name },
        { namespaceUid: NAMESPACE_UID, name: run.name, uid: "of one that was deleted" },
      ]) {
        assert.equal((await decide(ledger.db, run, { subject })).kind, "unknown", JSON.stringify(subject));
      }
      assert.equal((await decide(ledger.db, run, { request: uuidv7() })).kind, "unknown");
      assert.equal((await decide(ledger.db, run, { request: "the second one" })).kind, "unknown");
      assert.deepEqual([await gateOf(run), await decisionsOf(run)], ["open", []]);
    });

    it("the same way when it is applied twice, whatever it was", async () => {
      for (const changes of [{}, { approve: false }, { hash: "another" }]) {
        const run = await parked();
        const word = says(run, await approvalOf(ledger.db, run), changes);
        const first = await decideApproval(ledger.db, word);
        const before = await runRow(ledger, run.runId);
        assert.deepEqual(await decideApproval(ledger.db, word), { ...first, already: true });
        assert.deepEqual(await runRow(ledger, run.runId), before);
        assert.equal((await decisionsOf(run)).length, 1);
      }
    });
  });

  describe("ends with its turn", () => {
    it("at once when a person stops a turn that has changed nothing", async () => {
      const run = await parked();
      assert.equal(await stop(ledger.db, run.eventId), "cancelled");
      const row = await runRow(ledger, run.runId);
      assert.deepEqual([row.status, row.due_at], ["cancelled", null]);
    });

    it("makes a turn that has changed something due at once, so that it can say so", async () => {
      const run = await aGatedRun(ledger.db);
      const free = aCall({ idx: 7 });
      await commitResults(ledger.db, { ...run, nonce: uuidv7() }, []);
      await sql(
        ledger,
        "insert into tool_calls (id, run_id, ordinal, idx, tool, class, kind, args, args_hash, target) values ($1, $2, 1, 7, 'x', 'effectful', 'tool.effect', '{}', $3, 't')",
        [free.id, run.runId, free.argsHash],
      );
      await cross(ledger.db, run, free);
      await sql(ledger, "update runs set tool_calls = tool_calls + 1 where id = $1", [run.runId]);
      await park(ledger.db, run);
      assert.equal(await stop(ledger.db, run.eventId), "stopping");
      await reclaim(run);
      assert.equal((await decide(ledger.db, run)).kind, "approved", "the stop decides, not the gate");
      assert.equal((await cross(ledger.db, run, run.calls[0])).result.kind, "stopping");
    });
  });

  describe("at the same moment", () => {
    it("as another decision: the second waits and is late", async () => {
      const run = await parked();
      const approval = await approvalOf(ledger.db, run);
      const [first, second] = await overlap(
        { db: ledger.db, body: (tx) => decideApproval(tx, says(run, approval)) },
        () => decideApproval(other, says(run, approval, { actor: person("carol"), approve: false })),
      );
      assert.deepEqual([first.kind, second.kind], ["approved", "late"]);
      assert.ok(met.get("decide_approval")?.has("again"), "what it knew of the run was older than the run");
    });

    it("as the same decision applied by another controller: once", async () => {
      const run = await parked();
      const word = says(run, await approvalOf(ledger.db, run));
      const [first, second] = await overlap({ db: ledger.db, body: (tx) => decideApproval(tx, word) }, () =>
        decideApproval(other, word),
      );
      assert.deepEqual([first.already, second.already, second.kind], [false, true, "approved"]);
    });

    it("as the worker that is about to wait: whoever comes second sees the first", async () => {
      const run = await parked(2);
      await decide(ledger.db, run, {}, 1);
      await reclaim(run);
      const approval = await approvalOf(ledger.db, run);
      const [word, wait] = await overlap({ db: ledger.db, body: (tx) => decideApproval(tx, says(run, approval)) }, () =>
        park(other, run),
      );
      assert.deepEqual([word.kind, wait], ["approved", "decided"]);
      assert.equal((await runRow(ledger, run.runId)).due_at, null, "it still has its lease");
      const two = await parked(2);
      await decide(ledger.db, two, {}, 1);
      await reclaim(two);
      const asked = await approvalOf(ledger.db, two);
      const [waits, said] = await overlap({ db: ledger.db, body: (tx) => park(tx, two) }, () =>
        decideApproval(other, says(two, asked)),
      );
      assert.deepEqual([waits, said.kind], ["parked", "approved"]);
      await reclaim(two);
    });

    it("as its expiry: who comes second finds it decided", async () => {
      const run = await parked();
      await sql(ledger, "update runs set due_at = pawl_now() where id = $1", [run.runId]);
      await reclaim(run);
      await expire(run);
      const approval = await approvalOf(ledger.db, run);
      const [gone, word] = await overlap({ db: ledger.db, body: (tx) => park(tx, run) }, () =>
        decideApproval(other, says(run, approval)),
      );
      assert.deepEqual([gone, word.kind, await gateOf(run)], ["expired", "late", "expired"]);
    });

    it("as a stop: the second finds a turn that ended, or one that goes on and stops", async () => {
      const run = await parked();
      const approval = await approvalOf(ledger.db, run);
      const [word, stopped] = await overlap(
        { db: ledger.db, body: (tx) => decideApproval(tx, says(run, approval)) },
        () => stop(other, run.eventId),
      );
      assert.deepEqual([word.kind, stopped], ["approved", "cancelled"]);
      assert.equal((await runRow(ledger, run.runId)).status, "cancelled");
    });
  });

  it("may be given back by its worker for another reason without losing what was decided", async () => {
    const run = await parked();
    await decide(ledger.db, run);
    await reclaim(run);
    const release = { runId: run.runId, token: run.token, delayMs: 0, reason: null, message: null, failed: false };
    assert.equal(await releaseLease(ledger.db, release), "released");
    assert.equal(await gateOf(run), "approved");
  });
});
