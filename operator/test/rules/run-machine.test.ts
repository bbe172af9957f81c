import assert from "node:assert/strict";
import { isTerminal, LIVE, RUN_EVENTS, RUN_MACHINE, STATUSES, TERMINAL } from "#rules/run-machine.ts";

describe("the run machine", () => {
  it("has exactly the eight statuses, four live and four terminal", () => {
    assert.deepEqual(LIVE, ["queued", "running", "awaiting_tool", "awaiting_input"]);
    assert.deepEqual(TERMINAL, ["succeeded", "failed", "cancelled", "budget_exhausted"]);
    assert.deepEqual(STATUSES, [...LIVE, ...TERMINAL]);
    assert.deepEqual(STATUSES.filter(isTerminal), TERMINAL);
  });

  it("answers every event in every status with a status, `ignore` or `refuse`, and nothing else", () => {
    assert.deepEqual(Object.keys(RUN_MACHINE), STATUSES);
    for (const status of STATUSES) {
      assert.deepEqual(Object.keys(RUN_MACHINE[status]), RUN_EVENTS, status);
      for (const event of RUN_EVENTS) {
        assert.ok([...STATUSES, "ignore", "refuse"].includes(RUN_MACHINE[status][event]), `${status} × ${event}`);
      }
    }
  });

  it("never leaves a terminal status", () => {
    for (const status of TERMINAL) {
      for (const event of RUN_EVENTS) assert.ok(["ignore", "refuse"].includes(RUN_MACHINE[status][event]));
    }
  });

  it("ignores in a terminal status only a repeat of what ended it, and a late stop", () => {
    const ignored = TERMINAL.map((status) => RUN_EVENTS.filter((event) => RUN_MACHINE[status][event] === "ignore"));
    assert.deepEqual(ignored, [
      ["succeed", "stop"],
      ["fail", "stop"],
      ["cancel", "stop"],
      ["exhaust", "stop"],
    ]);
  });

  it("lets nobody but a claim or a stop move a queued turn", () => {
    const moved = RUN_EVENTS.filter((event) => RUN_MACHINE.queued[event] !== "refuse");
    assert.deepEqual(moved, ["claim", "stop"]);
    assert.equal(RUN_MACHINE.queued.claim, "running");
  });

  it("lets only an answer, the end of its time or a stop move a turn that waits for an answer", () => {
    assert.deepEqual(
      RUN_EVENTS.filter((event) => RUN_MACHINE.awaiting_input[event] !== "refuse"),
      ["answer", "expire", "stop"],
    );
  });

  it("ends every live turn when it is stopped before its boundary", () => {
    for (const status of LIVE) assert.equal(RUN_MACHINE[status].stop, "cancelled");
  });

  it("reaches every status from a queued turn", () => {
    const reached = new Set<string>(["queued"]);
    for (let before = 0; before !== reached.size; ) {
      before = reached.size;
      for (const status of STATUSES) {
        if (!reached.has(status)) continue;
        for (const cell of Object.values(RUN_MACHINE[status])) {
          if (cell !== "ignore" && cell !== "refuse") reached.add(cell);
        }
      }
    }
    assert.deepEqual(
      STATUSES.filter((status) => !reached.has(status)),
      [],
    );
  });
});
