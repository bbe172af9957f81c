/** What a request says besides its answer: each thing once, whoever says it (I8). */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import {
  type EmissionKey,
  readEmissions,
  type Reservation,
  reserveEmission,
  settleEmission,
} from "#ledger/emissions.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { CODE } from "#rules/limits.ts";
import { hold, untilBlocked } from "../support/interleave.ts";
import { alone, end, lapse, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { met, RecordingDatabase } from "../support/verdicts.ts";
import { aClaimedRun } from "../support/world.ts";

describe("something that is said outside", () => {
  const ledger = useLedger();
  let other: RecordingDatabase;
  before(() => {
    other = new RecordingDatabase({ url: ledger.url, name: "other" });
  });
  after(() => other.close());
  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  async function speaking() {
    const run = await aClaimedRun(ledger.db);
    const [row] = await sql<{ id: string }>(ledger, "select request_id as id from runs where id = $1", [run.runId]);
    const key: EmissionKey = { requestId: row?.id ?? "", kind: "notice", sequence: 3 };
    const reservation = (changes: Partial<Reservation> = {}): Reservation => ({
      ...key,
      runId: run.runId,
      token: run.token,
      text: "too late",
      nonce: uuidv7(),
      postMs: 1_000,
      ...changes,
    });
    return { run, key, reservation, said: () => readEmissions(ledger.db, key.requestId) };
  }
  const landed = (key: EmissionKey, nonce: string) => ({ ...key, nonce, state: "landed", receipt: {} }) as const;
  const unsaid = (key: EmissionKey) =>
    sql(ledger, "update emissions set due_at = pawl_now() where request_id = $1", [key.requestId]);

  it("is reserved first, and known afterwards; the same words again change nothing", async () => {
    const { key, reservation, said } = await speaking();
    const mine = reservation();
    assert.equal(await reserveEmission(ledger.db, mine), "reserved");
    assert.equal(await reserveEmission(ledger.db, mine), "already");
    assert.equal((await said())[0]?.state, "reserved");
    assert.equal(await settleEmission(ledger.db, landed(key, mine.nonce)), "settled");
    assert.equal(await settleEmission(ledger.db, landed(key, mine.nonce)), "already");
    assert.deepEqual(
      (await said()).map(({ kind, sequence, text, state }) => [kind, sequence, text, state]),
      [["notice", 3, "too late", "landed"]],
    );
  });

  it("is said by one only: by nobody who comes after him, also not once he has died over it", async () => {
    const { run, key, reservation, said } = await speaking();
    await reserveEmission(ledger.db, reservation());
    assert.equal(await reserveEmission(ledger.db, reservation()), "taken");
    assert.equal((await said())[0]?.state, "reserved", "he may still be at it");
    await unsaid(key);
    assert.equal((await said())[0]?.state, "unknown");
    await lapse(ledger, run.runId);
    const claim = await claimRun(ledger.db, "worker-2", 10_000, CODE);
    assert.equal(await reserveEmission(ledger.db, reservation({ token: claim?.token ?? 0 })), "taken");
    assert.equal(
      await sql(ledger, "select from emissions where state = 'unknown' and request_id = $1", [key.requestId]).then(
        (rows) => rows.length,
      ),
      1,
    );
  });

  it("is known after all when its sayer was only slow, and by no one else's word", async () => {
    const { key, reservation, said } = await speaking();
    const mine = reservation();
    await reserveEmission(ledger.db, mine);
    await unsaid(key);
    await reserveEmission(ledger.db, reservation());
    assert.equal(await settleEmission(ledger.db, landed(key, uuidv7())), "conflict");
    assert.equal(await settleEmission(ledger.db, landed(key, mine.nonce)), "settled");
    assert.equal(await settleEmission(ledger.db, { ...landed(key, mine.nonce), state: "failed" }), "conflict");
    assert.equal((await said())[0]?.state, "landed");
  });

  it("is not said by a worker that has lost its run, nor for one that has ended", async () => {
    const { run, reservation, said } = await speaking();
    await lapse(ledger, run.runId);
    assert.equal(await reserveEmission(ledger.db, reservation()), "fenced");
    const over = await speaking();
    await end(ledger.db, over.run);
    assert.equal(await reserveEmission(ledger.db, over.reservation()), "ended");
    assert.deepEqual([await said(), await over.said()], [[], []]);
  });

  it("may be said by somebody who holds no run: then its key alone decides", async () => {
    const { run, reservation } = await speaking();
    await end(ledger.db, run);
    assert.equal(await reserveEmission(ledger.db, reservation({ token: null })), "reserved");
    assert.equal(await reserveEmission(ledger.db, reservation({ token: null })), "taken");
    assert.equal(await reserveEmission(ledger.db, reservation({ token: null, sequence: 4 })), "reserved");
  });

  it("at the same moment as by another: the second waits, looks again and finds it taken", async () => {
    const { reservation } = await speaking();
    const first = await hold(ledger.db, (tx) => reserveEmission(tx, reservation({ token: null })));
    const second = reserveEmission(other, reservation({ token: null }));
    await untilBlocked(ledger.url);
    await first.commit();
    assert.deepEqual([first.result, await second], ["reserved", "taken"]);
    assert.ok(met.get("reserve_emission")?.has("again"));
  });
});
