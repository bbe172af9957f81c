import assert from "node:assert/strict";
import { type Outcome, WorkQueue } from "#kube/queue.ts";
import { PawlError } from "#rules/errors.ts";
import { ManualClock, settled } from "./support/clock.ts";

type Call = { key: string; finish: (outcome?: Outcome) => void; fail: (error: unknown) => void; signal: AbortSignal };

/** A queue whose handlers run until the test ends them. */
function setUp(concurrency = 10) {
  const clock = new ManualClock();
  const calls: Call[] = [];
  const failures: { key: string; failures: number; waitMs: number }[] = [];
  const queue = new WorkQueue({
    clock,
    random: () => 0.5,
    concurrency,
    backoff: { baseMs: 1_000, maxMs: 8_000 },
    handler: (key, signal) =>
      new Promise((resolve, reject) => {
        calls.push({ key, signal, finish: (outcome) => resolve(outcome), fail: reject });
      }),
    failed: (_error, key, count, waitMs) => failures.push({ key, failures: count, waitMs }),
  });
  const call = (index: number): Call => {
    const found = calls[index];
    assert.ok(found, `call ${index} was not made; there are ${calls.length}`);
    return found;
  };
  return { clock, calls, call, failures, queue };
}

describe("the work queue", () => {
  it("runs a key once, however often it was added before it ran", async () => {
    const { queue, calls, call } = setUp(1);
    for (const key of ["a", "b", "b", "b"]) queue.add(key);
    call(0).finish();
    await settled();
    call(1).finish();
    await settled();
    assert.deepEqual(
      calls.map(({ key }) => key),
      ["a", "b"],
    );
    await queue.stop();
  });

  it("never works on one key twice at once; what arrives meanwhile is one more run", async () => {
    const { queue, calls, call } = setUp();
    queue.add("a");
    for (let i = 0; i < 5; i++) queue.add("a");
    await settled();
    assert.equal(calls.length, 1);
    call(0).finish();
    await settled();
    assert.equal(calls.length, 2);
    call(1).finish();
    await settled();
    assert.equal(calls.length, 2);
    await queue.stop();
  });

  it("works on as many keys at once as it may, first come first served", async () => {
    const { queue, calls, call } = setUp(2);
    for (const key of ["a", "b", "c", "d"]) queue.add(key);
    assert.deepEqual([calls.map(({ key }) => key), queue.depth, queue.running], [["a", "b"], 2, 2]);
    call(1).finish();
    await settled();
    assert.deepEqual(
      calls.map(({ key }) => key),
      ["a", "b", "c"],
    );
    for (const index of [0, 2]) call(index).finish();
    await settled();
    call(3).finish();
    await queue.stop();
  });

  it("backs a failing key off, doubling to a limit, while others go on (C44)", async () => {
    const { queue, clock, calls, call, failures } = setUp();
    queue.add("bad");
    for (let round = 0; round < 5; round++) {
      call(calls.length - 1).fail(new Error("always"));
      await settled();
      queue.add(`good-${round}`);
      const good = call(calls.length - 1);
      assert.equal(good.key, `good-${round}`);
      good.finish();
      await settled();
      await clock.advance(8_000);
    }
    assert.deepEqual(
      failures.map(({ waitMs }) => waitMs),
      [1_000, 2_000, 4_000, 8_000, 8_000],
    );
    assert.deepEqual(
      failures.map((one) => one.failures),
      [1, 2, 3, 4, 5],
    );
    call(calls.length - 1).finish();
    await queue.stop();
  });

  it("does not let new additions hurry a key that backs off", async () => {
    const { queue, clock, calls, call } = setUp();
    queue.add("bad");
    call(0).fail(new Error("x"));
    await settled();
    queue.add("bad");
    await clock.advance(999);
    assert.equal(calls.length, 1);
    await clock.advance(1);
    assert.equal(calls.length, 2);
    call(1).finish();
    await queue.stop();
  });

  it("forgets failures after a success", async () => {
    const { queue, clock, call, failures } = setUp();
    queue.add("a");
    call(0).fail(new Error("x"));
    await settled();
    await clock.advance(1_000);
    call(1).finish();
    await settled();
    queue.add("a");
    call(2).fail(new Error("x"));
    await settled();
    assert.deepEqual(
      failures.map((one) => one.waitMs),
      [1_000, 1_000],
    );
    await queue.stop();
  });

  it("waits as long as the server asked, when that is longer", async () => {
    const { queue, call, failures } = setUp();
    queue.add("a");
    call(0).fail(new PawlError("transient", "TooManyRequests", "later", { retryAfterMs: 30_000 }));
    await settled();
    assert.equal(failures[0]?.waitMs, 30_000);
    await queue.stop();
  });

  it("runs a key again after the time its handler asked for, or sooner when something happens", async () => {
    const { queue, clock, calls, call } = setUp();
    queue.add("a");
    call(0).finish({ requeueAfterMs: 5_000 });
    await settled();
    await clock.advance(4_999);
    assert.equal(calls.length, 1);
    await clock.advance(1);
    call(1).finish({ requeueAfterMs: 5_000 });
    await settled();
    queue.add("a");
    call(2).finish();
    await settled();
    await clock.advance(60_000);
    assert.equal(calls.length, 3);
    await queue.stop();
  });

  it("keeps the earliest of several times", async () => {
    const { queue, clock, calls, call } = setUp();
    queue.add("a", 3_000);
    queue.add("a", 1_000);
    queue.add("a", 2_000);
    await clock.advance(1_000);
    call(0).finish();
    await settled();
    await clock.advance(10_000);
    assert.equal(calls.length, 1);
    await queue.stop();
  });

  it("stops cleanly: tells its handlers, waits for them, takes nothing more, leaves no timer", async () => {
    const { queue, clock, calls, call } = setUp(1);
    queue.add("a");
    queue.add("b");
    queue.add("c", 1_000);
    let stopped = false;
    const stopping = queue.stop().then(() => {
      stopped = true;
    });
    await settled();
    assert.deepEqual([call(0).signal.aborted, stopped], [true, false]);
    call(0).finish({ requeueAfterMs: 1 });
    await stopping;
    queue.add("d");
    await clock.advance(60_000);
    assert.deepEqual([calls.length, clock.sleeping], [1, []]);
  });
});
