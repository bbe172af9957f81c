/** Every cell of the run machine, driven through the statement that carries its event, on a real row. */
import assert from "node:assert/strict";
import { v7 as uuidv7 } from "uuid";
import { claimRun, releaseLease } from "#ledger/leases.ts";
import { answerQuestion, readQuestions } from "#ledger/questions.ts";
import { commitResults } from "#ledger/steps.ts";
import {
  isTerminal,
  RUN_EVENTS,
  RUN_MACHINE,
  type RunCell,
  type RunEvent,
  type RunStatus,
  STATUSES,
  type TerminalStatus,
} from "#rules/run-machine.ts";
import { applied, park } from "../support/approvals.ts";
import { alone, aRunIn, end, lapse, type Positioned, runRow, sql, stop } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { aQuestion, answers, ask } from "../support/questions.ts";
import { aCall, CODE, respond } from "../support/world.ts";

const ENDING: Partial<Record<RunEvent, TerminalStatus>> = {
  succeed: "succeeded",
  fail: "failed",
  cancel: "cancelled",
  exhaust: "budget_exhausted",
};

describe("the run machine in SQL", () => {
  const ledger = useLedger();

  async function openCalls(runId: string): Promise<string[]> {
    const rows = await sql<{ id: string }>(ledger, "select id from tool_calls where run_id = $1 and outcome is null", [
      runId,
    ]);
    return rows.map((row) => row.id);
  }

  /** Only a call that waits for a person parks a run. The rows, past the product, so that the run itself stays as it is. */
  async function aCallToApprove(
    { runId }: Positioned,
    call = aCall({ class: "pure", kind: "tool.query", target: null }),
  ) {
    const step = `insert into run_steps (run_id, ordinal, lease_token, nonce, seen_seq, request, response, replayability, committed_at)
      values ($1, 99, 1, $2, 1, '{}', '{}', 'pure', pawl_now())`;
    await sql(ledger, step, [runId, uuidv7()]);
    const row = `insert into tool_calls (id, run_id, ordinal, idx, tool, class, kind, args, args_hash, gate)
      values ($1, $2, 99, 0, 'x', $4, $5, '{}', $3, $6)`;
    const gate = call.class === "pure" ? "open" : "none";
    await sql(ledger, row, [call.id, runId, call.argsHash, call.class, call.kind, gate]);
    return call;
  }

  /** A question of a run that does not wait for an answer any more, or never did. */
  async function askedBefore(run: Positioned): Promise<{ id: string }> {
    const call = await aCallToApprove(run, aQuestion());
    const text = `insert into questions (id, call_id, run_id, conversation_id, request_id, text, asked_at, expires_at)
      select $1, $2, id, conversation_id, request_id, 'x', pawl_now(), pawl_now() + interval '1 day' from runs where id = $3`;
    const id = uuidv7();
    await sql(ledger, text, [id, call.id, run.runId]);
    return { id };
  }

  const overdue = (runId: string) =>
    sql(ledger, "update runs set due_at = pawl_now() - interval '1 second' where id = $1", [runId]);

  /** Sends the event and gives the answer of the statement. */
  async function send(event: RunEvent, status: RunStatus, run: Positioned): Promise<string> {
    const { db } = ledger;
    const ending = ENDING[event];
    if (ending !== undefined) {
      // A late duplicate is the same statement again; anything else comes from a caller of its own.
      const nonce = ending === status ? run.nonce : uuidv7();
      return (await end(db, run, { status: ending, nonce })).kind;
    }
    switch (event) {
      case "claim": {
        await alone(ledger, run.runId);
        return (await claimRun(db, "worker-2", 10_000, CODE))?.runId === run.runId ? "claimed" : "none";
      }
      case "respond":
      case "call": {
        const { next_ordinal: ordinal } = await runRow(ledger, run.runId);
        const calls = event === "call" ? [aCall({ class: "pure", kind: "tool.query", target: null })] : [];
        return (await respond(db, run, calls, { ordinal })).kind;
      }
      case "collect": {
        const ids = await openCalls(run.runId);
        const results = ids.map((id) => ({ id, outcome: "real" as const, result: "200" }));
        return (await commitResults(db, { ...run, nonce: uuidv7() }, results)).kind;
      }
      case "release":
        return releaseLease(db, { ...run, delayMs: 0, reason: null, message: null, failed: false });
      case "park": {
        const call = await aCallToApprove(run);
        return park(db, { ...run, name: "", calls: [call] });
      }
      case "ask": {
        const call = await aCallToApprove(run, aQuestion());
        return ask(db, { ...run, call });
      }
      case "answer": {
        const [known] = await readQuestions(db, run.runId);
        const name = run.message.applied?.objectName ?? "";
        return (await answerQuestion(db, answers({ name }, known ?? (await askedBefore(run))))).kind;
      }
      case "expire": {
        await alone(ledger, run.runId);
        return (await claimRun(db, "worker-2", 10_000, CODE))?.runId === run.runId ? "claimed" : "none";
      }
      default:
        return stop(db, run.eventId);
    }
  }

  const cellOf = (answer: string, after: RunStatus): RunCell => {
    if (["already", "nothing_left"].includes(answer)) return "ignore";
    return ["none", "fenced", "ended", "late"].includes(answer) ? "refuse" : after;
  };

  for (const status of STATUSES) {
    for (const event of RUN_EVENTS) {
      const expected: RunCell = RUN_MACHINE[status][event];
      it(`answers ${event} in ${status} with ${expected}`, async () => {
        const run = await aRunIn(ledger.db, status, { applied: applied(uuidv7()) });
        if (event === "claim" && (status === "running" || status === "awaiting_tool")) await lapse(ledger, run.runId);
        // Only a question's time can be over: a turn that has not begun is not due here.
        if (event === "expire" && status === "queued") await alone(ledger);
        if (event === "expire" && status === "awaiting_input") await overdue(run.runId);
        const before = await runRow(ledger, run.runId);
        assert.equal(before.status, status);
        const answer = await send(event, status, run);
        const after = await runRow(ledger, run.runId);
        assert.equal(cellOf(answer, after.status), expected, answer);
        assert.equal(after.live, !isTerminal(after.status));
        if (expected === "ignore" || expected === "refuse") assert.deepEqual(after, before);
        else assert.ok(after.version > before.version, "what is shown of the run has a new version");
      });
    }
  }

  it("claims a run that was given back as well as one whose lease lapsed", async () => {
    for (const status of ["running", "awaiting_tool"] as const) {
      const run = await aRunIn(ledger.db, status);
      await releaseLease(ledger.db, { ...run, delayMs: 0, reason: null, message: null, failed: false });
      assert.equal(await send("claim", status, run), "claimed");
      assert.equal((await runRow(ledger, run.runId)).status, RUN_MACHINE[status].claim);
    }
  });

  it("refuses an ending of the same name from somebody else", async () => {
    const run = await aRunIn(ledger.db, "succeeded");
    assert.equal((await end(ledger.db, run, { status: "succeeded" })).kind, "ended");
  });

  it("waits for its tools as long as one call is open, and no longer", async () => {
    const run = await aRunIn(ledger.db, "running");
    const calls = [0, 1].map((idx) => aCall({ idx, class: "pure", kind: "tool.query", target: null }));
    await respond(ledger.db, run, calls);
    for (const [index, call] of calls.entries()) {
      assert.equal((await runRow(ledger, run.runId)).status, "awaiting_tool");
      const result = { id: call.id, outcome: "real" as const, result: String(index) };
      await commitResults(ledger.db, { ...run, nonce: uuidv7() }, [result]);
    }
    assert.equal((await runRow(ledger, run.runId)).status, "running");
  });

  it("does not take an unsent reply for a tool it waits for", async () => {
    const run = await aRunIn(ledger.db, "running");
    await respond(ledger.db, run, [aCall({ class: "reply", kind: "reply", target: null, args: { text: "hi" } })]);
    assert.equal((await runRow(ledger, run.runId)).status, "running");
    await releaseLease(ledger.db, { ...run, delayMs: 0, reason: null, message: null, failed: false });
    assert.equal((await runRow(ledger, run.runId)).status, "running");
  });
});
