/** What a message means is asked beside the work, by whoever is there, and decided in the order of the messages. */
import assert from "node:assert/strict";
import type { EngineDeps } from "#engine/deps.ts";
import { ASK_MS, Decider } from "#engine/decider.ts";
import { Classifier } from "#engine/classify.ts";
import { type Judge, ModelJudge, RELATION_MS, type Related } from "#engine/judge.ts";
import type { Database } from "#ledger/database.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingestEdit } from "#ledger/changes.ts";
import { policyOf } from "#rules/interrupt.ts";
import { ingest } from "#ledger/mailbox.ts";
import { MAX_HOLD_MS } from "#rules/limits.ts";
import { bench, engineAgent, says, type Script } from "../support/engine.ts";
import { alone, end, runRow, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { later } from "../support/reality.ts";
import { undecidedOf, type Waits } from "../support/steering.ts";
import { aMessage, CODE } from "../support/world.ts";

const FAST = { baseURL: "http://fast.test/v1", model: "small" };

describe("a message that met a turn at work", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  /** A turn of an agent that amends, at work. */
  async function atWork(agent: Record<string, unknown> = {}) {
    const { id } = await engineAgent(ledger.db, [], {
      models: { primary: FAST, fast: FAST },
      interrupt: { midTurn: "Amend" },
      ...agent,
    });
    const opened = await ingest(ledger.db, aMessage(id, { text: "Book a table for six." }));
    if (opened.kind !== "new_run") throw new Error("no run");
    await alone(ledger, opened.runId);
    const claim = await claimRun(ledger.db, "worker-1", 60_000, CODE);
    if (claim?.runId !== opened.runId) throw new Error("not claimed");
    return { ...opened, token: claim.token };
  }

  type Relate = Judge["relation"];
  const judging = (relation: Relate): Judge => ({
    consent: () => Promise.resolve("unsure"),
    sensitivity: () => Promise.resolve("unsure"),
    relation,
  });
  /** A decider of its own, as each worker has one. */
  const decider = (relation: Relate, changes: Partial<EngineDeps> = {}, db: Database = ledger.db) => {
    const { deps, logged } = bench(db, [], [], { deps: { judge: judging(relation), ...changes } });
    return { decider: new Decider(deps), logged };
  };
  /** With a model that says this. */
  const asking = (script: Script, changes: Partial<EngineDeps> = {}) => {
    const { deps, requests } = bench(ledger.db, script, [], { deps: changes });
    return { decider: new Decider({ ...deps, judge: new ModelJudge(new Classifier(deps)) }), requests };
  };
  async function look(one: Decider): Promise<void> {
    await one.look();
    await one.settled();
  }
  const fate = async ({ eventId }: Waits): Promise<string> => {
    const [row] = await sql<{ state: string; done: string | null; reason: string | null; source: string | null }>(
      ledger,
      `select e.state, i.done, i.reason, i.source from message_events e left join interrupts i on i.event_id = e.id where e.id = $1`,
      [eventId],
    );
    return [row?.state, row?.done, row?.reason, row?.source].filter((word) => word != null).join(" ");
  };

  it("is not asked about when it is an edit: that refines, whatever it says", async () => {
    const turn = await atWork();
    const first = await undecidedOf(ledger, turn);
    const [row] = await sql<{ ext_id: string; agent_id: string; connector: string; ext_key: string }>(
      ledger,
      "select e.ext_id, c.agent_id, c.connector, c.ext_key from message_events e join conversations c on c.id = e.conversation_id where e.id = $1",
      [turn.eventId],
    );
    assert.ok(row !== undefined);
    const edit = await ingestEdit(ledger.db, {
      agentId: row.agent_id,
      generation: 1,
      connector: row.connector,
      conversationKey: row.ext_key,
      actor: { connector: "kubernetes", extId: "alice" },
      extId: row.ext_id,
      extRev: "1",
      orderKey: "1",
      text: "stop",
      policy: policyOf(null),
    });
    assert.ok(edit.kind === "undecided", "behind the first one");
    await look(decider(() => Promise.resolve("independent")).decider);
    assert.match(await fate(first), /queued Independent model$/);
    assert.equal(await fate({ ...first, eventId: edit.eventId }), "in_turn amended Amend edit");
  });

  it("is decided once, in its place, however many answers come at the same moment", async () => {
    const turn = await atWork();
    const said: Waits[] = [];
    for (let index = 0; index < 8; index += 1) said.push(await undecidedOf(ledger, turn, { text: `and ${index}` }));
    const all = Promise.withResolvers<Related>();
    const { decider: one, logged } = decider(() => all.promise);
    await one.look();
    all.resolve("refines");
    await one.settled();
    const decided = logged.filter(({ message }) => message === "decided about a message").map(({ fields }) => fields);
    assert.deepEqual(
      decided.map(({ message }) => message),
      said.map(({ eventId }) => eventId),
    );
    assert.ok(decided.every(({ kind }) => kind === "amended"));
  });

  it("is asked about with what its turn was asked for, and decided by the answer", async () => {
    const turn = await atWork();
    const more = await undecidedOf(ledger, turn, { text: "No, for eight." });
    const { decider: one, requests } = asking([says('{"relation":"refines"}')]);
    await look(one);
    assert.equal(await fate(more), "in_turn amended Amend model");
    const [request] = requests;
    assert.equal(request?.endpoint.model, "small");
    const asked = request?.messages.at(-1)?.content;
    assert.equal(
      asked,
      "The work was asked for with:\nalice: Book a table for six.\n\nThe further message is:\nalice: No, for eight.",
    );
    const [row] = await sql(ledger, "select question, answer from classifications where run_id = $1", [turn.runId]);
    assert.deepEqual(row, { question: "relation", answer: { relation: "refines" } });
  });

  const ANSWERS: readonly [answer: Related, fate: string][] = [
    ["refines", "in_turn amended Amend model"],
    ["independent", "pending queued Independent model"],
    ["unsure", "pending queued Unsure model"],
    ["cancels", "applied cancelled Buffering model"],
  ];
  for (const [answer, expected] of ANSWERS) {
    it(`becomes ${expected} when the model says ${answer}`, async () => {
      const more = await undecidedOf(ledger, await atWork());
      await look(decider(() => Promise.resolve(answer)).decider);
      assert.equal(await fate(more), expected);
    });
  }

  const BAD: readonly [what: string, answer: ReturnType<typeof says>][] = [
    ["not what was asked for", says('{"relation":"maybe"}')],
    ["no answer at all", says("")],
    ["an error", { kind: "failed", class: "terminal", reason: "ModelUnavailable", message: "gone" }],
  ];
  for (const [what, answer] of BAD) {
    it(`waits for the next turn when what the model says is ${what}`, async () => {
      const more = await undecidedOf(ledger, await atWork());
      await look(asking([answer]).decider);
      assert.equal(await fate(more), "pending queued Unsure model");
    });
  }

  it("waits for the next turn when the model is slow, and the turn is held no longer than that", async () => {
    assert.ok(RELATION_MS < MAX_HOLD_MS);
    const more = await undecidedOf(ledger, await atWork());
    const waited: number[] = [];
    // The time of the question is over when the test says so: at once.
    const clock = { monotonic: () => 0, sleep: (ms: number) => Promise.resolve(void waited.push(ms)) };
    const never: Script = [() => new Promise(() => {})];
    await look(asking(never, { clock }).decider);
    assert.equal(await fate(more), "pending queued Unsure model");
    assert.deepEqual(waited, [RELATION_MS]);
  });

  it("needs no model to be a stop, and no model to wait for the next turn where there is none", async () => {
    const nobody = () => Promise.reject(new Error("nobody is asked"));
    const stop = await undecidedOf(ledger, await atWork(), { text: "Stop!" });
    const other = await undecidedOf(ledger, await atWork({ models: { primary: FAST } }), { text: "and for eight" });
    await look(decider(nobody).decider);
    assert.equal(await fate(stop), "applied cancelled Buffering stop_word");
    assert.equal(await fate(other), "pending queued NoModel policy");
  });

  it("is decided after the one before it, whichever answer comes first", async () => {
    const turn = await atWork();
    const first = await undecidedOf(ledger, turn, { text: "first" });
    const second = await undecidedOf(ledger, turn, { text: "second" });
    const slow = Promise.withResolvers<Related>();
    const quick = Promise.withResolvers<void>();
    const { decider: one } = decider(({ message }) => {
      if (message.text === "first") return slow.promise;
      quick.resolve();
      return Promise.resolve("refines");
    });
    await one.look();
    await quick.promise;
    await one.look();
    assert.deepEqual([await fate(first), await fate(second)], ["undecided", "undecided"]);
    slow.resolve("independent");
    await one.settled();
    assert.equal(await fate(first), "pending queued Independent model");
    assert.equal(await fate(second), "in_turn amended Amend model");
  });

  it("goes before the others when it is a stop, and takes what its author had said before", async () => {
    const turn = await atWork();
    const first = await undecidedOf(ledger, turn, { text: "first" });
    const stop = await undecidedOf(ledger, turn, { text: "never mind" });
    const slow = Promise.withResolvers<Related>();
    const { decider: one } = decider(() => slow.promise);
    await one.look();
    for (const wanted = "applied cancelled Buffering stop_word"; (await fate(stop)) !== wanted; ) await one.look();
    assert.equal(await fate(first), "withdrawn withdrawn Stopped policy");
    slow.resolve("refines");
    await one.settled();
    assert.equal(await fate(first), "withdrawn withdrawn Stopped policy", "a late opinion changes nothing");
  });

  it("is asked about by one of two workers", async () => {
    const turn = await atWork();
    for (let n = 0; n < 6; n += 1) await undecidedOf(ledger, turn, { text: `message ${n}` });
    const asked: string[] = [];
    const both = [0, 1].map(() =>
      decider(({ message }) => {
        asked.push(message.text);
        return Promise.resolve("independent");
      }),
    );
    await Promise.all(both.map(({ decider: one }) => look(one)));
    // What one knows while an earlier message is the other's is decided at its next look.
    for (const { decider: one } of both) await look(one);
    for (const { decider: one } of both) await look(one);
    assert.deepEqual(
      asked.toSorted((a, b) => a.localeCompare(b)),
      [0, 1, 2, 3, 4, 5].map((n) => `message ${n}`),
    );
    assert.equal((await sql(ledger, "select from message_events where state = 'undecided'")).length, 0);
  });

  it("is asked about by another worker when the first one died over it, after its time and not before", async () => {
    const turn = await atWork();
    const more = await undecidedOf(ledger, turn);
    const dead = decider(() => new Promise(() => {}));
    await dead.decider.look();
    let asked = 0;
    const second = decider(() => {
      asked += 1;
      return Promise.resolve("refines");
    });
    await look(second.decider);
    assert.equal(asked, 0);
    await using ahead = later(ledger.url, ASK_MS / 1000);
    const third = decider(() => Promise.resolve("refines"), {}, ahead);
    await look(third.decider);
    assert.equal(await fate(more), "in_turn amended Amend model");
  });

  it("goes with its turn when that ends first; the answer comes too late and does nothing (C58)", async () => {
    const turn = await atWork();
    const more = await undecidedOf(ledger, turn);
    const slow = Promise.withResolvers<Related>();
    const { decider: one } = decider(() => slow.promise);
    await one.look();
    const ended = await end(ledger.db, turn);
    assert.ok(ended.kind === "finished" && ended.nextRunId !== null);
    const before = await runRow(ledger, ended.nextRunId);
    slow.resolve("cancels");
    await one.settled();
    assert.equal(await fate(more), "in_turn queued TurnEnded policy");
    assert.deepEqual(await runRow(ledger, ended.nextRunId), before);
  });

  it("is decided although the ledger was away for a moment: nothing throws, the answer is kept", async () => {
    const more = await undecidedOf(ledger, await atWork());
    let away = false;
    const db = new Proxy(ledger.db, {
      get: (target, name) => {
        if (away && (name === "one" || name === "rows")) return () => Promise.reject(new Error("away"));
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
    let asked = 0;
    const relate = () => {
      asked += 1;
      away = true;
      return Promise.resolve("refines" as const);
    };
    const { decider: one, logged } = decider(relate, {}, db);
    await look(one);
    await look(one);
    assert.equal(await fate(more), "undecided");
    assert.equal(logged.filter(({ level }) => level === "warn").length, 1, "said once");
    away = false;
    await look(one);
    assert.deepEqual([await fate(more), asked], ["in_turn amended Amend model", 1]);
  });

  it("is found without being told of, and at once when told: the loop sleeps in between", async () => {
    const stop = new AbortController();
    const sleeps: { ms: number; woken: boolean }[] = [];
    const slept = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const clock = {
      monotonic: () => 0,
      sleep: (ms: number, signal?: AbortSignal) =>
        new Promise<void>((resolve) => {
          const sleep = { ms, woken: false };
          sleeps.push(sleep);
          signal?.addEventListener("abort", () => {
            sleep.woken = true;
            resolve();
          });
          slept[sleeps.length - 1]?.resolve();
        }),
    };
    const { decider: one } = decider(() => Promise.resolve("refines"), { clock });
    const running = one.run(stop.signal);
    await slept[0]?.promise;
    const more = await undecidedOf(ledger, await atWork());
    one.wake();
    await slept[1]?.promise;
    stop.abort();
    await running;
    assert.equal(await fate(more), "in_turn amended Amend model");
    assert.deepEqual(sleeps, [
      { ms: 50, woken: true },
      { ms: 50, woken: true },
    ]);
  });
});
