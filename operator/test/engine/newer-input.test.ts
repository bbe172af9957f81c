/** A turn that learns something new while it is at work: taken in at a decision point, or restarted with what it has. */
import assert from "node:assert/strict";
import { decideApproval, readApprovals } from "#ledger/approvals.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { readStory } from "#ledger/story.ts";
import { renderWhy } from "#cli/why.ts";
import { isProven } from "#cli/trace.ts";
import { driveRun } from "#engine/drive.ts";
import type { ModelRequest, ToolOutcome } from "#engine/ports.ts";
import { traceRun } from "#engine/trace.ts";
import { CODE } from "#rules/limits.ts";
import { applied, person, says as saysOf } from "../support/approvals.ts";
import { asks, bench, done, drain, engineAgent, finder, quick, says, type Script, writer } from "../support/engine.ts";
import { amend, supersede } from "../support/newer.ts";
import { count, runRow, sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { outcomeOf } from "../support/reality.ts";
import { aMessage } from "../support/world.ts";
import { checkRequest } from "../../../fakes/src/model-strict.ts";

const NEWER = "Not run: there is newer input. Read it first.";
const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });

/** What the model was told, newest last. */
const told = (request: ModelRequest | undefined): string[] =>
  (request?.messages ?? []).slice(1).map(({ role, content }) => `${role}: ${content ?? ""}`);
const lastOf = (request: ModelRequest | undefined): string => told(request).at(-1) ?? "";

