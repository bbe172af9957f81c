/** A person's word about a write whose outcome nobody saw. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { redispatchEffect, resolveEffect, settleEffect } from "#ledger/effects.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { listEffects } from "#ledger/journal.ts";
import { renewLease } from "#ledger/leases.ts";
import { readMirror } from "#ledger/mirrors.ts";
import { overlap, untilBlocked } from "../support/interleave.ts";
import { end, runRow, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { RecordingDatabase } from "../support/verdicts.ts";
import { aCall, aClaimedRun, cross, NAMESPACE_UID, respond } from "../support/world.ts";

describe("an effect that a person resolves", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  /** Dispatched, its sender perhaps alive. */
  async function dispatched(settleMs = 20_000, keyed = false) {
    const uid = uuidv7();
    const run = await aClaimedRun(ledger.db, {
      applied: { namespaceUid: NAMESPACE_UID, key: uid, specHash: "s", objectUid: uid, objectName: `run-${uid}` },
    });
    const call = aCall({ target: "issue/1" });
    const same = aCall({ idx: 1, target: "issue/1", argsHash: call.argsHash });
    await respond(ledger.db, run, [call, same]);
    const { request } = await cross(ledger.db, run, call, { settleMs, keyed });
    return { run, same, request, key: uid };
  }

  const settled = async (state: "confirmed" | "failed" | "unknown") => {
    const found = await dispatched();
    const receipt = state === "confirmed" ? { status: 201 } : null;
    await settleEffect(ledger.db, { ...found.request, state, receipt, observation: "no answer" });
    return found;
  };

  const overdue = (id: string) =>
    sql(
      ledger,
      `update commitment_effects set send_by = pawl_now() - interval '2 s', settle_at = pawl_now() - interval '1 s' where id = $1`,
      [id],
    );

  const resolve = (effectId: string, landed: boolean, by = "alice", reason: string | null = "saw it in the list") =>
    resolveEffect(ledger.db, { effectId, landed, by, reason });

  const effect = async (id: string) => {
    const [row] = await sql(ledger, "select * from commitment_effects where id = $1", [id]);
    assert.ok(row !== undefined);
    return row;
  };

  it("as landed is confirmed, with that person and the reason as its receipt", async () => {
    const { request } = await settled("unknown");
    assert.deepEqual(await resolve(request.effectId, true), { kind: "resolved", target: "issue/1" });
    const row = await effect(request.effectId);
    assert.deepEqual(
      [row["state"], row["receipt"], row["resolved_by"], row["observation"]],
      [
        "confirmed",
        { resolvedBy: "alice", reason: "saw it in the list" },
        "alice",
        "alice looked and says: it took place. saw it in the list\nSeen before: no answer",
      ],
    );
  });

  it("as not landed has failed, and the same call may cross anew", async () => {
    const { run, same, request } = await settled("unknown");
    assert.equal((await resolve(request.effectId, false, "alice", null)).kind, "resolved");
    const row = await effect(request.effectId);
    assert.deepEqual([row["state"], row["receipt"], row["resolved_by"]], ["failed", null, "alice"]);
    assert.match(row["observation"] as string, /^alice looked and says: it did not take place\.\n/);
    assert.equal((await cross(ledger.db, run, same)).result.kind, "crossed");
  });

  it("is not before its sender has certainly let go of it, and is after", async () => {
    const { request } = await dispatched(60_000);
    const before = await effect(request.effectId);
    const answer = await resolve(request.effectId, true);
    assert.deepEqual(answer, { kind: "too_early", settleAt: before["settle_at"] });
    assert.deepEqual(await effect(request.effectId), before);
    await overdue(request.effectId);
    assert.equal((await resolve(request.effectId, true)).kind, "resolved");
    assert.equal((await effect(request.effectId))["state"], "confirmed");
  });

  it("stays as it was said first: the same word again is `already`, the other one is a conflict with who said what", async () => {
    for (const landed of [true, false]) {
      const { run, request } = await settled("unknown");
      await resolve(request.effectId, landed);
      const before = [await effect(request.effectId), await runRow(ledger, run.runId)];
      const said = { state: landed ? "confirmed" : "failed", resolvedBy: "alice" };
      assert.deepEqual(await resolve(request.effectId, landed, "bob"), { kind: "already", ...said });
      assert.deepEqual(await resolve(request.effectId, !landed, "bob"), { kind: "conflict", ...said });
      assert.deepEqual([await effect(request.effectId), await runRow(ledger, run.runId)], before);
    }
  });

  it("is not one whose own sender saw the outcome", async () => {
    for (const state of ["confirmed", "failed"] as const) {
      const { request } = await settled(state);
      const before = await effect(request.effectId);
      const answer = await resolve(request.effectId, state === "failed");
      assert.deepEqual(answer, { kind: "conflict", state, resolvedBy: null });
      assert.deepEqual(await effect(request.effectId), before);
    }
  });

  it("is not changed by its sender's late news: the outcome is final", async () => {
    const { request } = await dispatched();
    await overdue(request.effectId);
    await resolve(request.effectId, false);
    const late = { ...request, state: "confirmed", receipt: { status: 201 }, observation: "201" } as const;
    assert.equal(await settleEffect(ledger.db, late), "conflict");
    assert.equal((await effect(request.effectId))["state"], "failed");
  });

  it("that nobody knows is a verdict, not an error", async () => {
    assert.deepEqual(await resolve(uuidv7(), true), { kind: "unknown_effect" });
  });

  it("moves its run's version and nothing else of it, so that the mirror shows one unknown less and the lease goes on", async () => {
    const { run, request, key } = await settled("unknown");
    const before = await runRow(ledger, run.runId);
    assert.equal((await readMirror(ledger.db, NAMESPACE_UID, key))?.effects_unknown, 1);
    await resolve(request.effectId, true);
    const mirror = await readMirror(ledger.db, NAMESPACE_UID, key);
    assert.deepEqual([mirror?.effects_unknown, mirror?.version], [0, before.version + 1]);
    const after = await runRow(ledger, run.runId);
    const changed = Object.entries(after).filter(
      ([name, value]) => String(value) !== String(before[name as keyof typeof before]),
    );
    assert.deepEqual(
      changed.map(([name]) => name).filter((name) => name !== "changed_at"),
      ["version"],
    );
    assert.equal((await renewLease(ledger.db, run.runId, run.token, 10_000)).kind, "renewed");
  });

  it("may be of a turn that ended long ago", async () => {
    const { run, request } = await settled("unknown");
    await sql(
      ledger,
      "update tool_calls set outcome = 'unknown', result = '', closed_at = pawl_now() where run_id = $1",
      [run.runId],
    );
    await end(ledger.db, run);
    const { version } = await runRow(ledger, run.runId);
    assert.equal((await resolve(request.effectId, true)).kind, "resolved");
    assert.equal((await runRow(ledger, run.runId)).version, version + 1);
  });

  it("leaves the list of what is open, and is in the list of all, under its Run's name", async () => {
    const { run, request, key } = await settled("unknown");
    const listed = async (every: boolean, namespace = "demo") =>
      (await listEffects(ledger.db, { namespace, every, most: 1_000 })).find(({ id }) => id === request.effectId);
    const { since, ...row } = (await listed(false)) ?? assert.fail("not listed");
    assert.deepEqual(row, {
      id: request.effectId,
      object: `run-${key}`,
      namespace: "demo",
      agent: run.agent.name,
      kind: "tool.effect",
      target: "issue/1",
      state: "unknown",
      attempt: 1,
      resolvedBy: null,
      approvedBy: null,
    });
    assert.deepEqual(since, (await effect(request.effectId))["settled_at"]);
    assert.equal(await listed(false, "elsewhere"), undefined);
    await resolve(request.effectId, true);
    assert.equal(await listed(false), undefined);
    assert.equal((await listed(true))?.resolvedBy, "alice");
  });

  describe("at the same moment", () => {
    let other: RecordingDatabase;
    before(() => {
      other = new RecordingDatabase({ url: ledger.url, name: "other" });
    });
    after(() => other.close());

    async function lost() {
      const found = await dispatched(20_000, true);
      await overdue(found.request.effectId);
      const word = { effectId: found.request.effectId, landed: true, by: "alice", reason: null };
      const again = {
        runId: found.run.runId,
        token: found.run.token,
        effectId: found.request.effectId,
        nonce: uuidv7(),
        sendMs: 10_000,
        settleMs: 20_000,
        maxAttempts: 5,
      };
      return { ...found, word, again };
    }

    it("as a worker that would send it again: who comes second sees the first", async () => {
      const one = await lost();
      assert.deepEqual(
        await overlap({ db: ledger.db, body: (tx) => resolveEffect(tx, one.word) }, () =>
          redispatchEffect(other, one.again),
        ),
        [{ kind: "resolved", target: "issue/1" }, { kind: "refused" }],
      );
      const two = await lost();
      const [sent, word] = await overlap({ db: ledger.db, body: (tx) => redispatchEffect(tx, two.again) }, () =>
        resolveEffect(other, two.word),
      );
      assert.deepEqual([sent, word.kind], [{ kind: "crossed", attempt: 2 }, "too_early"]);
    });

    it("as its sender, who settles and crosses in one transaction: locks have one order, so the person waits and hears it", async () => {
      const { run, same, request, word } = await lost();
      const confirmed = { ...request, state: "confirmed", receipt: { status: 201 }, observation: "201" } as const;
      const said = Promise.withResolvers<Awaited<ReturnType<typeof resolveEffect>>>();
      let bodies = 0;
      const [settlement, next] = await ledger.db.transaction(async (tx) => {
        bodies += 1;
        const outcome = await settleEffect(tx, confirmed);
        // Held already: whoever comes now waits for the run before it has anything that the crossing wants.
        await assert.rejects(
          ledger.db.pool.query("select id from runs where id = $1 for no key update nowait", [run.runId]),
          { code: "55P03" },
        );
        if (bodies === 1) {
          said.resolve(resolveEffect(other, word));
          await untilBlocked(ledger.url);
        }
        return [outcome, (await cross(tx, run, same)).result.kind];
      });
      assert.deepEqual([settlement, next, bodies], ["settled", "replayed", 1], "no deadlock had to be broken");
      assert.equal((await said.promise).kind, "already");
      assert.equal((await effect(request.effectId))["state"], "confirmed");
    });
  });
});
