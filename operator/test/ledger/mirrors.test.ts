/** What Runs show that meet a conversation at work, and what is told of it, on the rows that the product itself wrote. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { whyOf } from "#cli/why.ts";
import { settleEffect } from "#ledger/effects.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { listChangedMirrors, readDatabaseTime, readMirror } from "#ledger/mirrors.ts";
import { readStory } from "#ledger/story.ts";
import { conversationOf, end } from "../support/positions.ts";
import { aPolicy, decideAs } from "../support/steering.ts";
import { useLedger } from "../support/postgres.ts";
import { aCall, aClaimedRun, aMessage, CODE, cross, NAMESPACE_UID, respond } from "../support/world.ts";

const applied = (name: string) => ({
  namespaceUid: NAMESPACE_UID,
  key: `demo/${name}`,
  specHash: "s",
  objectUid: uuidv7(),
  objectName: name,
});

describe("Runs that meet a conversation at work", () => {
  const ledger = useLedger();
  const PREEMPT = { ...aPolicy({ midTurn: "preempt", afterCommit: "reconcile", quietMs: 0 }) };
  let names = 0;

  /** A turn at work that the Run `first` opened, and how further Runs of its conversation come. */
  async function busy() {
    names += 1;
    const first = `first-${names}`;
    const run = await aClaimedRun(ledger.db, {
      applied: applied(first),
      policy: PREEMPT,
      askable: true,
      text: "Order tea.",
    });
    const say = async (name: string, text: string, actor = "alice") => {
      const object = applied(`${name}-${names}`);
      const message = aMessage(run.agent.id, {
        conversationKey: run.message.conversationKey,
        applied: object,
        policy: PREEMPT,
        askable: true,
        actor: { connector: "kubernetes", extId: actor },
        text,
      });
      const { kind, ...taken } = await ingest(ledger.db, message);
      return { name: object.objectName, kind, eventId: "eventId" in taken ? taken.eventId : "" };
    };
    const conversationId = await conversationOf(ledger, run.runId);
    const decide = (eventId: string, relation: "refines" | "independent" | "cancels") =>
      decideAs(ledger.db, { conversationId, eventId, seq: 0 }, relation, PREEMPT);
    return { run, first, say, decide };
  }

  const shown = async (name: string) => {
    const mirror = await readMirror(ledger.db, NAMESPACE_UID, `demo/${name}`);
    assert.ok(mirror !== null);
    return mirror;
  };

  it("show one turn through its restarts: the successor's state, who restarted it, when it began", async () => {
    const { run, first, say, decide } = await busy();
    const before = await shown(first);
    const second = await say("second", "Two, please.");
    assert.equal(second.kind, "undecided");
    assert.equal((await shown(second.name)).event_state, "undecided");
    const decided = await decide(second.eventId, "refines");
    assert.equal(decided.kind, "preempted");
    const [one, two] = [await shown(first), await shown(second.name)];
    assert.deepEqual([one.status, one.restarts, one.superseded_by, one.role], ["queued", 1, second.name, "inherited"]);
    assert.deepEqual([one.run_id, one.opening_event, one.started_at], [two.run_id, before.event_id, before.started_at]);
    assert.notEqual(one.run_id, run.runId);
    assert.ok((one.version ?? 0) > (before.version ?? 0), "only forward");
    assert.deepEqual([two.answered_by, two.superseded_by], [first, null]);
    assert.deepEqual(two.own_interrupt, {
      relation: "refines",
      asked: "preempt",
      done: "preempted",
      reason: "Buffering",
      here: true,
      changed: null,
    });
    assert.deepEqual([one.own_interrupt, one.interrupts_total], [null, 1]);
    const third = await say("third", "And milk.");
    assert.equal(third.kind, "folded", "corrections in a row are one restart");
    assert.deepEqual([(await shown(third.name)).answered_by, (await shown(first)).restarts], [first, 1]);
  });

  it("show a message that came too late, then the turn that puts it right; both are told with one another", async () => {
    const { run, first, say, decide } = await busy();
    const call = aCall();
    await respond(ledger.db, run, [call]);
    const { request } = await cross(ledger.db, run, call);
    const { effectId, nonce } = request;
    await settleEffect(ledger.db, { effectId, nonce, state: "confirmed", receipt: {}, observation: "HTTP 201" });
    const late = await say("late", "Rather none.");
    const since = await readDatabaseTime(ledger.db);
    assert.equal((await decide(late.eventId, "refines")).kind, "reconcile");
    const waiting = await shown(late.name);
    assert.deepEqual([waiting.event_state, waiting.position, waiting.run_id], ["pending", 1, null]);
    assert.deepEqual(waiting.own_interrupt, {
      relation: "refines",
      asked: "preempt",
      done: "reconcile",
      reason: "Committed",
      here: false,
      changed: [{ target: call.target, undoable: false }],
    });
    const changed = await listChangedMirrors(ledger.db, since);
    assert.ok(
      changed.some(({ objectName, decided }) => objectName === late.name && decided !== ""),
      "the look at what changed sees it",
    );

    assert.equal(
      await whyOf(ledger.db, "demo", late.name),
      await whyOf(ledger.db, "demo", first),
      "why it waits is told by the turn that it met",
    );
    const finished = await end(ledger.db, run);
    assert.ok(finished.kind === "finished" && finished.nextRunId !== null);
    assert.equal((await shown(late.name)).opening_event, late.eventId, "it opens the next turn");
    assert.match(
      await whyOf(ledger.db, "demo", first),
      /too late: the next turn puts it right: something had been changed[^]*What came too late is put right in run/,
    );
    assert.match(await whyOf(ledger.db, "demo", late.name), new RegExp(`puts right what Run ${first} `));
  });

  it("show a stop by the turn that it stopped, also by its name", async () => {
    const { run, first, say, decide } = await busy();
    const stop = await say("stop", "leave it be");
    assert.equal((await decide(stop.eventId, "cancels")).kind, "cancelled");
    const [one, two] = [await shown(first), await shown(stop.name)];
    assert.deepEqual([one.status, one.event_state], ["cancelled", "withdrawn"]);
    assert.deepEqual(
      [two.event_state, two.run_id, two.status, two.answered_by],
      ["applied", run.runId, "cancelled", first],
    );
    assert.match(
      await whyOf(ledger.db, "demo", stop.name),
      /→ the turn ends at once: nothing had been changed \(a stop, says a model\)/,
    );
    const changed = await listChangedMirrors(ledger.db, new Date(0));
    assert.ok(changed.some(({ objectName }) => objectName === stop.name));
  });

  it("are one story over a chain, each message on its side of the line", async () => {
    const { run, first, say, decide } = await busy();
    await respond(ledger.db, run, [
      aCall({ tool: "find_tea", class: "pure", kind: "tool.query", target: null, outcome: "real", result: "green" }),
    ]);
    const second = await say("second", "Two, please.");
    await decide(second.eventId, "refines");
    const claim = await claimRun(ledger.db, "worker-2", 10_000, CODE);
    const runId = (await shown(first)).run_id ?? "";
    assert.equal(claim?.runId, runId);
    const bob = await say("bob", "For me, too.", "bob");
    assert.equal(bob.kind, "queued");
    const reply = aCall({ class: "reply", kind: "reply", tool: "reply", args: { text: "Two." }, target: null });
    const next = { runId, token: claim.token };
    await respond(ledger.db, next, [reply], { ordinal: 2, seenSeq: 2 });
    await cross(ledger.db, next, reply, { seenSeq: 2 });
    const story = await readStory(ledger.db, runId);
    assert.ok(story !== null);
    assert.deepEqual(
      story.runs.map(({ id, superseded }) => [id, superseded]),
      [
        [run.runId, true],
        [runId, false],
      ],
    );
    assert.deepEqual(
      story.steps.map((step) => [step.ordinal, step.run]),
      [
        [1, run.runId],
        [2, runId],
      ],
    );
    assert.deepEqual(
      story.messages.map(({ role, object }) => [role, object]),
      [
        ["trigger", first],
        ["trigger", second.name],
      ],
    );
    const told = (await whyOf(ledger.db, "demo", second.name))
      .replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "ID")
      .split("\n");
    const place = (words: RegExp) => told.findIndex((line) => words.test(line));
    const order = [
      /alice asked \(Run first-\d+\)/,
      /claimed by a worker: lease 1/,
      /step 1, lease 1/,
      /alice wrote \(Run second-\d+\)/,
      /→ the turn is restarted for this message: nothing had been changed \(about this work, says a model; the agent asks to preempt\)/,
      /restarted as run ID: the steps so far are kept/,
      /bob wrote \(Run bob-\d+\)/,
      /→ waits for the next turn: its author may not interrupt this turn \(the agent asks to preempt\)/,
      /step 2, lease 1, an answer is recorded/,
      /POINT OF NO RETURN/,
    ].map(place);
    assert.deepEqual(
      order,
      order.toSorted((a, b) => a - b),
      told.join("\n"),
    );
    assert.ok(!order.includes(-1), told.join("\n"));
  });
});
