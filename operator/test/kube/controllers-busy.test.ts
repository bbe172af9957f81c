/** Runs that are applied while their conversation is at work, on a real API server; the test says what each one means. */
import assert from "node:assert/strict";
import { EVENTS } from "#kube/resources.ts";
import { type Relation } from "#rules/interrupt.ts";
import { aPolicy, decideAs } from "../support/steering.ts";
import { conditionOf, Controlled, isFinished, tap } from "./support/controlled.ts";
import { eventually } from "./support/cluster.ts";

describe("Runs that meet a conversation at work, on a real API server", function () {
  this.timeout(60_000);
  let world: Controlled;
  beforeEach(async () => {
    world = await Controlled.make();
  });
  afterEach(() => world.close());

  const interrupt = { whoInterrupts: "SameActorOnly", midTurn: "Preempt", afterCommit: "Reconcile" };
  const policy = aPolicy({ midTurn: "preempt", afterCommit: "reconcile", quietMs: 0 });
  const fast = { baseURL: "http://model.test/v1", model: "small" };

  /** A turn at work that Run one opened. */
  async function busy(): Promise<{ runId: string; token: number }> {
    await world.agent("helper", { interrupt, models: { primary: fast, fast } });
    await world.run("one", { conversation: "talk" });
    const run = await world.claim();
    await world.shows("one", "at work", (s) => s.phase === "Running");
    return run;
  }

  /** Somebody applies a Run, and it means this. */
  async function meets(name: string, relation: Relation): Promise<string> {
    await world.run(name, { conversation: "talk" });
    await world.shows(name, "undecided", (s) => s.reason === "AskingModel");
    const { rows } = await world.sql(
      `select e.id, e.conversation_id from message_events e join run_keys k on k.event_id = e.id where k.object_name = '${name}'`,
    );
    const [row] = rows as { id: string; conversation_id: string }[];
    const waits = { eventId: row?.id ?? "", conversationId: row?.conversation_id ?? "", seq: 0 };
    return (await decideAs(world.db, waits, relation, policy)).kind;
  }

  const eventsOf = (name: string, wanted: string) =>
    eventually(`${wanted} of ${name}`, async () => {
      const all = await world.cluster.admin.list(EVENTS, { namespace: world.namespace });
      const own = all.filter((event) => (event["regarding"] as { name?: string }).name === name);
      const reasons = own.map((event) => String(event["reason"])).toSorted();
      return reasons.includes(wanted) ? { reasons, notes: own.map((event) => String(event["note"])) } : undefined;
    });

  it("restart its turn: one answer for both, in at most ten writes for each, Events included", async () => {
    const { kube, writes } = tap(world.cluster.admin);
    await world.start({ kube });
    await busy();
    assert.equal(await meets("two", "refines"), "preempted");
    const restarted = await world.shows("one", "restarted", (s) => s.supersededBy === "two");
    assert.equal(restarted.phase, "Queued");
    const folded = await world.shows("two", "folded", (s) => s.phase === "Folded");
    assert.deepEqual(
      [folded.reason, folded.answeredBy?.name, folded.interrupts?.last?.done],
      ["Restarted", "one", "preempted"],
    );
    await world.answer(await world.claim(), "To both.");
    const [one, two] = [
      await world.shows("one", "answered", isFinished),
      await world.shows("two", "answered", isFinished),
    ];
    assert.deepEqual([one.phase, two.phase, one.runID === two.runID], ["Succeeded", "Succeeded", true]);
    assert.equal(conditionOf(two, "Succeeded")?.status, "True");
    assert.deepEqual((await eventsOf("one", "Finished")).reasons, ["Finished", "Superseded", "TurnStarted"]);
    assert.deepEqual((await eventsOf("two", "Finished")).reasons, ["Finished", "TurnRestarted"]);
    await world.stopAll();
    for (const name of ["one", "two"]) {
      const own = writes.filter((write) => write.name === name || write.name.startsWith(`${name}.`));
      assert.ok(own.length >= 4 && own.length <= 10, `${name}: ${JSON.stringify(own)}`);
    }
    assert.deepEqual(await world.broken(), []);
  });

  it("come too late: told so once, and answered in the next turn", async () => {
    await world.start();
    const run = await busy();
    await world.effect(run);
    await world.shows("one", "committed", (s) => s.boundary?.restartable === "No");
    assert.equal(await meets("late", "refines"), "reconcile");
    const late = await world.shows("late", "waits", (s) => s.reason === "Committed");
    assert.deepEqual([late.phase, late.interrupts?.last?.done], ["Queued", "reconcile"]);
    const { notes } = await eventsOf("late", "InterruptDowngraded");
    assert.match(notes.join("\n"), /Too late to restart: https:\S+ was changed already\. I put it right next/);
    await world.answer(run, "Done.", 2);
    await world.shows("one", "answered", isFinished);
    await world.answer(await world.claim(), "Put right.");
    const done = await world.shows("late", "answered", isFinished);
    assert.deepEqual([done.answeredBy, done.answer?.preview], [undefined, "Put right."]);
  });

  it("stop its turn, and have done what they asked for", async () => {
    await world.start();
    await busy();
    assert.equal(await meets("enough", "cancels"), "cancelled");
    const stop = await world.shows("enough", "done", isFinished);
    assert.deepEqual([stop.phase, stop.reason, stop.answeredBy?.name], ["Succeeded", "Stopped", "one"]);
    const one = await world.shows("one", "cancelled", isFinished);
    assert.equal(one.phase, "Cancelled");
    const { text } = await world.cluster.kubectl(["-n", world.namespace, "get", "runs.pawl.dev"]);
    assert.match(text, /RESTARTABLE/);
    assert.match(text, /enough +Succeeded/);
  });
});
