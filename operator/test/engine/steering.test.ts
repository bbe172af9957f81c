/** From the message to the answer: asked about, decided, heard of by the worker, and in the request that answers. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { Decider } from "#engine/decider.ts";
import type { Judge, Related } from "#engine/judge.ts";
import { driveRun } from "#engine/drive.ts";
import type { ModelRequest } from "#engine/ports.ts";
import { Signals } from "#engine/signals.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest, type Message } from "#ledger/mailbox.ts";
import { policyOf } from "#rules/interrupt.ts";
import { isStopWord } from "#rules/stop-words.ts";
import { asks, bench, done, engineAgent, quick, says, type Script, writer } from "../support/engine.ts";
import { alone, count, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage, CODE } from "../support/world.ts";

const FAST = { baseURL: "http://fast.test/v1", model: "small" };
/** No timer of the lease finds anything out: what the worker knows, it was told. */
const UNTOLD = { leaseMs: 600_000, renewMs: 3_600_000, lookMs: 3_600_000 };

describe("a person who says more while the agent is at work", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  async function conversation(midTurn: "Amend" | "Preempt", meaning: Related, afterCommit = "Enqueue") {
    const interrupt = { midTurn, afterCommit, whoInterrupts: "SameActorOnly" };
    const agent = await engineAgent(ledger.db, ["echo", "write"], { models: { primary: FAST, fast: FAST }, interrupt });
    const first = aMessage(agent.id, { text: "Book a table for six." });
    const signals = new Signals();
    const judge: Judge = {
      consent: () => Promise.resolve("unsure"),
      sensitivity: () => Promise.resolve("unsure"),
      relation: () => Promise.resolve(meaning),
    };
    const say = async (text: string, changes: Partial<Message> = {}) => {
      const policy = { ...policyOf({ interrupt }), quietMs: 0 };
      const message = aMessage(agent.id, { conversationKey: first.conversationKey, text, ...changes });
      return ingest(ledger.db, { ...message, policy, askable: true, stops: isStopWord(text) });
    };
    const tool = writer([done("booked")]);
    const opened = await say(first.text, { extId: first.extId });
    assert.ok(opened.kind === "new_run");
    await alone(ledger, opened.runId);
    const [row] = await sql<{ id: string }>(ledger, "select conversation_id as id from runs where id = $1", [
      opened.runId,
    ]);

    /** Says it while a model thinks; comes back when that was decided, and the holder of the run told. */
    const interrupts = async (text: string): Promise<void> => {
      const [live] = await sql<{ id: string }>(ledger, "select live_run as id from conversations where id = $1", [
        row?.id,
      ]);
      await say(text);
      const { deps } = bench(ledger.db, [], [], { deps: { judge } });
      const decider = new Decider(deps);
      await decider.look();
      await decider.settled();
      signals.tell(live?.id ?? null);
    };
    /** Claims and drives until the conversation has no run that is due. */
    const drive = async (script: Script): Promise<ModelRequest[]> => {
      const { deps, requests } = bench(ledger.db, script, [quick, tool], {
        settings: UNTOLD,
        deps: { judge, signals },
      });
      for (;;) {
        const claim = await claimRun(ledger.db, "worker-1", 600_000, CODE);
        if (claim === null) return requests;
        await driveRun(deps, claim, new AbortController().signal);
      }
    };
    const replies = async (): Promise<string[]> =>
      (
        await sql<{ text: string }>(
          ledger,
          `select c.args ->> 'text' as text from tool_calls c join runs r on r.id = c.run_id
           where r.conversation_id = $1 and c.class = 'reply' and c.outcome = 'real' order by r.queued_at, c.ordinal`,
          [row?.id],
        )
      ).map(({ text }) => text);
    const decisions = async (): Promise<string[]> =>
      (
        await sql<{ done: string; reason: string }>(
          ledger,
          `select i.done, i.reason from interrupts i join message_events e on e.id = i.event_id
           where e.conversation_id = $1 order by e.seq`,
          [row?.id],
        )
      ).map(({ done: what, reason }) => `${what} ${reason}`);
    return { conversationId: row?.id ?? "", interrupts, drive, replies, decisions, tool };
  }

  const givenUp = { kind: "failed", class: "cancelled", reason: "Cancelled", message: "given up" } as const;
  const untilGivenUp = async (signal: AbortSignal) => {
    if (!signal.aborted) await once(signal, "abort");
    return givenUp;
  };
  const lastWords = (request: ModelRequest | undefined): string => request?.messages.at(-1)?.content ?? "";

  it("gets an answer to the corrected question: the turn begins anew with what it has learned", async () => {
    const talk = await conversation("Preempt", "refines");
    const requests = await talk.drive([
      asks(["echo", { seats: 6 }]),
      async (_request, signal) => {
        await talk.interrupts("No, for eight.");
        return untilGivenUp(signal);
      },
      says("A table for eight."),
    ]);
    assert.deepEqual(await talk.replies(), ["A table for eight."]);
    assert.deepEqual(await talk.decisions(), ["preempted Buffering"]);
    assert.ok(requests[2]?.messages.some(({ role, content }) => role === "tool" && content?.includes("echo")));
    assert.match(lastWords(requests[2]), /No, for eight\./);
    assert.equal(await count(ledger, "runs where conversation_id = $1", [talk.conversationId]), 2);
    assert.equal(await count(ledger, "logical_requests where conversation_id = $1", [talk.conversationId]), 1);
  });

  it("gets one in the end who types without end: after the bound the turn answers, the rest is the next one's (C62)", async () => {
    const talk = await conversation("Preempt", "refines");
    const chatter =
      (n: number): Script[number] =>
      async (_request, signal) => {
        await talk.interrupts(`No, for ${n}.`);
        return untilGivenUp(signal);
      };
    await talk.drive([
      ...[7, 8, 9].map(chatter),
      async () => {
        await talk.interrupts("No, for ten.");
        return says("A table for nine.");
      },
      says("And now for ten."),
    ]);
    assert.deepEqual(await talk.replies(), ["A table for nine.", "And now for ten."]);
    const restarts = ["preempted Buffering", "preempted Buffering", "preempted Buffering"];
    assert.deepEqual(await talk.decisions(), [...restarts, "queued Bound"]);
  });

  it("gets one in the end whose every addition keeps an answer back: those count like restarts (C62)", async () => {
    const talk = await conversation("Amend", "refines");
    const chatter =
      (n: number): Script[number] =>
      async () => {
        await talk.interrupts(`No, for ${n}.`);
        return says(`A table, but not for ${n}.`);
      };
    const requests = await talk.drive([...[7, 8, 9].map(chatter), chatter(10), says("And now for ten.")]);
    assert.deepEqual(await talk.replies(), ["A table, but not for 10.", "And now for ten."]);
    assert.match(lastWords(requests[3]), /No, for 9\./);
    assert.deepEqual(await talk.decisions(), [...Array.from({ length: 3 }, () => "amended Amend"), "queued Bound"]);
    assert.equal(
      await count(
        ledger,
        "tool_calls c join runs r on r.id = c.run_id where r.conversation_id = $1 and c.outcome = 'withheld'",
        [talk.conversationId],
      ),
      3,
    );
  });

  it("is told what was done when he stops a turn that has changed something, and the model is not waited for", async () => {
    const talk = await conversation("Preempt", "refines");
    await talk.drive([
      asks(["write", { to: "table" }]),
      async (_request, signal) => {
        await talk.interrupts("stop");
        return untilGivenUp(signal);
      },
    ]);
    const [reply] = await talk.replies();
    assert.match(reply ?? "", /^Stopped, as you asked\./);
    assert.deepEqual(await talk.decisions(), ["stopping Committed"]);
    assert.equal(talk.tool.sent.length, 1);
  });

  it("disturbs nothing with a question of its own: it is the next turn's", async () => {
    const talk = await conversation("Preempt", "independent");
    await talk.drive([
      async () => {
        await talk.interrupts("What is the weather?");
        return says("A table for six.");
      },
      says("Sunny."),
    ]);
    assert.deepEqual(await talk.replies(), ["A table for six.", "Sunny."]);
    assert.deepEqual(await talk.decisions(), ["queued Independent"]);
  });
});
