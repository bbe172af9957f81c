import assert from "node:assert/strict";
import type { Fault, Seen } from "@pawl/fakes";
import { Reflector } from "#kube/reflector.ts";
import { CONFIG_MAPS } from "#kube/resources.ts";
import { isPawlError } from "#rules/errors.ts";
import { SkippingClock } from "./support/clock.ts";
import { type Cluster, cluster, makeNamespace } from "./support/cluster.ts";
import { Reflected } from "./support/reflected.ts";

describe("the reflector", function () {
  this.timeout(120_000);
  let kube: Cluster;
  let made = 0;
  const fresh = async (): Promise<string> => await makeNamespace(`reflector-${++made}`);

  before(async () => {
    kube = await cluster();
  });

  describe("on a good connection", () => {
    it("lists in pages, then follows what is created, changed and deleted", async () => {
      const namespace = await fresh();
      for (let i = 0; i < 5; i++) await kube.admin.create(CONFIG_MAPS, { metadata: { namespace, name: `old-${i}` } });
      await using seen = await Reflected.start(kube, namespace, { pageSize: 2 });
      assert.equal(seen.requests.filter(({ watch }) => !watch).length, 3);
      assert.deepEqual([seen.reflector.size, seen.changes.length], [5, 5]);
      await seen.create("new");
      await seen.until("the new one is there", () => seen.has("new"));
      await kube.admin.merge(CONFIG_MAPS, { namespace, name: "new" }, { data: { a: "b" } });
      await seen.until("it is changed", () => seen.changes.at(-1)?.object?.["data"] !== undefined);
      await seen.remove("new");
      await seen.until("it is gone", () => !seen.has("new"));
      assert.equal(seen.changes.at(-1)?.previous?.["data"] !== undefined, true);
      assert.deepEqual([seen.lists.length, seen.failures.length], [1, 0]);
    });

    it("keeps no managedFields", async () => {
      const namespace = await fresh();
      await using seen = await Reflected.start(kube, namespace);
      await seen.create("plain");
      await seen.until("it is there", () => seen.has("plain"));
      for (const object of seen.reflector.values()) assert.equal(object.metadata["managedFields"], undefined);
    });

    it("goes on from a bookmark after a quiet end", async () => {
      await using seen = await Reflected.start(kube, await fresh());
      seen.proxy.inject(JSON.stringify({ type: "BOOKMARK", object: { metadata: { resourceVersion: "1234567" } } }));
      const next = seen.proxy.next(({ watch }) => watch);
      seen.proxy.endStreams();
      assert.match((await next).url, /resourceVersion=1234567&/);
      assert.equal(seen.lists.length, 1);
    });

    it("has each watch ended by the server within 45 s, so that silence beyond that means something", async () => {
      for (const random of [0, 0.999]) {
        await using seen = await Reflected.start(kube, await fresh(), { random: () => random });
        const [, seconds] = /timeoutSeconds=(\d+)/.exec(seen.requests.at(-1)?.url ?? "") ?? [];
        assert.equal(Number(seconds), random === 0 ? 40 : 45);
      }
    });

    it("says how long ago the server said something", async () => {
      await using seen = await Reflected.start(kube, await fresh());
      assert.ok((seen.reflector.age() ?? Number.POSITIVE_INFINITY) < 30_000);
      const idle = new Reflector({
        client: kube.admin,
        resource: CONFIG_MAPS,
        clock: seen.clock,
        random: () => 0,
        onChange: () => {},
      });
      assert.equal(idle.age(), undefined);
    });

    it("lets a handler that throws for one object see the others", async () => {
      const onChange = ({ key }: { key: string }): void => {
        if (key.endsWith("/bad")) throw new Error("always");
      };
      await using seen = await Reflected.start(kube, await fresh(), { onChange });
      await seen.create("bad");
      await seen.create("good");
      await seen.until("the good one is there", () => seen.has("good"));
      assert.deepEqual([seen.thrown.map((key) => key.split("/")[1]), seen.failures.length], [["bad"], 0]);
    });
  });

  /** What goes wrong for a while (C42). Each lasts for `requests` requests, then the server is well again. */
  const LASTING: Readonly<Record<string, { requests: number; silenceMs?: number; fault: (seen: Seen) => Fault }>> = {
    "watches are answered 503": {
      requests: 12,
      fault: ({ watch }) => (watch ? { kind: "status", code: 503 } : { kind: "pass" }),
    },
    "watches are answered 403": {
      requests: 12,
      fault: ({ watch }) => (watch ? { kind: "status", code: 403 } : { kind: "pass" }),
    },
    "watches are answered 429 with a time to wait": {
      requests: 6,
      fault: ({ watch }) => (watch ? { kind: "status", code: 429, retryAfter: 1 } : { kind: "pass" }),
    },
    "watches are answered 410": {
      requests: 12,
      fault: ({ watch }) => (watch ? { kind: "status", code: 410 } : { kind: "pass" }),
    },
    "everything is answered 500": { requests: 12, fault: () => ({ kind: "status", code: 500 }) },
    "everything is answered with a page": { requests: 12, fault: () => ({ kind: "status", code: 200 }) },
    "everything is cut": { requests: 12, fault: () => ({ kind: "reset" }) },
    "watches end every 50 ms": {
      requests: 20,
      fault: ({ watch }) => (watch ? { kind: "end", afterMs: 50 } : { kind: "pass" }),
    },
    "watches open and never say a word": {
      requests: 4,
      silenceMs: 200,
      fault: ({ watch }) => (watch ? { kind: "hang" } : { kind: "pass" }),
    },
  };

  describe("while the server is unwell", () => {
    for (const [name, { requests, silenceMs, fault }] of Object.entries(LASTING)) {
      it(`${name}: asks at most twice a second, and is right again within a minute`, async () => {
        const namespace = await fresh();
        await using seen = await Reflected.start(kube, namespace, silenceMs === undefined ? {} : { silenceMs });
        await seen.create("kept");
        await seen.create("doomed");
        await seen.until("both are there", () => seen.has("kept") && seen.has("doomed"));
        const from = seen.requests.length;
        seen.fault = fault;
        seen.proxy.resetStreams();
        await seen.remove("doomed");
        await seen.create("late");
        await seen.until(`${requests} requests were made`, () => seen.requests.length - from >= requests);
        seen.assertPace(seen.requests.slice(from, from + requests));
        seen.fault = () => ({ kind: "pass" });
        // A watch that hangs has to be given up first.
        const healed = seen.clock.monotonic();
        await seen.until("it is right again", () => seen.has("late") && !seen.has("doomed") && seen.has("kept"));
        assert.ok(seen.clock.monotonic() - healed < 60_000, `took ${seen.clock.monotonic() - healed} ms`);
        assert.ok(seen.failures.length > 0);
      });
    }
  });

  /** What spoils one watch. */
  const SPOILED: Readonly<Record<string, { reason: string; spoil: (seen: Reflected) => void; silenceMs?: number }>> = {
    "an ERROR event 500 in the stream": {
      reason: "InternalError",
      spoil: ({ proxy }) =>
        proxy.inject(JSON.stringify({ type: "ERROR", object: { kind: "Status", code: 500, reason: "InternalError" } })),
    },
    "an ERROR event 410 in the stream": {
      reason: "Expired",
      spoil: ({ proxy }) =>
        proxy.inject(JSON.stringify({ type: "ERROR", object: { kind: "Status", code: 410, reason: "Expired" } })),
    },
    "a line that is not JSON": {
      reason: "WatchGarbled",
      spoil: ({ proxy }) => proxy.inject("<html>Bad Gateway</html>"),
    },
    "a line that is no event": { reason: "WatchGarbled", spoil: ({ proxy }) => proxy.inject('{"type":"ADDED"}') },
    "a null": { reason: "WatchGarbled", spoil: ({ proxy }) => proxy.inject("null") },
    "a cut connection": { reason: "Unreachable", spoil: ({ proxy }) => proxy.resetStreams() },
    "half a line and an end": {
      reason: "WatchCutShort",
      spoil: ({ proxy }) => proxy.cutStreams('{"type":"ADDED","obj'),
    },
    "silence on an open connection": {
      reason: "WatchSilent",
      silenceMs: 300,
      spoil: ({ proxy }) => proxy.silenceStreams(),
    },
  };

  it("does not list again because watches are refused for a while, as they are after a start", async () => {
    await using seen = await Reflected.start(kube, await fresh());
    const from = seen.requests.length;
    seen.fault = ({ watch }) => (watch ? { kind: "status", code: 429, retryAfter: 1 } : { kind: "pass" });
    // Ends the watch without a doubt.
    seen.proxy.endStreams();
    await seen.until("eight watches were refused", () => seen.requests.length - from >= 8);
    seen.fault = () => ({ kind: "pass" });
    await seen.create("late");
    await seen.until("it is there", () => seen.has("late"));
    assert.equal(seen.lists.length, 1);
  });

  describe("after a watch was spoiled", () => {
    for (const [name, { reason, spoil, silenceMs }] of Object.entries(SPOILED)) {
      it(`by ${name}, knows what happened meanwhile`, async () => {
        await using seen = await Reflected.start(kube, await fresh(), silenceMs === undefined ? {} : { silenceMs });
        await seen.create("doomed");
        await seen.until("it is there", () => seen.has("doomed"));
        spoil(seen);
        await seen.create("late");
        await seen.remove("doomed");
        await seen.until("it is right again", () => seen.has("late") && !seen.has("doomed"));
        await seen.until("the failure was named", () => seen.failures.some((error) => error.reason === reason));
        // A clean end in mid-line loses nothing: the watch goes on from where it was. All else is a doubt.
        assert.equal(
          seen.lists.some((list) => list.reason === "doubt"),
          reason !== "WatchCutShort",
        );
      });
    }
  });

  describe("the periodic list", () => {
    it("finds a deletion that the watch did not deliver, and counts it (C43)", async () => {
      await using seen = await Reflected.start(kube, await fresh());
      seen.proxy.filter = ({ type }) => type !== "DELETED";
      await seen.create("dropped");
      await seen.until("it is there", () => seen.has("dropped"));
      await seen.remove("dropped");
      // A later event shows that the deletion will not come any more.
      await seen.create("after");
      await seen.until("the later one is there", () => seen.has("after"));
      assert.ok(seen.has("dropped"));
      seen.clock.fire();
      await seen.until("it is gone", () => !seen.has("dropped"));
      assert.deepEqual(seen.lists.at(-1)?.reason, "periodic");
      assert.equal(seen.lists.at(-1)?.missed, 1);
      assert.deepEqual(seen.changes.at(-1)?.object, undefined);
    });

    it("finds a creation that the watch did not deliver, and counts it", async () => {
      await using seen = await Reflected.start(kube, await fresh());
      seen.proxy.filter = ({ object }) => object.metadata?.name !== "hidden";
      await seen.create("hidden");
      await seen.create("after");
      await seen.until("the later one is there", () => seen.has("after"));
      seen.clock.fire();
      await seen.until("it is there", () => seen.has("hidden"));
      assert.equal(seen.lists.at(-1)?.missed, 1);
    });

    it("reports nothing when nothing was missed, and goes on watching", async () => {
      await using seen = await Reflected.start(kube, await fresh());
      await seen.create("one");
      await seen.until("it is there", () => seen.has("one"));
      const changes = seen.changes.length;
      const watching = seen.proxy.next(({ watch }) => watch);
      seen.clock.fire();
      await watching;
      assert.deepEqual(
        [seen.lists.at(-1)?.reason, seen.lists.at(-1)?.missed, seen.changes.length],
        ["periodic", 0, changes],
      );
      await seen.create("two");
      await seen.until("the next is there", () => seen.has("two"));
      assert.deepEqual(seen.failures, []);
    });
  });

  describe("a cluster that was restored", () => {
    it("answers a resourceVersion of the future with silence, which is noticed", async () => {
      await using seen = await Reflected.start(kube, await fresh(), { silenceMs: 500 });
      seen.proxy.inject(JSON.stringify({ type: "BOOKMARK", object: { metadata: { resourceVersion: "99999999999" } } }));
      const next = seen.proxy.next(({ watch }) => watch);
      seen.proxy.endStreams();
      await next;
      await seen.create("afterwards");
      await seen.until("it is right again", () => seen.has("afterwards"));
      assert.ok(seen.failures.some(({ reason }) => reason === "WatchSilent"));
    });
  });

  describe("stopping", () => {
    it("closes the watch and leaves no timer", async () => {
      const seen = await Reflected.start(kube, await fresh());
      await using _ = seen;
      await seen.stop();
      await seen.proxy.drained();
      assert.equal(seen.clock.waiting, 0);
      const requests = seen.requests.length;
      await seen.create("nobody-looks");
      assert.deepEqual([seen.has("nobody-looks"), seen.requests.length], [false, requests]);
    });

    it("ends a list that never answers, and tells who waits for it", async () => {
      const { proxy, client } = await kube.throughProxy();
      try {
        proxy.fault = () => ({ kind: "hang" });
        const stop = new AbortController();
        const clock = new SkippingClock(1_000);
        const reflector = new Reflector({ client, resource: CONFIG_MAPS, clock, random: () => 0, onChange: () => {} });
        const asked = proxy.next();
        const running = reflector.run(stop.signal);
        await asked;
        stop.abort();
        await running;
        await assert.rejects(reflector.synced, (error: unknown) => isPawlError(error, "cancelled"));
        assert.equal(proxy.requests.length, 1);
      } finally {
        await client.close();
        await proxy.close();
      }
    });
  });

  describe("an API server that is killed", () => {
    it("is found again, with what was written after its return", async () => {
      await using seen = await Reflected.start(kube, await fresh());
      await kube.plane.kill9();
      await seen.until("it is missed", () => seen.failures.length > 0);
      await kube.restart();
      await seen.create("afterwards");
      await seen.until("it is right again", () => seen.has("afterwards"));
    });
  });
});
