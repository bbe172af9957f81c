import assert from "node:assert/strict";
import fc from "fast-check";
import { runStatus, type RunStatus } from "@pawl/crds";
import { decideRun } from "#controllers/run/decide.ts";
import { fit, MAX_STATUS_BYTES, statusBytes } from "#controllers/run/fit.ts";
import { project } from "#controllers/run/project.ts";
import { clip, hasNul, jsonBytes, line, span } from "#controllers/text.ts";
import { anAgent, facts, replied, runObject, shown, working } from "./support.ts";

/** Any text: control characters, quotes, emoji, lone surrogates. */
const nasty = (max: number) =>
  fc.oneof(
    fc.string({ maxLength: max, unit: "binary" }),
    fc.string({ maxLength: max, unit: fc.constantFrom('"', "\\", "\u0001", "ä", "🦫", "\ud800", "a") }),
    fc.constantFrom("🦫", '"', "\u0001", "x").map((unit) => unit.repeat(max)),
  );
const word = nasty(400);

const wide = fc.record({
  reason: fc.option(word),
  message: fc.option(nasty(1_200)),
  actors: fc.array(nasty(300), { maxLength: 40 }),
  answered_by: nasty(300),
  opening_event: fc.constantFrom("event-0", "event-1"),
  reply: nasty(4_000),
  triggers: fc.integer({ min: 0, max: 10 ** 12 }),
  input_tokens: fc.integer({ min: 0, max: 2 ** 50 }),
  output_tokens: fc.integer({ min: 0, max: 2 ** 50 }),
  steps: fc.integer({ min: 0, max: 2 ** 31 }),
  effects_total: fc.integer({ min: 0, max: 10 ** 9 }),
  effects_unknown: fc.integer({ min: 0, max: 10 ** 9 }),
  committed_tool: word,
  committed_step: fc.integer({ min: 0, max: 100_000 }),
  last_effects: fc.array(
    fc.record({ name: word, target: nasty(2_000), state: fc.constantFrom("confirmed", "unknown") }),
    {
      maxLength: 12,
    },
  ),
  last_interrupt: fc.record({ relation: word, asked: word, done: word, reason: word }),
  open_tool: fc.option(word),
  streamed: fc.integer({ min: 0, max: 2 ** 31 - 1 }),
});

describe("a status, whatever the ledger holds,", () => {
  it("fits its bound, its schema, and never loses a count or a condition", () => {
    fc.assert(
      fc.property(wide, nasty(300), nasty(300), fc.boolean(), (row, actor, replayOf, done) => {
        const mirror = done
          ? replied(row.reply, row)
          : working({ ...row, replied: true, committed_at: new Date(0), committed_kind: "tool.effect" });
        const { status } = project(shown(mirror, { actor, replayOf }));
        assert.ok(statusBytes(status) <= MAX_STATUS_BYTES, `${statusBytes(status)} bytes`);
        const parsed = runStatus.safeParse(status);
        assert.ok(parsed.success, JSON.stringify(parsed.error?.issues));
        assert.equal(status.conditions?.length, 5);
        assert.equal(status.answer?.bytes, Buffer.byteLength(row.reply));
        for (const field of ["triggers", "effects", "usage", "boundary", "ledger"] as const)
          assert.notEqual(status[field], undefined, field);
        assert.ok(!JSON.stringify(status).includes("\\ud8"), "no half character");
      }),
      { numRuns: 400 },
    );
  });

  it("fits while it waits, too, and when its ledger is lost", () => {
    fc.assert(
      fc.property(nasty(9_000), word, (text, reason) => {
        const waiting = decideRun(
          facts({
            object: runObject({ input: { text, actor: text.slice(0, 253) } }),
            agent: anAgent({
              accepted: { status: "False", reason, message: text },
              refsReason: undefined,
              stored: null,
            }),
          }),
        );
        assert.ok(waiting.do === "show" && statusBytes(waiting.status) <= MAX_STATUS_BYTES);
        const lost = decideRun(facts({ object: runObject({}, {}, { runID: "x", activity: clip(text, 64) }) }));
        assert.ok(lost.do === "show" && statusBytes(lost.status) <= MAX_STATUS_BYTES);
      }),
      { numRuns: 100 },
    );
  });
});

describe("shrinking", () => {
  const long = (n: number) => "m".repeat(n);
  const full: RunStatus = {
    message: long(256),
    triggers: { total: 7, actors: [long(253), long(253), long(253)] },
    effects: { total: 5, unknown: 0, last: [{ name: long(64), target: long(128), state: "Confirmed" }] },
    answer: { bytes: 9_000, sha256: "0".repeat(64), preview: long(1_024) },
  };
  const shape = (status: RunStatus) => ({
    preview: status.answer?.preview?.length ?? 0,
    actors: status.triggers?.actors?.length ?? 0,
    effects: status.effects?.last?.length ?? 0,
    message: status.message?.length ?? 0,
  });

  it("leaves alone what fits", () => {
    assert.deepEqual(fit(full, statusBytes(full)), full);
  });

  it("takes from the preview first, then actors, then effects, then messages", () => {
    const size = statusBytes(full);
    const steps = [500, 1_100, 1_700, 1_900, 2_100].map((less) => shape(fit(full, size - less)));
    assert.ok((steps[0]?.preview ?? 0) < 600 && (steps[0]?.preview ?? 0) > 400);
    assert.deepEqual({ ...steps[0], preview: 0 }, { preview: 0, actors: 3, effects: 1, message: 256 });
    assert.deepEqual(steps[1], { preview: 0, actors: 2, effects: 1, message: 256 });
    assert.deepEqual(steps[2], { preview: 0, actors: 0, effects: 1, message: 256 });
    assert.deepEqual(steps[3], { preview: 0, actors: 0, effects: 0, message: 256 });
    assert.ok((steps[4]?.message ?? 256) < 256);
  });

  it("keeps every count", () => {
    const least = fit(full, 0);
    assert.deepEqual([least.triggers?.total, least.effects?.total, least.answer?.bytes], [7, 5, 9_000]);
  });
});

describe("text", () => {
  it("is cut between characters, by bytes as JSON has them", () => {
    fc.assert(
      fc.property(nasty(100), fc.integer({ min: 3, max: 120 }), (text, max) => {
        const cut = clip(text, max);
        assert.ok(jsonBytes(cut) <= max);
        assert.ok(cut.isWellFormed());
        if (jsonBytes(text.toWellFormed()) <= max) assert.equal(cut, text.toWellFormed());
        else assert.ok(cut.endsWith("…"));
      }),
    );
  });

  it("is one line where a table shows it", () => {
    assert.equal(line("a\n\tb\u0000c", 64), "a b c");
  });

  it("says spans as people do", () => {
    assert.deepEqual([0, 42_000, 60_000, 185_000, 3_600_000, 7_800_000].map(span), [
      "0s",
      "42s",
      "1m",
      "3m5s",
      "1h",
      "2h10m",
    ]);
  });

  it("finds the one character that PostgreSQL refuses, wherever it is", () => {
    assert.equal(hasNul({ a: [{ b: "x\0" }] }), true);
    assert.equal(hasNul({ a: ["\\u0000"] }), false);
  });
});
