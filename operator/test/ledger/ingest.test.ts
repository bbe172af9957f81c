/** What becomes of a message, before anybody asks a model: every cell of the rule, through the statement. */
import assert from "node:assert/strict";
import { checkInvariants } from "#ledger/invariants.ts";
import { ingest, type Ingested, type Message } from "#ledger/mailbox.ts";
import { MAX_BOT_TURNS } from "#rules/limits.ts";
import { decide, MID_TURN, type Policy, policyOf, type Position, POSITIONS, WHO } from "#rules/interrupt.ts";
import { aRunIn, alone, count, end, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aQuestion, ask } from "../support/questions.ts";
import { aCall, aClaimedRun, aMessage, anAgent, aRun, cross, respond } from "../support/world.ts";

const POLICY: Policy = { ...policyOf(null), quietMs: 0 };
const bob = { connector: "kubernetes", extId: "bob" };

describe("a message that comes in", () => {
  const ledger = useLedger();

  beforeEach(() => alone(ledger));
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  type Started = { message: Message; runId?: string; eventId?: string };

  /** A conversation of alice's in this position. */
  async function at(position: Position): Promise<Started> {
    if (position === "free") {
      const run = await aClaimedRun(ledger.db);
      await end(ledger.db, run);
      return run;
    }
    if (position === "window") return aRun(ledger.db);
    if (position === "waiting") return aRunIn(ledger.db, "awaiting_input");
    const run = await aClaimedRun(ledger.db);
    if (position === "buffering") return run;
    const calls = [aCall(), aCall({ idx: 1, class: "reply", kind: "reply", target: null })] as const;
    const question = aQuestion({ idx: 2 });
    await respond(ledger.db, run, position === "waiting_committed" ? [...calls, question] : calls);
    await cross(ledger.db, run, calls[0]);
    if (position === "waiting_committed") await ask(ledger.db, { ...run, call: question });
    if (position === "replied") await cross(ledger.db, run, calls[1], { receipt: { row: true } });
    return run;
  }

  const next = (started: Started, changes: Partial<Message> = {}) =>
    ingest(
      ledger.db,
      aMessage(started.message.agentId, { conversationKey: started.message.conversationKey, ...changes }),
    );

  async function told(taken: Ingested): Promise<{ done: string; reason: string; source: string } | undefined> {
    assert.ok(taken.kind !== "duplicate");
    const [row] = await sql<{ done: string; reason: string; source: string }>(
      ledger,
      "select done, reason, source from interrupts where event_id = $1",
      [taken.eventId],
    );
    return row;
  }
  async function stateOf(taken: Ingested) {
    assert.ok(taken.kind !== "duplicate");
    const [row] = await sql<{ state: string; run_id: string | null }>(
      ledger,
      "select state, run_id from message_events where id = $1",
      [taken.eventId],
    );
    return row;
  }

  const yesNo = [true, false];
  const cells = POSITIONS.flatMap((position) =>
    yesNo.flatMap((entitled) =>
      yesNo.flatMap((stops) =>
        yesNo.flatMap((askable) =>
          yesNo.flatMap((sameGrants) =>
            yesNo.flatMap((room) =>
              yesNo.map((strangerBot) => ({ position, entitled, stops, askable, sameGrants, room, strangerBot })),
            ),
          ),
        ),
      ),
    ),
  );

  for (const position of POSITIONS) {
    it(`is ${position === "free" ? "a new turn in a free conversation" : `what the rule says of ${position}`}, in every combination`, async function () {
      this.timeout(60_000);
      for (const [index, cell] of cells.filter((one) => one.position === position).entries()) {
        const started = await at(position);
        const midTurn = MID_TURN[index % 3] ?? "enqueue";
        const policy = { ...POLICY, midTurn, maxCount: cell.room ? 20 : 1 };
        const taken = await next(started, {
          policy,
          ...(cell.entitled ? {} : { actor: bob }),
          stops: cell.stops,
          askable: cell.askable,
          bot: cell.strangerBot,
          grants: cell.sameGrants ? "" : "others",
        });
        const expected = decide(
          {
            ...cell,
            addressed: true,
            stopping: false,
            bound: false,
            relation: cell.stops ? "cancels" : null,
          },
          policy,
        );
        // Without a model to ask nobody will decide it: it waits for the next turn.
        const unasked = { done: "queued", reason: midTurn === "enqueue" ? "Enqueue" : "NoModel" };
        const means = expected.done === "undecided" && !cell.askable ? unasked : expected;
        const name = JSON.stringify(cell);
        assert.equal(taken.kind === "answers" ? "answered" : taken.kind, means.done, name);
        if (taken.kind === "queued") assert.equal(taken.reason, means.reason, name);
        const row = await told(taken);
        if (["folded", "new_run", "undecided"].includes(means.done)) assert.equal(row, undefined, name);
        else assert.deepEqual([row?.done, row?.reason], [means.done, means.reason], name);
        if (taken.kind === "cancelled" || taken.kind === "stopping") assert.equal(row?.source, "stop_word");
      }
    });
  }

  it("is only kept for later where it is not said to the agent, whatever runs", async () => {
    for (const position of POSITIONS) {
      const started = await at(position);
      const taken = await next(started, { addressed: false, askable: true });
      assert.deepEqual([taken.kind, (await stateOf(taken))?.state], ["observed", "observed"]);
      assert.equal(await told(taken), undefined);
    }
  });

  describe("says whose word counts:", () => {
    const kinds = async (who: Policy["who"], author: "alice" | "bob") => {
      const run = await aRun(ledger.db);
      await next(run, { actor: bob }); // folds: bob is whom the turn answers last
      await alone(ledger, run.runId);
      await sql(ledger, "update runs set status = 'running' where id = $1", [run.runId]);
      const actor = { connector: "kubernetes", extId: author };
      return (await next(run, { policy: { ...POLICY, who }, actor, askable: true })).kind;
    };
    const expected = {
      same_actor_only: ["undecided", "queued"],
      thread_scoped: ["undecided", "undecided"],
      addressed_actor_only: ["queued", "undecided"],
    } as const;
    for (const who of WHO) {
      it(`${who}: of who asked ${expected[who][0]}, of who wrote last ${expected[who][1]} (C61)`, async () => {
        assert.deepEqual([await kinds(who, "alice"), await kinds(who, "bob")], expected[who]);
      });
    }
  });

  it("holds what would leave while a model is asked, for a second and a half", async () => {
    const run = await at("buffering");
    const taken = await next(run, { askable: true });
    assert.ok(taken.kind === "undecided");
    const held = `runs where id = $1 and hold_seq = ${taken.seq} and hold_until = (select received_at from message_events where id = '${taken.eventId}') + interval '1500 ms'`;
    assert.equal(await count(ledger, held, [run.runId]), 1);
  });

  it("holds nothing any more once the turn was interrupted often enough, or long enough (C62)", async () => {
    for (const bound of ["interruptions = 3", "deadline_at = pawl_now()"]) {
      const run = await at("buffering");
      await sql(ledger, `update runs set ${bound} where id = $1`, [run.runId]);
      assert.equal((await next(run, { askable: true })).kind, "undecided");
      assert.equal(await count(ledger, "runs where id = $1 and hold_seq = 0", [run.runId]), 1);
    }
  });

  it("answers a turn that waits, whoever it is from, who gains nothing by it, and it goes on as if it had not waited", async () => {
    const run = await at("waiting");
    await sql(
      ledger,
      "update runs set parked_at = pawl_now() - interval '1 hour', deadline_at = '2020-01-01' where id = $1",
      [run.runId],
    );
    const taken = await next(run, { actor: bob, grants: "others" });
    assert.ok(taken.kind === "answers" && taken.runId === run.runId);
    const [row] = await sql(
      ledger,
      `select r.status, r.due_at <= pawl_now() as due, r.amend_seq::int as amend_seq, a.ext_id as by, w.ext_id as addressed,
              r.parked_at, r.deadline_at - timestamptz '2020-01-01' >= interval '1 hour' as moved, t.role, r.grants
       from runs r join actors a on a.id = r.unblocked_by join actors w on w.id = r.addressed
       join run_triggers t on t.run_id = r.id and t.event_id = $2 where r.id = $1`,
      [run.runId, taken.eventId],
    );
    assert.deepEqual(row, {
      status: "running",
      due: true,
      amend_seq: taken.seq,
      by: "bob",
      addressed: "alice",
      parked_at: null,
      moved: true,
      role: "answer",
      grants: "",
    });
  });

  describe("that only says stop", () => {
    it("ends a turn that has not changed anything, with all that its author had said before (stop first)", async () => {
      const run = await at("buffering");
      const before = [await next(run, { askable: true }), await next(run), await next(run, { actor: bob })];
      const stopped = await next(run, { stops: true, askable: true, text: "stop" });
      assert.equal(stopped.kind, "cancelled");
      const states = await Promise.all(before.map(async (taken) => (await stateOf(taken))?.state));
      assert.deepEqual(states, ["withdrawn", "withdrawn", "in_turn"], "bob's opens the next turn");
      assert.deepEqual(await told(before[0] as Ingested), { done: "withdrawn", reason: "Stopped", source: "policy" });
      assert.deepEqual(await stateOf(stopped), { state: "applied", run_id: null });
    });

    it("lets a turn that has changed something tell that, and takes its author's waiting messages back", async () => {
      const run = await at("committed");
      const before = [await next(run, { askable: true }), await next(run), await next(run, { actor: bob })];
      assert.equal((await next(run, { stops: true })).kind, "stopping");
      const states = await Promise.all(before.map(async (taken) => (await stateOf(taken))?.state));
      assert.deepEqual(states, ["withdrawn", "withdrawn", "pending"]);
      assert.equal(
        await count(ledger, "runs where id = $1 and stop_requested_at is not null and hold_seq = 0", [run.runId]),
        1,
      );
    });

    it("ends it for everybody where anybody may interrupt, and else for its author only", async () => {
      for (const who of ["thread_scoped", "same_actor_only"] as const) {
        const run = await aRun(ledger.db);
        const folded = await next(run, { actor: bob });
        const author = who === "thread_scoped" ? { actor: bob } : {};
        assert.equal((await next(run, { stops: true, policy: { ...POLICY, who }, ...author })).kind, "cancelled");
        const left = who === "thread_scoped" ? "withdrawn" : "in_turn";
        assert.equal((await stateOf(folded))?.state, left);
        assert.equal(await count(ledger, "message_events where id = $1 and state = 'withdrawn'", [run.eventId]), 1);
      }
    });

    it("does so once: delivered again it stops nothing that began since", async () => {
      const run = await at("buffering");
      const message = aMessage(run.message.agentId, { conversationKey: run.message.conversationKey, stops: true });
      assert.equal((await ingest(ledger.db, message)).kind, "cancelled");
      const opened = await next(run);
      assert.equal(opened.kind, "new_run");
      assert.deepEqual(await ingest(ledger.db, message), { kind: "duplicate", specHash: null });
      assert.equal(await count(ledger, "runs where id = $1 and live", [(opened as { runId: string }).runId]), 1);
    });

    it("does so once also by its key, even in another conversation", async () => {
      const applied = { namespaceUid: "ns", key: `stop-${Date.now()}`, specHash: "s", objectUid: "u", objectName: "n" };
      const [one, two] = [await at("buffering"), await at("buffering")];
      assert.equal((await next(one, { stops: true, applied })).kind, "cancelled");
      assert.deepEqual(await next(two, { stops: true, applied }), { kind: "duplicate", specHash: "s" });
      assert.equal(await count(ledger, "runs where id = $1 and live", [two.runId]), 1);
    });

    it("is a message like any other where nothing runs", async () => {
      assert.equal((await next(await at("free"), { stops: true })).kind, "new_run");
    });
  });

  describe("of a program", () => {
    const bot = { bot: true, actor: { connector: "kubernetes", extId: "ci" } };

    it("interrupts only where it names the agent and may", async () => {
      const run = await at("buffering");
      const policy = { ...POLICY, who: "thread_scoped" } as const;
      const stranger = await next(run, { ...bot, policy, askable: true });
      assert.deepEqual(
        [stranger.kind, await told(stranger)],
        ["queued", { done: "queued", reason: "Bot", source: "policy" }],
      );
      assert.equal((await next(run, { ...bot, policy, askable: true, namesAgent: true })).kind, "undecided");
    });

    it(`opens ${MAX_BOT_TURNS} turns in a row, then a person has to say something`, async () => {
      const agent = await anAgent(ledger.db);
      const first = aMessage(agent.id, bot);
      const say = (changes: Partial<Message>) => next({ message: first }, changes);
      for (let turn = 0; turn < MAX_BOT_TURNS; turn += 1) {
        const opened = await say(bot);
        assert.ok(opened.kind === "new_run", `turn ${turn + 1}`);
        await stop(ledger.db, opened.eventId);
      }
      const refused = await say(bot);
      assert.deepEqual(
        [refused.kind, await told(refused)],
        ["observed", { done: "observed", reason: "BotBound", source: "policy" }],
      );
      const person = await say({});
      assert.ok(person.kind === "new_run");
      await stop(ledger.db, person.eventId);
      assert.equal((await say(bot)).kind, "new_run");
    });

    it("counts the turns too that begin when another one ends", async () => {
      const run = await aClaimedRun(ledger.db, bot);
      await next(run, bot);
      await end(ledger.db, run);
      assert.equal(
        await count(
          ledger,
          "conversations c join runs r on r.conversation_id = c.id where r.id = $1 and c.bot_turns = 2",
          [run.runId],
        ),
        1,
      );
    });
  });
});
