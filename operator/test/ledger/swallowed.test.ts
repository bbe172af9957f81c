/** The commit stands, its reply is lost: the same statement again must answer, and must not decide anew. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { armFailpoint, disarmFailpoint, failpoint, recordFailpoints } from "#src/failpoints.ts";
import { recordAgent } from "#ledger/agents.ts";
import { withdrawApproval } from "#ledger/approvals.ts";
import { redispatchEffect, resolveEffect, settleEffect } from "#ledger/effects.ts";
import { reserveEmission, settleEmission } from "#ledger/emissions.ts";
import { attachResult, closeInherited } from "#ledger/inherited.ts";
import { adoptLedger, claimLedger } from "#ledger/installation.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { holdLeadership } from "#ledger/leader.ts";
import { ingestDelete, ingestEdit } from "#ledger/changes.ts";
import { claimRun, releaseLease, renewLease } from "#ledger/leases.ts";
import { ingest, type Message } from "#ledger/mailbox.ts";
import { commitResults } from "#ledger/steps.ts";
import { aGatedRun, approvalOf, decide, park } from "../support/approvals.ts";
import { supersede } from "../support/newer.ts";
import { alone, count, end, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { anAskingRun, answer, asking } from "../support/questions.ts";
import { aCall, aClaimedRun, aMessage, aRun, CODE, cross, NAMESPACE_UID, respond } from "../support/world.ts";

describe("a commit whose reply was swallowed", () => {
  const ledger = useLedger();
  let passed: string[] = [];

  afterEach(async () => {
    disarmFailpoint();
    recordFailpoints(undefined);
    passed = [];
    assert.deepEqual(await checkInvariants(ledger.db), []);
  });

  /** Runs `body` with the first reply of `statement` lost, and sees to it that it was lost and asked for again. */
  async function swallowing<T>(statement: string, body: () => Promise<T>): Promise<T> {
    passed = [];
    recordFailpoints((name) => passed.push(name));
    armFailpoint(`after:${statement}:1:swallow`);
    const result = await body();
    disarmFailpoint();
    recordFailpoints(undefined);
    assert.ok(passed.filter((name) => name === `after:${statement}`).length >= 2, `${statement} ran once only`);
    return result;
  }

  const crossed = async (keyed = false) => {
    const run = await aClaimedRun(ledger.db);
    const calls = [aCall({ target: "issue/1" }), aCall({ idx: 1, target: "issue/2" })] as const;
    await respond(ledger.db, run, calls);
    return { run, calls, ...(await cross(ledger.db, run, calls[0], { keyed })) };
  };
  const confirmed = { state: "confirmed", receipt: { status: 201 }, observation: "201" } as const;

  it("is what `swallow` makes of any commit, as often as it is armed", () => {
    for (let times = 0; times < 2; times += 1) {
      armFailpoint("after:x:2:swallow");
      assert.deepEqual(
        [failpoint("after:x"), failpoint("after:y"), failpoint("after:x"), failpoint("after:x")],
        [false, false, true, false],
      );
    }
    disarmFailpoint();
    assert.equal(failpoint("after:x"), false);
    assert.throws(() => armFailpoint("after:x:2:explode"), /name:occurrence:kill\|stop\|swallow/);
  });

  it("of a message is told as what it was: a new run, folded or queued", async () => {
    const run = await swallowing("ingest_event", () => aRun(ledger.db));
    assert.deepEqual([run.kind, run.seq], ["new_run", 1]);
    const { message } = run;
    const next = () => aMessage(message.agentId, { conversationKey: message.conversationKey });
    const folded = await swallowing("ingest_event", () => ingest(ledger.db, next()));
    assert.deepEqual({ ...folded, eventId: "" }, { kind: "folded", eventId: "", seq: 2, runId: run.runId });
    await alone(ledger, run.runId);
    await claimRun(ledger.db, "worker-1", 10_000, 1);
    const queued = await swallowing("ingest_event", () => ingest(ledger.db, next()));
    assert.deepEqual({ ...queued, eventId: "" }, { kind: "queued", eventId: "", seq: 3, reason: "Enqueue" });
    assert.equal(
      await count(ledger, "message_events e join conversations c on c.id = e.conversation_id where c.ext_key = $1", [
        message.conversationKey,
      ]),
      3,
    );
  });

  it("of a message that a model is asked about, that was overheard or that answers is told as that", async () => {
    const run = await aClaimedRun(ledger.db);
    const { agentId, conversationKey } = run.message;
    const say = (changes: Partial<Message>) =>
      swallowing("ingest_event", () => ingest(ledger.db, aMessage(agentId, { conversationKey, ...changes })));
    assert.equal((await say({ askable: true })).kind, "undecided");
    const overheard = await say({ addressed: false });
    assert.deepEqual([overheard.kind, (overheard as { reason: string }).reason], ["observed", "NotAddressed"]);
    await sql(
      ledger,
      "update runs set status = 'awaiting_input', lease_owner = null, lease_until = null, leased_at = null, reserved_calls = 0, due_at = pawl_now() + interval '1 day' where id = $1",
      [run.runId],
    );
    assert.equal((await say({})).kind, "answers");
  });

  it("of a word that stops a turn stops it once, and says so", async () => {
    for (const committed of [false, true]) {
      const run = await aClaimedRun(ledger.db);
      if (committed) {
        const call = aCall();
        await respond(ledger.db, run, [call]);
        await cross(ledger.db, run, call);
      }
      const { agentId, conversationKey } = run.message;
      const word = aMessage(agentId, { conversationKey, stops: true });
      const stopped = await swallowing("request_stop", () => ingest(ledger.db, word));
      assert.equal(stopped.kind, committed ? "stopping" : "cancelled");
      assert.deepEqual(await ingest(ledger.db, word), { kind: "duplicate", specHash: null });
      assert.equal(await count(ledger, "interrupts where run_id = $1", [run.runId]), 1);
    }
  });

  it("of an edit or a delete is told as what it was", async () => {
    const change = (
      { agentId, generation, connector, conversationKey, actor, extId, orderKey }: Message,
      extRev: string,
    ) => ({
      agentId,
      generation,
      connector,
      conversationKey,
      actor,
      extId,
      extRev,
      orderKey,
    });
    const run = await aRun(ledger.db);
    const edited = () => ingestEdit(ledger.db, { ...change(run.message, "1"), text: "new words" });
    assert.equal((await swallowing("change_event", edited)).kind, "replaced");
    const gone = await swallowing("change_event", () => ingestDelete(ledger.db, change(run.message, "2")));
    assert.equal(gone.kind, "cancelled");
    const working = await aClaimedRun(ledger.db);
    const told = () => ingestEdit(ledger.db, { ...change(working.message, "1"), text: "new words" });
    assert.equal((await swallowing("ingest_event", told)).kind, "queued");
  });

  it("of an opened conversation opens it once", async () => {
    const run = await swallowing("open_conversation", () => aRun(ledger.db));
    assert.equal(await count(ledger, "conversations where ext_key = $1", [run.message.conversationKey]), 1);
  });

  it("of a claim costs one lease time: the run is leased to nobody who knows, then taken over", async () => {
    const run = await aRun(ledger.db);
    await alone(ledger, run.runId);
    assert.equal(await swallowing("claim_run", () => claimRun(ledger.db, "worker-1", 10_000, 1)), null);
    assert.equal((await runRow(ledger, run.runId)).lease_owner, "worker-1");
    await sql(ledger, "update runs set lease_until = pawl_now() where id = $1", [run.runId]);
    assert.deepEqual(await claimRun(ledger.db, "worker-2", 10_000, 1), {
      runId: run.runId,
      token: 2,
      takeover: true,
      attempts: 0,
    });
  });

  it("of a renewal renews", async () => {
    const run = await aClaimedRun(ledger.db);
    const renewal = await swallowing("renew_lease", () => renewLease(ledger.db, run.runId, run.token, 10_000));
    assert.equal(renewal.kind, "renewed");
  });

  it("of a lease given back is `already`, and the failure is counted once", async () => {
    const run = await aClaimedRun(ledger.db);
    const release = { ...run, delayMs: 60_000, reason: "ModelUnavailable", message: null, failed: true };
    assert.equal(await swallowing("release_lease", () => releaseLease(ledger.db, release)), "already");
    assert.equal((await runRow(ledger, run.runId)).attempts, 1);
  });

  it("of a response is `already`, with one step and its calls once", async () => {
    const run = await aClaimedRun(ledger.db);
    assert.equal((await swallowing("commit_response", () => respond(ledger.db, run, [aCall()]))).kind, "already");
    assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 1);
    assert.equal(await count(ledger, "tool_calls where run_id = $1", [run.runId]), 1);
    assert.equal(await count(ledger, "runs where id = $1 and model_calls = 1 and input_tokens = 10", [run.runId]), 1);
  });

  it("of results is `already`, with each result once", async () => {
    const run = await aClaimedRun(ledger.db);
    const call = aCall({ class: "pure", kind: "tool.query", target: null });
    await respond(ledger.db, run, [call]);
    const results = [{ id: call.id, outcome: "real" as const, result: "200" }];
    const answer = await swallowing("commit_results", () =>
      commitResults(ledger.db, { ...run, nonce: uuidv7() }, results),
    );
    assert.equal(answer.kind, "already");
    assert.equal(await count(ledger, "tool_calls where id = $1 and result = '200'", [call.id]), 1);
  });

  it("of a crossing is `already`, with one row", async () => {
    const run = await aClaimedRun(ledger.db);
    const call = aCall();
    await respond(ledger.db, run, [call]);
    assert.deepEqual((await swallowing("cross_effect", () => cross(ledger.db, run, call))).result, { kind: "already" });
    assert.equal(await count(ledger, "commitment_effects where run_id = $1 and attempt = 1", [run.runId]), 1);
  });

  it("of a reply is `already`, with one row", async () => {
    const run = await aClaimedRun(ledger.db);
    const reply = aCall({ class: "reply", kind: "reply", target: null });
    await respond(ledger.db, run, [reply]);
    const { result } = await swallowing("cross_effect", () => cross(ledger.db, run, reply, { receipt: { row: true } }));
    assert.deepEqual(result, { kind: "already" });
    assert.equal(await count(ledger, "commitment_effects where run_id = $1 and kind = 'reply'", [run.runId]), 1);
  });

  it("of an outcome is `already`", async () => {
    const { request } = await crossed();
    const settled = await swallowing("settle_effect", () => settleEffect(ledger.db, { ...request, ...confirmed }));
    assert.equal(settled, "already");
  });

  it("of a second sending is `already`, with its attempt counted once", async () => {
    const { run, request } = await crossed(true);
    await sql(
      ledger,
      "update commitment_effects set send_by = pawl_now() - interval '1 s', settle_at = pawl_now() where id = $1",
      [request.effectId],
    );
    const answer = await swallowing("redispatch_effect", () =>
      redispatchEffect(ledger.db, {
        ...run,
        effectId: request.effectId,
        nonce: uuidv7(),
        sendMs: 100,
        settleMs: 200,
        maxAttempts: 5,
      }),
    );
    assert.deepEqual(answer, { kind: "already", attempt: 2 });
    assert.equal(await count(ledger, "commitment_effects where id = $1 and attempt = 2", [request.effectId]), 1);
  });

  it("of a turn's end is `already`, with one next turn", async () => {
    const run = await aClaimedRun(ledger.db);
    await ingest(ledger.db, aMessage(run.agent.id, { conversationKey: run.message.conversationKey }));
    assert.deepEqual(await swallowing("finish_turn", () => end(ledger.db, run)), { kind: "already" });
    const runs = "runs r join runs f on f.conversation_id = r.conversation_id where f.id = $1";
    assert.equal(await count(ledger, `${runs} and r.live`, [run.runId]), 1);
    assert.equal(await count(ledger, runs, [run.runId]), 2);
  });

  it("of a stop is the same stop, whatever it did", async () => {
    const buffering = await aClaimedRun(ledger.db);
    assert.equal(await swallowing("request_stop", () => stop(ledger.db, buffering.eventId)), "already");
    assert.equal((await runRow(ledger, buffering.runId)).status, "cancelled");

    const { run } = await crossed();
    assert.equal(await swallowing("request_stop", () => stop(ledger.db, run.eventId)), "stopping");

    const ended = await aClaimedRun(ledger.db);
    await end(ledger.db, ended);
    assert.equal(await swallowing("request_stop", () => stop(ledger.db, ended.eventId)), "nothing_left");
    for (const { runId } of [buffering, run, ended]) {
      assert.equal(await count(ledger, "interrupts where run_id = $1", [runId]), 1);
    }
  });

  it("of a message taken back does not end the turn of the one who wrote with it", async () => {
    const run = await aRun(ledger.db);
    const { message } = run;
    await ingest(
      ledger.db,
      aMessage(message.agentId, {
        conversationKey: message.conversationKey,
        actor: { connector: "kubernetes", extId: "bob" },
      }),
    );
    assert.equal(await swallowing("request_stop", () => stop(ledger.db, run.eventId)), "already");
    assert.equal((await runRow(ledger, run.runId)).status, "queued");
    assert.equal(await count(ledger, "run_triggers where run_id = $1", [run.runId]), 1);
    assert.equal(await count(ledger, "interrupts where run_id = $1 and done = 'withdrawn'", [run.runId]), 1);
  });

  it("of a waiting message taken back is `already`", async () => {
    const run = await aClaimedRun(ledger.db);
    const waiting = await ingest(ledger.db, aMessage(run.agent.id, { conversationKey: run.message.conversationKey }));
    assert.ok(waiting.kind === "queued");
    assert.equal(await swallowing("withdraw_event", () => stop(ledger.db, waiting.eventId)), "already");
    assert.equal(await count(ledger, "message_events where id = $1 and state = 'withdrawn'", [waiting.eventId]), 1);
  });

  it("of an agent's text makes one generation of it", async () => {
    const agent = {
      namespaceUid: NAMESPACE_UID,
      namespace: "demo",
      name: uuidv7(),
      spec: {},
      specHash: "1",
      suspended: false,
    };
    const created = await swallowing("record_agent", () => recordAgent(ledger.db, agent));
    assert.equal(created.generation, 1);
    const changed = await swallowing("record_agent", () => recordAgent(ledger.db, { ...agent, specHash: "2" }));
    assert.deepEqual(changed, { id: created.id, generation: 2 });
    assert.equal(await count(ledger, "agent_generations where agent_id = $1", [created.id]), 2);
  });

  it("of a claimed or adopted ledger counts one epoch", async () => {
    const claimed = await swallowing("claim_installation", () => claimLedger(ledger.db, "a", new Date(0)));
    assert.equal(claimed.epoch, 1);
    const adopted = await swallowing("adopt_installation", () => adoptLedger(ledger.db, "b", new Date(5000)));
    assert.deepEqual(adopted, { kubeSystemUid: "b", bornAt: new Date(5000), epoch: 2 });
  });

  it("of a leadership holds it", async () => {
    await holdLeadership(ledger.db, "leader", "a", 60_000);
    const again = await swallowing("hold_leadership", () => holdLeadership(ledger.db, "leader", "a", 60_000));
    assert.equal(again.held, true);
  });

  it("of a person's word about a write is `already`, said by that person, and the mirror moves once", async () => {
    const { run, request } = await crossed();
    await settleEffect(ledger.db, { ...request, state: "unknown", receipt: null, observation: "no answer" });
    const { version } = await runRow(ledger, run.runId);
    const word = { effectId: request.effectId, landed: false, by: "alice", reason: null };
    const answer = await swallowing("resolve_effect", () => resolveEffect(ledger.db, word));
    assert.deepEqual(answer, { kind: "already", state: "failed", resolvedBy: "alice" });
    assert.equal((await runRow(ledger, run.runId)).version, version + 1);
  });

  it("of a wait for a person is `already`, asked once", async () => {
    const run = await aGatedRun(ledger.db, 2);
    assert.equal(await swallowing("park_for_approval", () => park(ledger.db, run)), "already");
    assert.equal(await count(ledger, "approvals where run_id = $1", [run.runId]), 2);
    assert.equal((await runRow(ledger, run.runId)).reason, "WaitingForApproval");
  });

  it("of an expiry is told as decided: its caller reads what became of it", async () => {
    const run = await aGatedRun(ledger.db);
    await park(ledger.db, run);
    await sql(
      ledger,
      "update approvals set requested_at = pawl_now() - interval '2 h', expires_at = pawl_now() - interval '1 h' where run_id = $1",
      [run.runId],
    );
    await sql(ledger, "update runs set due_at = pawl_now() where id = $1", [run.runId]);
    await alone(ledger, run.runId);
    run.token = (await claimRun(ledger.db, "worker-2", 10_000, CODE))?.token ?? 0;
    assert.equal(await swallowing("park_for_approval", () => park(ledger.db, run)), "decided");
    assert.equal((await approvalOf(ledger.db, run)).state, "expired");
  });

  it("of a call that is taken back for newer input is `already`", async () => {
    const run = await aGatedRun(ledger.db);
    await park(ledger.db, run);
    await sql(ledger, "update runs set due_at = pawl_now() where id = $1", [run.runId]);
    await alone(ledger, run.runId);
    const token = (await claimRun(ledger.db, "worker-2", 10_000, CODE))?.token ?? 0;
    const call = { runId: run.runId, token, callId: run.calls[0].id };
    assert.equal(await swallowing("withdraw_approval", () => withdrawApproval(ledger.db, call)), "already");
    assert.equal((await approvalOf(ledger.db, run)).state, "withdrawn");
  });

  it("of a finished read that goes to a successor is `already`, and closing the others twice closes them once", async () => {
    const old = await aClaimedRun(ledger.db);
    const reads = [0, 1].map((idx) => aCall({ idx, class: "pure", kind: "tool.query", target: null }));
    await respond(ledger.db, old, reads);
    const next = await supersede(ledger.db, old.runId, { text: "blue" });
    const finished = { id: reads[0]?.id ?? "", outcome: "real", result: "found" } as const;
    assert.equal(await swallowing("attach_result", () => attachResult(ledger.db, finished)), "already");
    await alone(ledger, next.runId);
    const token = (await claimRun(ledger.db, "worker-2", 10_000, CODE))?.token ?? 0;
    const run = { runId: next.runId, token, result: "closed" };
    assert.equal(await swallowing("close_inherited", () => closeInherited(ledger.db, run)), "closed");
    assert.equal(await count(ledger, "tool_calls where run_id = $1 and result in ('found', 'closed')", [old.runId]), 2);
  });

  it("of a question is the same question, which is still to be said by whoever asked", async () => {
    const run = await anAskingRun(ledger.db);
    const answered = await swallowing("park_for_input", () => asking(ledger.db, run));
    assert.deepEqual(answered, { kind: "already", reserved: true });
    assert.equal(await count(ledger, "questions where run_id = $1", [run.runId]), 1);
  });

  it("of an answer is the same answer, kept once and woken once, whether it counts or came late", async () => {
    const run = await anAskingRun(ledger.db);
    await asking(ledger.db, run);
    for (const kind of ["answered", "late"]) {
      const { version } = await runRow(ledger, run.runId);
      const told = await swallowing("answer_question", () => answer(ledger.db, run));
      assert.deepEqual([told.kind, told.already], [kind, true]);
      assert.equal((await runRow(ledger, run.runId)).version, version + (kind === "late" ? 0 : 1));
    }
    assert.equal(await count(ledger, "run_triggers where run_id = $1 and role = 'answer'", [run.runId]), 1);
  });

  it("of a notice leaves it with whoever reserved it, and known once", async () => {
    const run = await aClaimedRun(ledger.db);
    const [row] = await sql<{ id: string }>(ledger, "select request_id as id from runs where id = $1", [run.runId]);
    const key = { requestId: row?.id ?? "", kind: "notice", sequence: 1 } as const;
    const mine = { ...key, runId: run.runId, token: run.token, text: "x", nonce: uuidv7(), postMs: 1_000 };
    assert.equal(await swallowing("reserve_emission", () => reserveEmission(ledger.db, mine)), "already");
    const settled = { ...key, nonce: mine.nonce, state: "landed", receipt: {} } as const;
    assert.equal(await swallowing("settle_emission", () => settleEmission(ledger.db, settled)), "already");
  });

  it("of a decision is the same decision, kept once and woken once", async () => {
    for (const [changes, kind] of [
      [{}, "approved"],
      [{ approve: false }, "rejected"],
      [{ hash: "another" }, "refused"],
    ] as const) {
      const run = await aGatedRun(ledger.db);
      await park(ledger.db, run);
      const { version } = await runRow(ledger, run.runId);
      const answer = await swallowing("decide_approval", () => decide(ledger.db, run, changes));
      assert.deepEqual([answer.kind, answer.already], [kind, true]);
      assert.equal((await runRow(ledger, run.runId)).version, version + (kind === "refused" ? 0 : 1));
      const { id } = await approvalOf(ledger.db, run);
      assert.equal(await count(ledger, "approval_decisions where approval_id = $1", [id]), 1);
    }
  });

  it("of an outcome with the next crossing is both again, with two rows", async () => {
    const { run, calls, request } = await crossed();
    const next = { nonce: uuidv7(), effectId: uuidv7() };
    const pair = await swallowing("commit", () =>
      ledger.db.transaction(async (tx) => [
        await settleEffect(tx, { ...request, ...confirmed }),
        (await cross(tx, run, calls[1], next)).result.kind,
      ]),
    );
    assert.deepEqual(pair, ["already", "already"]);
    const rows = await sql(
      ledger,
      "select state, attempt from commitment_effects where run_id = $1 order by dispatched_at",
      [run.runId],
    );
    assert.deepEqual(rows, [
      { state: "confirmed", attempt: 1 },
      { state: "dispatched", attempt: 1 },
    ]);
  });

  it("of a response with its first crossing is both again, with one of each", async () => {
    const run = await aClaimedRun(ledger.db);
    const [call, nonce, ids] = [aCall(), uuidv7(), { nonce: uuidv7(), effectId: uuidv7() }];
    const pair = await swallowing("commit", () =>
      ledger.db.transaction(async (tx) => [
        (await respond(tx, run, [call], { nonce })).kind,
        (await cross(tx, run, call, ids)).result.kind,
      ]),
    );
    assert.deepEqual(pair, ["already", "already"]);
    assert.equal(await count(ledger, "run_steps where run_id = $1", [run.runId]), 1);
    assert.equal(await count(ledger, "commitment_effects where run_id = $1", [run.runId]), 1);
  });

  it("of the last outcome with the results is both again, with one of each", async () => {
    const { run, calls, request } = await crossed();
    const nonce = uuidv7();
    const results = calls.map(({ id }) => ({ id, outcome: "real" as const, result: "201" }));
    const pair = await swallowing("commit", () =>
      ledger.db.transaction(async (tx) => [
        await settleEffect(tx, { ...request, ...confirmed }),
        (await commitResults(tx, { ...run, nonce }, results.slice(0, 1))).kind,
      ]),
    );
    assert.deepEqual(pair, ["already", "already"]);
    assert.equal(
      (await runRow(ledger, run.runId)).version,
      5,
      "claimed, answered, crossed, collected: one version each",
    );
  });
});
