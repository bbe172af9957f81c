import assert from "node:assert/strict";
import { closing, unknownNote } from "#rules/closing.ts";
import { MAX_NAMED_EFFECTS } from "#rules/limits.ts";

const effect = (target: string, state: string) => ({ target, state });

describe("the closing words of a turn", () => {
  it("say that nothing was changed when nothing was", () => {
    assert.equal(closing("stopped", []), "Stopped, as you asked. Nothing outside was changed.");
    assert.equal(
      closing("exhausted", []),
      "I could not finish this within what I am allowed to use for one request. Nothing outside was changed.\nAsk again if I should go on.",
    );
  });

  it("name every effect with its fate, what is unclear first", () => {
    const text = closing("stopped", [
      effect("a", "confirmed"),
      effect("b", "failed"),
      effect("c", "unknown"),
      effect("d", "dispatched"),
    ]);
    assert.equal(
      text,
      [
        "Stopped, as you asked. What I had tried to change by then:",
        "- c: outcome unknown, please check",
        "- d: outcome unknown, please check",
        "- a: done",
        "- b: did not take place",
      ].join("\n"),
    );
  });

  it("end their list where nobody reads on, and never before what is unclear", () => {
    const many = Array.from({ length: 200 }, (_, n) => effect(`t${n}`, n === 199 ? "unknown" : "confirmed"));
    const lines = closing("stopped", many).split("\n");
    assert.equal(lines.length, MAX_NAMED_EFFECTS + 2);
    assert.deepEqual(
      [lines[1], lines.at(-1)],
      ["- t199: outcome unknown, please check", `- and ${200 - MAX_NAMED_EFFECTS} more`],
    );
  });

  it("hold no counter and no word of the ledger", () => {
    for (const why of ["stopped", "exhausted"] as const)
      assert.doesNotMatch(
        closing(why, [effect("a", "confirmed")]),
        /budget|iteration|token|confirmed|dispatched|run /i,
      );
  });
});

describe("the note about unclear writes", () => {
  it("is none when all is known", () => {
    assert.equal(unknownNote([effect("a", "confirmed"), effect("b", "failed")]), null);
  });

  it("counts the writes, names three targets once each, by their beginning", () => {
    const long = "https://x.test/".padEnd(2_000, "y");
    const note = unknownNote([long, "b", "b", "c", "d"].map((target) => effect(target, "unknown"))) ?? "";
    assert.match(note, /^the outcome of 5 writes is not known \(https:\/\/x\.test\/y+…, b, c\): check there before/);
    assert.ok(note.length < 300);
  });
});
