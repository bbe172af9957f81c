import assert from "node:assert/strict";
import { type EventNote, EventRecorder } from "#kube/events.ts";
import { EVENTS, type KubeObject, RUNS } from "#kube/resources.ts";
import { ManualClock } from "./support/clock.ts";
import { type Cluster, cluster, makeNamespace } from "./support/cluster.ts";

const NAMESPACE = "events";

describe("events", function () {
  this.timeout(120_000);
  let kube: Cluster;
  let run: KubeObject;

  before(async () => {
    kube = await cluster();
    await makeNamespace(NAMESPACE);
    run = await kube.admin.create(RUNS, {
      metadata: { namespace: NAMESPACE, name: "one" },
      spec: { agentRef: { name: "helper" }, input: { text: "x", actor: "admin" } },
    });
  });

  const note = (text: string, reason = "TurnStarted"): EventNote => ({
    about: { resource: RUNS, object: run },
    type: "Normal",
    reason,
    action: "Start",
    note: text,
  });

  /** A recorder behind a proxy that can fail. */
  const setUp = async () => {
    const { proxy, client } = await kube.throughProxy();
    const clock = new ManualClock();
    const dropped: string[] = [];
    const recorder = new EventRecorder({
      client,
      clock,
      controller: "pawl.dev/controller",
      instance: "test",
      dropped: (why) => dropped.push(why),
    });
    return {
      proxy,
      clock,
      dropped,
      recorder,
      [Symbol.asyncDispose]: async () => {
        await recorder.stop();
        await client.close();
        await proxy.close();
      },
    };
  };

  it("are shown by kubectl describe", async () => {
    await using made = await setUp();
    made.recorder.record(note("A worker has begun."));
    await made.recorder.flush();
    const said = await kube.kubectl(["describe", "run", "one", "-n", NAMESPACE]);
    assert.match(said.text, /Normal\s+TurnStarted\s+\S+\s+pawl\.dev\/controller.*A worker has begun\./);
  });

  it("longer than the API takes are cut between characters", async () => {
    await using made = await setUp();
    made.recorder.record(note("ä🐾".repeat(400), "Long"));
    await made.recorder.flush();
    assert.deepEqual(made.dropped, []);
    const found = (await kube.admin.list(EVENTS, { namespace: NAMESPACE })).find((event) => event["reason"] === "Long");
    const text = typeof found?.["note"] === "string" ? found["note"] : "";
    assert.ok(Buffer.byteLength(text) <= 1_024 && Buffer.byteLength(text) > 1_010);
    assert.match(text, /^(ä🐾)+ä?…$/u);
  });

  it("say the same thing about the same object once in five minutes", async () => {
    await using made = await setUp();
    assert.deepEqual(
      [1, 2, 3].map(() => made.recorder.record(note("again", "Repeated"))),
      [true, false, false],
    );
    await made.clock.advance(299_999);
    assert.equal(made.recorder.record(note("again", "Repeated")), false);
    await made.clock.advance(1);
    assert.equal(made.recorder.record(note("again", "Repeated")), true);
    assert.deepEqual(made.dropped, ["repeat", "repeat", "repeat"]);
  });

  it("are capped in rate: fifty at once, then five a second", async () => {
    await using made = await setUp();
    made.proxy.fault = () => ({ kind: "status", code: 201, body: { metadata: { name: "x" } } });
    const burst = async (count: number, tag: string): Promise<number> => {
      const taken = Array.from({ length: count }, (_, i) => made.recorder.record(note(`${tag} ${i}`))).filter(
        Boolean,
      ).length;
      await made.recorder.flush();
      return taken;
    };
    assert.equal(await burst(80, "first"), 50);
    await made.clock.advance(2_000);
    assert.equal(await burst(80, "second"), 10);
    assert.equal(made.proxy.requests.length, 60);
  });

  it("that cannot be written fail nobody", async () => {
    await using made = await setUp();
    for (const fault of [{ kind: "status", code: 403 }, { kind: "status", code: 500 }, { kind: "reset" }] as const) {
      made.proxy.fault = () => fault;
      assert.equal(made.recorder.record(note(`through ${JSON.stringify(fault)}`)), true);
      await made.recorder.flush();
    }
    assert.deepEqual(made.dropped, ["failed", "failed", "failed"]);
  });

  it("under way are cut when the process stops, and none is taken after it", async () => {
    await using made = await setUp();
    made.proxy.fault = () => ({ kind: "hang" });
    const asked = made.proxy.next();
    made.recorder.record(note("never answered"));
    await asked;
    await made.recorder.stop();
    assert.equal(made.recorder.record(note("too late")), false);
    assert.deepEqual(made.dropped, ["failed"]);
  });
});
