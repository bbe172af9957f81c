import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { identify, isRunning, signal, startTimeInStat } from "../lib/processes.ts";

describe("a recorded process", () => {
  it("is the process with that id and that start time, and no other", () => {
    const me = identify(process.pid);
    assert.ok(me);
    assert.equal(isRunning(me), true);
    assert.equal(isRunning({ ...me, start: "1@before" }), false);
  });

  it("gets no signal when its id now belongs to another process", async () => {
    const child = spawn("sleep", ["60"]);
    try {
      await once(child, "spawn");
      const recorded = identify(child.pid ?? 0);
      assert.ok(recorded);
      assert.equal(signal({ ...recorded, start: "1@before" }, "SIGKILL"), false);
      assert.equal(isRunning(recorded), true);
      assert.equal(signal(recorded, "SIGKILL"), true);
    } finally {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
  });

  it("has its start time found behind a name with blanks and brackets", () => {
    const fields = Array.from({ length: 30 }, (_, index) => String(index + 4)).join(" ");
    assert.equal(startTimeInStat(`7 (a) b (c)) S ${fields}`), "22");
  });

  it("has ended when it is a zombie", () => {
    const fields = Array.from({ length: 30 }, (_, index) => String(index + 4)).join(" ");
    assert.equal(startTimeInStat(`7 (a) Z ${fields}`), undefined);
  });
});
