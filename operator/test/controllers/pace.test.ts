import assert from "node:assert/strict";
import type { KubeObject } from "#kube/resources.ts";
import { OwnWrites } from "#controllers/context.ts";
import { Outage } from "#controllers/outage.ts";
import { announcements } from "#controllers/run/announce.ts";
import { RunIndex } from "#controllers/run/by-key.ts";
import { project } from "#controllers/run/project.ts";
import { isCredible } from "#controllers/absence.ts";
import { runsTouchedBy } from "#controllers/run/waiting.ts";
import { changeOf, Pace } from "#controllers/status.ts";
import { ManualClock, settled } from "../kube/support/clock.ts";
import { aMirror, agentObject, at, ended, pending, replied, runObject, shown, working } from "./support.ts";

const statusOf = (mirror: ReturnType<typeof aMirror>) => project(shown(mirror)).status;

describe("a status is written", () => {
  it("at once when its phase, a condition or its generation changes", () => {
    assert.equal(changeOf(undefined, statusOf(aMirror())), "at once");
    assert.equal(changeOf(statusOf(aMirror()), statusOf(working())), "at once");
    assert.equal(changeOf(statusOf(working()), statusOf(working({ committed_at: at(-1), version: 3 }))), "at once");
    const stamped = project(shown(working(), { generation: 2 })).status;
    assert.equal(changeOf(statusOf(working()), stamped), "at once");
  });

  it("later when only numbers and words change", () => {
    assert.equal(changeOf(statusOf(working()), statusOf(working({ steps: 4, version: 5 }))), "quiet");
  });

  it("never when there is nothing new to show but a version", () => {
    assert.equal(changeOf(statusOf(working()), statusOf(working({ version: 5 }))), "none");
  });

  it("at most every five seconds for what may wait", async () => {
    const clock = new ManualClock();
    const pace = new Pace(clock, 5_000);
    assert.equal(pace.wait("a", "quiet"), 0);
    pace.wrote("a");
    assert.equal(pace.wait("a", "quiet"), 5_000);
    assert.equal(pace.wait("a", "at once"), 0);
    assert.equal(pace.wait("b", "quiet"), 0);
    await clock.advance(3_000);
    assert.equal(pace.wait("a", "quiet"), 2_000);
    await clock.advance(2_000);
    assert.equal(pace.wait("a", "quiet"), 0);
    assert.equal(pace.wait("a", "none"), undefined);
  });
});

describe("an object that we wrote", () => {
  const version = (resourceVersion: string, uid = "u"): KubeObject => ({
    metadata: { name: "a", uid, resourceVersion },
  });

  it("is used until the copy has caught up", () => {
    const own = new OwnWrites();
    own.remember("a", version("10"));
    assert.equal(own.pick("a", version("9"))?.metadata.resourceVersion, "10");
    assert.equal(own.pick("a", version("11"))?.metadata.resourceVersion, "11");
    assert.equal(own.pick("a", version("9"))?.metadata.resourceVersion, "9", "forgotten once it was reached");
  });

  it("does not stand in for one that was deleted or made again", () => {
    const own = new OwnWrites();
    own.remember("a", version("10"));
    assert.equal(own.pick("a", undefined), undefined);
    own.remember("a", version("10"));
    assert.equal(own.pick("a", version("9", "other"))?.metadata.uid, "other");
  });
});

describe("Events", () => {
  const told = (before: ReturnType<typeof aMirror> | undefined, after: ReturnType<typeof aMirror>) =>
    announcements(before === undefined ? undefined : statusOf(before), statusOf(after)).map(({ reason }) => reason);

  it("tell each step once", () => {
    const crossed = { committed_at: at(-1), committed_kind: "tool.effect", committed_tool: "http_request" };
    assert.deepEqual(told(undefined, aMirror()), []);
    assert.deepEqual(told(aMirror(), working()), ["TurnStarted"]);
    assert.deepEqual(told(working(), working(crossed)), ["EffectCommitted"]);
    assert.deepEqual(told(working(crossed), working({ ...crossed, effects_unknown: 1 })), ["EffectUnknown"]);
    assert.deepEqual(told(working(), replied("Done.")), ["Finished"]);
    assert.deepEqual(told(replied("Done."), replied("Done.")), []);
  });

  it("warn about an end that is no answer", () => {
    const [event] = announcements(statusOf(working()), statusOf(ended("failed", { reason: "ModelUnauthorized" })));
    assert.equal(event?.type, "Warning");
    assert.match(event?.note ?? "", /^ModelUnauthorized: /);
  });
});

describe("an absence", () => {
  it("is believed of a few, or of a small share of many", () => {
    assert.equal(isCredible(10, 10), true);
    assert.equal(isCredible(11, 20), false);
    assert.equal(isCredible(11, 55), true);
    assert.equal(isCredible(12, 55), false);
  });
});

describe("a change of an Agent", () => {
  const runs = [
    runObject({}, { name: "waits" }),
    runObject({}, { name: "ended" }, statusOf(replied("Done."))),
    runObject({ agentRef: { name: "other" } }, { name: "other" }),
    runObject({}, { name: "elsewhere", namespace: "elsewhere" }),
  ];
  const touched = (object: KubeObject | undefined, previous: KubeObject | undefined) => [
    ...runsTouchedBy(runs, { key: "demo/helper", object, previous }),
  ];

  it("wakes its own Runs that have not finished", () => {
    assert.deepEqual(touched(agentObject(), undefined), ["demo/waits"]);
    assert.deepEqual(touched(undefined, agentObject()), ["demo/waits"]);
    assert.deepEqual(touched(agentObject({ suspend: true }), agentObject()), ["demo/waits"]);
  });

  it("wakes nobody when only its counters moved", () => {
    const counting = { ...agentObject(), status: { active: 3, queued: 9 } };
    assert.deepEqual(touched(counting, { ...agentObject(), status: { active: 2, queued: 9 } }), []);
  });
});

describe("the index of keys", () => {
  it("finds every Run that shows a key, and forgets those that are gone", () => {
    const index = new RunIndex();
    const [one, two] = ["one", "two"].map((name) => runObject({ idempotencyKey: "k" }, { name }));
    assert.ok(one !== undefined && two !== undefined);
    index.add(one);
    index.add(two);
    assert.deepEqual([...index.showing("demo", "k")], ["demo/one", "demo/two"]);
    index.remove(one);
    assert.deepEqual([...index.showing("demo", "k")], ["demo/two"]);
    index.remove(two);
    assert.deepEqual([...index.showing("demo", "k")], []);
  });
});

describe("an outage", () => {
  it("is said once, waited for longer and longer, and said to be over", async () => {
    const lines: string[] = [];
    const say = (level: string) => (_fields: unknown, message: string) => void lines.push(`${level} ${message}`);
    const clock = new ManualClock();
    const log = { info: say("info"), warn: say("warn"), error: say("error") };
    const outage = new Outage(log, clock, () => 1);
    const { signal } = new AbortController();
    const waits: number[] = [];
    for (let n = 0; n < 8; n += 1) {
      const waiting = outage.wait(new Error("away"), signal);
      waits.push(clock.sleeping[0] ?? 0);
      await clock.advance(20_000);
      await waiting;
    }
    await settled();
    assert.deepEqual(waits, [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000]);
    outage.over();
    outage.over();
    assert.deepEqual(lines, ["warn something is away; trying again", "info it is back"]);
  });
});

describe("a message that waits", () => {
  it("says how many stand before it", () => {
    assert.equal(statusOf(pending({ position: 3 })).queuePosition, 3);
    assert.equal(statusOf(working()).queuePosition, undefined);
  });
});
