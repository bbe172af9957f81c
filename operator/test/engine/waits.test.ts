/** A wait that an endpoint imposed on a key holds back every run with it, in every worker (C27, C72). */
import assert from "node:assert/strict";
import type { EngineDeps } from "#engine/deps.ts";
import { keepLookingAtWaits, lookAtWaits, MAX_TOLD_MS, tellOthers } from "#engine/waits.ts";
import { closedGates, closeGate } from "#ledger/rate-gates.ts";
import { Database } from "#ledger/database.ts";
import { OpenAiModels } from "#models/openai.ts";
import { systemClock } from "#src/clock.ts";
import { ManualClock } from "../models/manual-clock.ts";
import { drain } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { later, realBench, rowOf, scene, useReality } from "../support/reality.ts";

const slow = { status: 429, headers: { "retry-after": "120" } };
const refusal = (code: string, message: string, headers: Record<string, string> = slow.headers) => ({
  fault: { kind: "status" as const, status: 429, headers, body: { error: { message, code } } },
});

describe("a wait that an endpoint imposes", function () {
  this.timeout(20_000);
  const ledger = useLedger();
  const fakes = useReality();
  beforeEach(() => ledger.db.pool.query("delete from rate_gates"));

  /** A worker with a connection, a memory and an adapter of its own. */
  function workerOn(db: Database): { deps: EngineDeps; model: OpenAiModels; look: () => Promise<void> } {
    const quiet = realBench(db).deps;
    const model = new OpenAiModels({ clock: systemClock, onWait: tellOthers(quiet) });
    const { deps } = realBench(db, { deps: { model } });
    return { deps, model, look: () => lookAtWaits(deps, model) };
  }

  it("is kept by another worker that was never refused, and by one that was started since", async () => {
    const run = await scene(ledger.db, fakes, [refusal("rate_limit_exceeded", "slow down")]);
    const first = workerOn(ledger.db);
    assert.equal(await drain(first.deps), 1);
    assert.equal((await rowOf(ledger.db, run.runId)).reason, "ModelRateLimited");

    const other = await scene(ledger.db, fakes, [{ text: "thanks" }]);
    await using db = new Database({ url: ledger.url });
    const second = workerOn(db);
    await second.look();
    assert.equal(await drain(second.deps), 1, "it is looked at, and waits");
    const row = await rowOf(ledger.db, other.runId);
    assert.equal(row.reason, "ModelRateLimited");
    assert.match(row.message ?? "", /asked everyone with this key to wait/);
    assert.ok((row.due_ms ?? 0) > 118_000, `${row.due_ms}`);
    assert.equal((await other.requests()).length, 0);

    // When it is over everybody asks again.
    await using then = later(ledger.url, 125);
    const third = workerOn(then);
    await third.look();
    assert.equal(await drain(third.deps), 2);
    assert.equal((await other.requests()).length, 1);
  });

  it("holds back nobody with another key", async () => {
    await scene(ledger.db, fakes, [refusal("rate_limit_exceeded", "slow down")]);
    await drain(workerOn(ledger.db).deps);
    const other = await scene(ledger.db, fakes, [{ text: "thanks" }], {
      model: { apiKeySecretRef: { name: "other", key: "k" } },
    });
    const model = new OpenAiModels({ clock: systemClock });
    const { deps } = realBench(ledger.db, {
      deps: { model, credentials: { get: () => Promise.resolve({ kind: "found", value: "another-key-1" }) } },
    });
    await lookAtWaits(deps, model);
    await drain(deps);
    assert.equal((await rowOf(ledger.db, other.runId)).status, "succeeded");
  });

  it("is none where the account is exhausted: that run ends, and nobody waits for it", async () => {
    const run = await scene(ledger.db, fakes, [refusal("insufficient_quota", "You exceeded your current quota")]);
    await drain(workerOn(ledger.db).deps);
    assert.equal((await rowOf(ledger.db, run.runId)).reason, "ModelQuotaExhausted");
    assert.deepEqual(await closedGates(ledger.db), []);
  });

  it("only grows, names no key, and goes when it is long over", async () => {
    await closeGate(ledger.db, "a", 60_000);
    await closeGate(ledger.db, "a", 1_000);
    const [gate] = await closedGates(ledger.db);
    assert.ok((gate?.waitMs ?? 0) > 59_000);
    await using then = later(ledger.url, 2 * 3_600);
    assert.deepEqual(await closedGates(then), []);
    await closeGate(then, "b", 1_000);
    const { rows } = await ledger.db.pool.query<{ credential: string }>("select credential from rate_gates");
    assert.deepEqual(rows, [{ credential: "b" }]);
    await tellOthers(realBench(ledger.db).deps)("c", Number.MAX_SAFE_INTEGER);
    const told = (await closedGates(ledger.db)).find(({ credential }) => credential === "c");
    assert.ok((told?.waitMs ?? 0) <= MAX_TOLD_MS);
  });

  it("does not stop a run when nobody can be told, and is looked for again when the ledger is back", async () => {
    const { deps, logged } = realBench(ledger.db);
    await using gone = new Database({ url: ledger.url });
    await gone.close();
    await tellOthers({ ...deps, db: gone })("x", 1_000);
    assert.deepEqual(
      logged.map(({ message }) => message),
      ["other workers could not be told to wait"],
    );
    await closeGate(ledger.db, "y", 60_000);
    const clock = new ManualClock();
    const stop = new AbortController();
    const seen: string[] = [];
    let looks = 0;
    const flaky = new Proxy(ledger.db, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name, target);
        if (name === "rows" && (looks += 1) <= 2) return () => Promise.reject(new Error("away"));
        return typeof member === "function" ? (member.bind(target) as unknown) : member;
      },
    });
    clock.onSleep = () => queueMicrotask(() => clock.advance(60_000));
    await keepLookingAtWaits(
      { ...deps, db: flaky, clock },
      { close: (credential) => (seen.push(credential), stop.abort()) },
      stop.signal,
    );
    assert.deepEqual(seen, ["y"]);
    assert.equal(logged.filter(({ message }) => message === "waits of other workers were not looked at").length, 1);
  });
});
