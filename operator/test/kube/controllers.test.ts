import assert from "node:assert/strict";
import { checkRun } from "@pawl/crds";
import { MAX_PREVIEW_BYTES, statusBytes } from "#controllers/run/fit.ts";
import { AGENTS, EVENTS, RUNS } from "#kube/resources.ts";
import { conditionOf, Controlled, isFinished, tap } from "./support/controlled.ts";
import { eventually } from "./support/cluster.ts";

describe("controllers on a real API server", function () {
  this.timeout(60_000);
  let world: Controlled;
  beforeEach(async () => {
    world = await Controlled.make();
  });
  afterEach(() => world.close());

  it("answer a Run that was applied before its Agent", async () => {
    await world.start();
    await world.run("one");
    const waiting = await world.shows("one", "waits for its Agent", (s) => s.reason === "AgentNotFound");
    assert.equal(conditionOf(waiting, "Accepted")?.status, "Unknown");
    assert.match(waiting.message ?? "", /no Agent helper.*apply it/);
    assert.equal(await world.messages(), 0);

    await world.agent("helper");
    await world.shows("one", "accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
    const run = await world.claim();
    await world.shows("one", "at work", (s) => s.phase === "Running");
    await world.answer(run, "The tooth of a ratchet.");
    const done = await world.shows("one", "answered", isFinished);
    assert.equal(done.phase, "Succeeded");
    assert.equal(conditionOf(done, "Succeeded")?.status, "True");
    assert.equal(done.answer?.preview, "The tooth of a ratchet.");
    assert.equal(done.actor, "admin");
    assert.equal(done.runID, run.runId);
    assert.match(done.message ?? "", /kubectl exec deploy\/pawl-worker -- pawl transcript one -n /);
    assert.equal(await world.messages(), 1);
    assert.deepEqual(await world.broken(), []);
  });

  it("become ready when a worker has found the references, without anybody touching the Agent", async () => {
    await world.start();
    await world.agent("helper");
    await world.agentShows("helper", "ResolvedRefs", "Unknown", "Unchecked");
    await world.refsFound("SecretMissing", "there is no Secret model-key");
    const missing = await world.agentShows("helper", "Ready", "False", "RefsNotResolved");
    assert.match(missing.condition.message, /SecretMissing: there is no Secret model-key/);
    await world.refsFound();
    const { object } = await world.agentShows("helper", "Ready", "True", "Ready");
    const status = object["status"] as Record<string, unknown>;
    assert.equal(status["model"], "small");
    assert.match(String(status["installation"]), /^[0-9a-f-]{36}$/);
    assert.equal(status["generationInUse"], object.metadata.generation);
  });

  it("let a suspended Agent's Runs wait and go on", async () => {
    await world.start();
    await world.agent("helper", { suspend: true });
    await world.agentShows("helper", "Ready", "False", "Suspended");
    await world.run("one");
    await world.shows("one", "waits", (s) => s.reason === "AgentNotReady");
    assert.equal(await world.messages(), 0);
    await world.agent("helper");
    await world.shows("one", "accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
  });

  it("use at most ten writes for a Run, Events included", async () => {
    const { kube, writes } = tap(world.cluster.admin);
    await world.start({ kube });
    await world.agent("helper");
    await world.agentShows("helper", "Accepted", "True");
    await world.run("one");
    await world.shows("one", "accepted", (s) => s.phase === "Queued" && conditionOf(s, "Accepted")?.status === "True");
    const run = await world.claim();
    await world.shows("one", "at work", (s) => s.phase === "Running");
    await world.effect(run);
    await world.shows("one", "committed", (s) => s.boundary?.restartable === "No");
    await world.answer(run, "x".repeat(50_000), 2);
    const done = await world.shows("one", "answered", isFinished);
    await world.stopAll();
    const own = writes.filter(({ plural, name }) => plural === "runs" || name.startsWith("one."));
    assert.ok(own.length >= 4 && own.length <= 10, JSON.stringify(own));
    assert.equal(done.answer?.bytes, 50_000);
    assert.ok(Buffer.byteLength(done.answer?.preview ?? "") <= MAX_PREVIEW_BYTES);
    assert.ok(statusBytes(done) <= 4_096);
    const object = await world.get("one");
    assert.ok(Buffer.byteLength(JSON.stringify(object)) <= 24 * 1024);
  });

  it("write Events that a person would want to see", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one");
    const run = await world.claim();
    await world.shows("one", "at work", (s) => s.phase === "Running");
    await world.effect(run);
    await world.shows("one", "committed", (s) => s.boundary?.restartable === "No");
    await world.answer(run, "Done.", 2);
    await world.shows("one", "answered", isFinished);
    const reasons = await eventually("three events", async () => {
      const events = await world.cluster.admin.list(EVENTS, { namespace: world.namespace });
      const found = events
        .filter((event) => (event["regarding"] as { name?: string }).name === "one")
        .map((event) => String(event["reason"]));
      return found.length >= 3 ? found.toSorted() : undefined;
    });
    assert.deepEqual(reasons, ["EffectCommitted", "Finished", "TurnStarted"]);
    const { text } = await world.cluster.kubectl(["-n", world.namespace, "describe", "run/one"]);
    assert.match(text, /EffectCommitted[\s\S]*http_request crossed in step 1/);
  });

  it("let kubectl wait return", async () => {
    await world.start();
    await world.agent("helper");
    const run = world.cluster.kubectl(["-n", world.namespace, "create", "-f", "-"], {
      apiVersion: "pawl.dev/v1alpha1",
      kind: "Run",
      metadata: { name: "one" },
      spec: { agentRef: { name: "helper" }, input: { text: "hello" } },
    });
    assert.equal((await run).code, 0, (await run).text);
    const waiting = world.cluster.kubectl([
      "-n",
      world.namespace,
      "wait",
      "--for=condition=Finished",
      "run/one",
      "--timeout=30s",
    ]);
    await world.answer(await world.claim(), "Hello.");
    assert.equal((await waiting).code, 0, (await waiting).text);
    // A finished object whose generation moves is stamped again, or the next wait would hang.
    await world.cluster.admin.merge(
      RUNS,
      { namespace: world.namespace, name: "one" },
      { spec: { cancel: { actor: "admin" } } },
    );
    const again = await world.cluster.kubectl([
      "-n",
      world.namespace,
      "wait",
      "--for=condition=Succeeded",
      "run/one",
      "--timeout=10s",
    ]);
    assert.equal(again.code, 0, again.text);
    const restamped = await world.shows("one", "stamped again", (s) => s.observedGeneration === 2);
    assert.ok(restamped.conditions?.every((condition) => condition.observedGeneration === 2));
    assert.equal(restamped.phase, "Succeeded", "a cancel after the answer changes nothing");
  });

  it("say of an invalid Agent what to set", async () => {
    await world.start({ config: { defaults: {} } });
    await world.agent("helper");
    const asks = await world.agentShows("helper", "Accepted", "False", "InterruptPolicyMissing");
    assert.match(asks.condition.message, /spec\.interrupt\.whoInterrupts/);
    await world.run("one");
    await world.shows("one", "waits", (s) => s.reason === "AgentNotAccepted");
    await world.agent("helper", { interrupt: { whoInterrupts: "ThreadScoped" } });
    const { condition } = await world.agentShows("helper", "ResolvedRefs", "False", "ModelMissing");
    assert.match(condition.message, /spec\.models\.primary/);
    await world.shows("one", "still waits", (s) => s.reason === "AgentNotReady");
    assert.equal(await world.messages(), 0);
    await world.agent("helper", {
      interrupt: { whoInterrupts: "ThreadScoped" },
      models: { primary: { baseURL: "http://model.test/v1", model: "own" } },
    });
    await world.shows("one", "accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
  });

  it("refuse an Agent in a namespace that is not served, and let its Runs wait", async () => {
    await world.start({ config: { agentNamespaces: ["elsewhere"] } });
    await world.agent("helper");
    await world.run("one");
    await world.agentShows("helper", "Accepted", "False", "NamespaceNotEnabled");
    await world.shows("one", "waits", (s) => s.reason === "NamespaceNotEnabled");
    assert.equal(await world.messages(), 0);
  });

  it("cancel a Run in the name of whoever asks", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one");
    const run = await world.claim();
    await world.cluster.admin.merge(
      RUNS,
      { namespace: world.namespace, name: "one" },
      { spec: { cancel: { actor: "admin", reason: "changed my mind" } } },
    );
    const done = await world.shows("one", "cancelled", isFinished);
    assert.equal(done.phase, "Cancelled");
    assert.equal(conditionOf(done, "Succeeded")?.status, "False");
    const { rows } = await world.sql(
      "select e.ext_id, a.ext_id as actor, e.body from message_events e join actors a on a.id = e.actor_id where e.kind = 'stop'",
    );
    const uid = (await world.get("one"))?.metadata.uid;
    assert.deepEqual(rows, [{ ext_id: `cancel:${uid}`, actor: "admin", body: "changed my mind" }]);
    assert.equal((await world.sql(`select live from runs where id = '${run.runId}'`)).rows[0].live, false);
  });

  it("tell a turn that has changed something to stop, once, and show that", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one");
    const run = await world.claim();
    await world.effect(run);
    await world.shows("one", "committed", (s) => s.boundary?.restartable === "No");
    await world.cluster.admin.merge(
      RUNS,
      { namespace: world.namespace, name: "one" },
      { spec: { cancel: { actor: "admin" } } },
    );
    await world.shows("one", "stopping", (s) => s.reason === "Stopping");
    await world.answer(run, "I had already written it.", 2);
    await world.shows("one", "ended", isFinished);
    const { rows } = await world.sql("select done from interrupts");
    assert.deepEqual(rows, [{ done: "stopping" }]);
  });

  it("withdraw a deleted Run's message, and do nothing about one that was none yet", async () => {
    await world.start();
    await world.run("early");
    await world.shows("early", "waits", (s) => s.reason === "AgentNotFound");
    await world.deleteRun("early");
    await world.agent("helper");
    await world.run("one");
    await world.claim();
    await world.shows("one", "at work", (s) => s.phase === "Running");
    await world.deleteRun("one");
    const status = await eventually("the turn's end", async () => {
      const { rows } = await world.sql("select status from runs");
      return rows.length === 1 && rows[0].status === "cancelled" ? "cancelled" : undefined;
    });
    assert.equal(status, "cancelled");
    assert.equal(await world.messages(), 1, "the early one never became a message");
    assert.deepEqual(await world.broken(), []);
  });

  it("make the Runs of a conversation messages in the order in which they were made", async () => {
    await world.start();
    // Names that no alphabet puts in this order, most of them within one second, and all before their Agent.
    const names = ["m", "z", "a", "q", "b", "y", "c", "x"];
    for (const name of names) await world.run(name, { conversation: "talk" });
    await world.shows("x", "waits for its Agent", (s) => s.reason === "AgentNotFound");
    await world.agent("helper");
    for (const name of names) await world.shows(name, "a message", (s) => s.ledger !== undefined);
    const { rows } = await world.db.pool.query<{ name: string }>(
      "select k.object_name as name from message_events e join run_keys k on k.event_id = e.id order by e.seq",
    );
    assert.deepEqual(
      rows.map((row) => row.name),
      names,
    );
  });

  it("end the turns of a deleted Agent, also those that wait, and let it come back", async () => {
    await world.start();
    await world.agent("helper");
    await world.agentShows("helper", "Accepted", "True");
    await world.run("one", { conversation: "talk" });
    await world.claim();
    await world.run("two", { conversation: "talk" });
    await world.shows("two", "queued behind it", (s) => s.queuePosition === 1);
    await world.cluster.admin.delete(AGENTS, { namespace: world.namespace, name: "helper" }, {});
    const one = await world.shows("one", "ended", isFinished);
    const two = await world.shows("two", "ended", isFinished);
    assert.deepEqual([one.phase, two.phase], ["Cancelled", "Cancelled"]);
    assert.equal((await world.sql("select suspended from agents")).rows[0].suspended, true);
    await world.agent("helper");
    await world.run("three");
    await world.shows("three", "accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
    assert.deepEqual(await world.broken(), []);
  });

  it("fold a message into the turn that answers it, and give it that turn's verdict", async () => {
    await world.start();
    await world.agent("helper");
    await world.agentShows("helper", "Accepted", "True");
    await world.run("one", { conversation: "talk" });
    await world.shows("one", "queued", (s) => s.phase === "Queued" && s.runID !== undefined);
    await world.run("two", { conversation: "talk" });
    const folded = await world.shows("two", "folded", (s) => s.phase === "Folded");
    assert.equal(folded.answeredBy?.name, "one");
    assert.equal(conditionOf(folded, "Finished")?.status, "False");
    await world.answer(await world.claim(), "To both of you.");
    const done = await world.shows("two", "answered", isFinished);
    assert.equal(done.phase, "Succeeded");
    assert.equal(done.answeredBy?.name, "one");
    assert.equal(done.answer?.preview, "To both of you.");
  });

  it("delete a finished Run only where its spec asks for it", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("stays");
    await world.answer(await world.claim(), "a");
    await world.run("goes", { ttlSecondsAfterFinished: 1 });
    await world.answer(await world.claim(), "b");
    await eventually("the end of its time", async () => ((await world.get("goes")) === undefined ? true : undefined));
    assert.notEqual(await world.get("stays"), undefined);
    const { rows } = await world.sql("select count(*)::int as n from message_events where kind = 'stop'");
    assert.equal(rows[0].n, 0, "an expired Run withdraws nothing");
  });

  it("write statuses that the schema itself accepts", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one");
    await world.answer(await world.claim(), "a");
    await world.shows("one", "answered", isFinished);
    const checked = checkRun(await world.get("one"));
    assert.equal(checked.ok, true, JSON.stringify(checked));
  });
});