describe("newer input", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  async function start(changes: Record<string, unknown> = {}, object?: string): Promise<string> {
    const agent = await engineAgent(ledger.db, ["echo", "find", "write"], changes);
    const message = aMessage(agent.id, {
      text: "make it red",
      ...(object === undefined ? {} : { applied: applied(object) }),
    });
    const opened = await ingest(ledger.db, message);
    assert.ok("runId" in opened);
    return opened.runId;
  }

  const proven = async (runId: string): Promise<number> => {
    const trace = await traceRun(ledger.db, runId);
    assert.ok(trace !== null);
    assert.deepEqual(
      trace.steps.filter((step) => step.kind !== "ok" && step.kind !== "closing"),
      [],
    );
    assert.ok(isProven(trace));
    return trace.steps.length;
  };
  const strict = (requests: readonly ModelRequest[]) => {
    for (const { messages, tools } of requests) {
      const body = { model: "m", messages, tools: tools.map(({ name }) => ({ type: "function", function: { name } })) };
      const checked = checkRequest(JSON.parse(JSON.stringify(body)), undefined);
      assert.ok(checked.ok, checked.ok ? "" : checked.refusal.message);
    }
  };

  describe("that joins a turn", () => {
    it("refuses the write that was asked for without it, and stands in the next request (C29)", async () => {
      const runId = await start();
      const tool = writer([done("written")]);
      const script: Script = [
        async () => {
          await amend(ledger.db, runId, { text: "blue, not red" });
          return asks(["write", { to: "red" }]);
        },
        asks(["write", { to: "blue" }]),
        says("Blue."),
      ];
      const { deps, requests } = bench(ledger.db, script, [tool]);
      await drain(deps);
      assert.deepEqual(
        tool.sent.map(({ args }) => args["to"]),
        ["blue"],
      );
      assert.deepEqual(told(requests[1]).slice(-2), [
        `tool: ${NEWER}`,
        "user: (From Pawl, not from a person: what follows arrived while you were at work. Take it into account from here on.)\n\n[user alice]\nblue, not red",
      ]);
      strict(requests);
      assert.equal(await proven(runId), 3);
      assert.equal((await outcomeOf(ledger.db, runId)).reply, "Blue.");
      assert.equal(await count(ledger, "message_events where run_id = $1 and state = 'accounted'", [runId]), 2);
    });

    it("withholds the answer that did not know of it; the next one names all who wait for it", async () => {
      const runId = await start();
      const script: Script = [
        async () => {
          await amend(ledger.db, runId, { text: "and for me", actor: "bob" });
          return says("Red it is.");
        },
        says("Red, for both."),
      ];
      const { deps, requests } = bench(ledger.db, script);
      await drain(deps);
      const [, answer, newer] = told(requests[1]);
      assert.equal(answer, "assistant: Red it is.");
      assert.match(newer ?? "", /^user: \(That answer was not sent: there is newer input\.\)/);
      assert.match(newer ?? "", /\[user bob\]\nand for me\n\n\(From Pawl[^)]*wait for your answer: alice, bob\.\)$/);
      assert.equal((await outcomeOf(ledger.db, runId)).reply, "Red, for both.");
      assert.equal(await proven(runId), 2);
    });

    it("waits for the reads of the response that is being worked on, and disturbs none", async () => {
      const runId = await start();
      const tool = finder([
        async () => {
          await amend(ledger.db, runId, { text: "blue, not red" });
          return done("one");
        },
        done("two"),
      ]);
      const { deps, requests } = bench(ledger.db, [asks(["find", {}], ["find", {}]), says("Blue.")], [tool]);
      await drain(deps);
      assert.deepEqual(told(requests[1]).slice(-3, -1), ["tool: one", "tool: two"]);
      assert.match(lastOf(requests[1]), /blue, not red$/);
      assert.equal(await proven(runId), 2);
    });

    it("is judged by what the request contained, also by a worker that takes over and has read it all", async () => {
      const runId = await start();
      const tool = writer([done("written")]);
      const { deps: dying } = bench(ledger.db, [asks(["echo", {}], ["write", { to: "red" }])], [quick, tool]);
      const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
      assert.equal(claim?.runId, runId);
      // The worker lets go between the response and its first write, which is held back: nothing has crossed.
      await sql(ledger, "update runs set hold_seq = 99, hold_until = pawl_now() + interval '1 hour' where id = $1", [
        runId,
      ]);
      const gone = new AbortController();
      const clock = { ...dying.clock, sleep: () => Promise.resolve(gone.abort()) };
      await driveRun({ ...dying, clock }, claim ?? assert.fail(), gone.signal);
      assert.equal(tool.sent.length, 0);
      await sql(ledger, "update runs set hold_seq = 0, hold_until = null where id = $1", [runId]);
      await amend(ledger.db, runId, { text: "blue, not red" });
      const { deps, requests } = bench(ledger.db, [says("Blue.")], [quick, tool]);
      await drain(deps);
      assert.equal(tool.sent.length, 0);
      assert.equal(told(requests[0]).at(-2), `tool: ${NEWER}`);
      assert.match(lastOf(requests[0]), /blue, not red$/);
      assert.equal(await proven(runId), 2);
    });

    it("is not accounted for by a turn that fails without having shown it: it becomes the next one", async () => {
      const runId = await start();
      const script: Script = [
        async () => {
          await amend(ledger.db, runId, { text: "blue, not red" });
          return { kind: "failed", class: "terminal", reason: "ModelRejected", message: "No." };
        },
        says("Blue."),
      ];
      const { deps, requests } = bench(ledger.db, script);
      await drain(deps);
      const failed = await outcomeOf(ledger.db, runId);
      assert.match(failed.reply ?? "", /^I could not answer this/);
      assert.equal((await runRow(ledger, runId)).status, "failed");
      // Its quiet time is not what this is about.
      await sql(ledger, "update runs set due_at = pawl_now() where live");
      await drain(deps);
      assert.equal(lastOf(requests[1]), "user: [user alice]\nblue, not red");
    });

    it("stands in the request for the last words of a turn that has used up what it may use", async () => {
      const runId = await start({ budgets: { iterations: 1 } });
      const tool = finder([
        async () => {
          await amend(ledger.db, runId, { text: "blue, not red" });
          return done("one");
        },
      ]);
      const { deps, requests } = bench(ledger.db, [asks(["find", {}]), says("Not done yet. Go on?")], [tool]);
      await drain(deps);
      assert.match(lastOf(requests[1]), /blue, not red/);
      assert.equal((await outcomeOf(ledger.db, runId)).reply, "Not done yet. Go on?");
      assert.equal(await proven(runId), 2);
    });
  });

  describe("that restarts a turn", () => {
    it("aborts the model call at once; the successor goes on with every step, and answers both", async () => {
      const runId = await start();
      let next = "";
      const script: Script = [
        asks(["echo", { n: 1 }]),
        async (_request, signal) => {
          next = (await supersede(ledger.db, runId, { text: "blue, not red" })).runId;
          await aborted(signal);
          return { kind: "failed", class: "cancelled", reason: "ModelCancelled", message: "Aborted." };
        },
        says("Blue."),
      ];
      const { deps, requests } = bench(ledger.db, script, [quick], { settings: { renewMs: 10 } });
      await drain(deps);
      assert.deepEqual(told(requests[2]), [
        "user: [user alice]\nmake it red",
        "assistant: ",
        'tool: echo {"n":1}',
        "user: (From Pawl, not from a person: what follows arrived while you were at work. Take it into account from here on.)\n\n[user alice]\nblue, not red",
      ]);
      strict(requests);
      const went = await outcomeOf(ledger.db, next);
      assert.equal(went.reply, "Blue.");
      assert.deepEqual(
        went.run.steps.map(({ ordinal }) => ordinal),
        [1, 2],
      );
      // A budget is the request's, not the run's; a call whose answer nobody waited for is not in it.
      assert.deepEqual([went.run.modelCalls, went.run.toolCalls], [2, 1]);
      assert.equal(await proven(next), 2);
      const story = await readStory(ledger.db, next);
      assert.match(
        renderWhy(story ?? assert.fail()),
        new RegExp(`restarted as run ${next}: the steps so far are kept`),
      );
      assert.equal(await count(ledger, "commitment_effects where request_id = $1", [went.run.requestId]), 1);
    });

    it("keeps the result of a read that was finished and not committed (C67)", async () => {
      const runId = await start();
      let next = "";
      const tool = finder([
        async () => {
          next = (await supersede(ledger.db, runId, { text: "blue, not red" })).runId;
          return done("found after all");
        },
      ]);
      const { deps, requests } = bench(ledger.db, [asks(["find", {}]), says("Blue.")], [tool]);
      await drain(deps);
      assert.equal(tool.sent.length, 1);
      assert.equal(told(requests[1])[2], "tool: found after all");
      assert.equal(await proven(next), 2);
    });

    it("keeps what is finished also when the worker has heard of it before the read came back", async () => {
      const runId = await start();
      const tool = finder([
        async ({ context }): Promise<ToolOutcome> => {
          await supersede(ledger.db, runId, { text: "blue, not red" });
          await aborted(context.signal);
          return done("found after all");
        },
      ]);
      const { deps, requests } = bench(ledger.db, [asks(["find", {}]), says("Blue.")], [tool], {
        settings: { renewMs: 10 },
      });
      await drain(deps);
      assert.equal(told(requests[1])[2], "tool: found after all");
    });

    it("tells the model of reads that were not finished, and begins anew only what it asks for again", async () => {
      const runId = await start();
      const tool = finder([
        done("first"),
        async ({ context }): Promise<ToolOutcome> => {
          await supersede(ledger.db, runId, { text: "blue, not red" });
          await aborted(context.signal);
          return { kind: "failed", observation: "aborted" };
        },
      ]);
      const script = [asks(["find", {}], ["find", {}], ["write", { to: "red" }]), says("Blue.")];
      const { deps, requests } = bench(ledger.db, script, [tool, writer([])], { settings: { renewMs: 10 } });
      await drain(deps);
      assert.deepEqual(told(requests[1]).slice(2, 5), [
        "tool: first",
        "tool: Not run to its end: newer input restarted this turn.",
        "tool: not run: newer input came, and the turn began anew with it",
      ]);
      strict(requests);
    });

    it("lets the model read a result of a run before it by its pointer", async () => {
      const runId = await start();
      const script: Script = [
        asks(["find", {}]),
        async (_request, signal) => {
          await supersede(ledger.db, runId, { text: "blue, not red" });
          await aborted(signal);
          return { kind: "failed", class: "cancelled", reason: "ModelCancelled", message: "Aborted." };
        },
        asks(["read_result", { step: 1, call: 0 }]),
        says("Blue."),
      ];
      const { deps, requests } = bench(ledger.db, script, [finder([done("found it")])], { settings: { renewMs: 10 } });
      await drain(deps);
      assert.match(lastOf(requests[3]), /found it/);
    });

    it("goes on from all the runs before it when it comes again and again, and each message is said once", async () => {
      const runId = await start();
      let live = runId;
      const again = (text: string) => async () => {
        live = (await supersede(ledger.db, live, { text })).runId;
        return done(text);
      };
      const tool = finder([again("green"), again("blue"), done("at last")]);
      const script = [asks(["find", { n: 1 }]), asks(["find", { n: 2 }]), asks(["find", { n: 3 }]), says("Blue.")];
      const { deps, requests } = bench(ledger.db, script, [tool]);
      await drain(deps);
      const all = told(requests[3]).join("\n");
      for (const text of ["make it red", "green", "blue"]) {
        assert.equal(all.split(`[user alice]\n${text}`).length, 2, text);
      }
      assert.deepEqual(
        told(requests[3]).filter((line) => line.startsWith("tool:")),
        ["tool: green", "tool: blue", "tool: at last"],
      );
      const went = await outcomeOf(ledger.db, live);
      assert.equal(went.run.inherits.length, 2);
      assert.deepEqual([went.run.modelCalls, went.run.toolCalls, went.reply], [4, 3, "Blue."]);
      assert.equal(await proven(live), 4);
    });
  });

  describe("that is an edit", () => {
    /** New words for a message, as the mailbox applies them. */
    const edit = async (eventId: string, text: string) => {
      const [row] = await sql<{ conversation_id: string }>(
        ledger,
        `update conversations c set head_seq = c.head_seq + 1, mail_version = c.mail_version + 1 from message_events e
         where e.id = $1 and c.id = e.conversation_id returning c.id as conversation_id`,
        [eventId],
      );
      await sql(
        ledger,
        `insert into message_events (id, conversation_id, seq, kind, ext_id, ext_rev, order_key, actor_id, body, state, about, received_at)
         select gen_random_uuid(), c.id, c.head_seq, 'edit', e.ext_id, c.head_seq::text, e.order_key, e.actor_id, $3, 'applied', e.id, pawl_now()
         from conversations c join message_events e on e.id = $2 where c.id = $1`,
        [row?.conversation_id, eventId, text],
      );
    };

    it("replaces the words of a message that nobody has read; of one that was read they stay, and each request is rebuilt", async () => {
      const agent = await engineAgent(ledger.db, ["echo", "find", "write"]);
      const opened = await ingest(ledger.db, aMessage(agent.id, { text: "make it red" }));
      assert.ok("runId" in opened);
      for (const text of ["make it rde", "make it green"]) await edit(opened.eventId, text);
      const later = async () => {
        await edit(opened.eventId, "make it blue");
        return done("one");
      };
      const first = bench(ledger.db, [asks(["find", {}]), asks(["find", {}])], [finder([later, done("two")])]);
      await drain(first.deps).catch(() => undefined);
      const { deps, requests } = bench(ledger.db, [says("Green.")], [finder([])]);
      await sql(ledger, "update runs set due_at = pawl_now() where live");
      await drain(deps);
      for (const request of [...first.requests.slice(0, 2), requests[0]]) {
        assert.equal(told(request)[0], "user: [user alice]\nmake it green");
      }
      assert.equal(await proven(opened.runId), 3);
    });
  });

  describe("for a turn that waits for an approval", () => {
    const gated = { tools: { builtin: ["echo", "find", "write"], requireApproval: ["write"] } };

    it("takes the question back: the call is not run, and a decision about it is late", async () => {
      const runId = await start(gated, "one");
      const tool = writer([done("written")]);
      const first = bench(ledger.db, [asks(["write", { to: "red" }])], [tool]);
      await drain(first.deps);
      const [asked] = await readApprovals(ledger.db, runId);
      assert.equal(asked?.state, "open");
      await amend(ledger.db, runId, { text: "blue, not red" });
      const { deps, requests } = bench(ledger.db, [says("Blue.")], [tool]);
      await drain(deps);
      assert.equal(told(requests[0]).at(-2), `tool: ${NEWER}`);
      const [after] = await readApprovals(ledger.db, runId);
      assert.equal(after?.state, "withdrawn");
      const late = await decideApproval(
        ledger.db,
        saysOf({ name: "one" }, after ?? assert.fail(), { actor: person("bob") }),
      );
      assert.deepEqual(late, { kind: "late", state: "withdrawn", by: null, over: "Withdrawn", already: false });
      assert.equal(tool.sent.length, 0);
    });

    it("does not begin to wait when the message came before the question", async () => {
      const runId = await start(gated);
      const tool = writer([done("written")]);
      const script: Script = [
        async () => {
          await amend(ledger.db, runId, { text: "blue, not red" });
          return asks(["write", { to: "red" }]);
        },
        says("Blue."),
      ];
      const { deps } = bench(ledger.db, script, [tool]);
      await drain(deps);
      assert.equal((await outcomeOf(ledger.db, runId)).reply, "Blue.");
      assert.equal((await readApprovals(ledger.db, runId)).length, 0);
    });
  });
});
