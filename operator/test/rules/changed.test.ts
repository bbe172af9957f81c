import assert from "node:assert/strict";
import { deletedWords, editedWords, MAX_QUOTED } from "#rules/changed.ts";

describe("the words of a changed message", () => {
  it("name the message in one line, and give an edit's text as it is", () => {
    assert.equal(
      editedWords("two cups\n of   tea", "three\ncups"),
      '(edited an earlier message, which began "two cups of tea"; it now reads as follows)\nthree\ncups',
    );
    assert.equal(deletedWords(" two cups "), '(took back an earlier message: "two cups")');
  });

  it("quote no more than it takes to know which message is meant, and no half character", () => {
    const long = deletedWords("\u{1F375}".repeat(MAX_QUOTED + 1));
    assert.equal(long, `(took back an earlier message: "${"\u{1F375}".repeat(MAX_QUOTED)}\u2026")`);
    assert.equal(deletedWords("x".repeat(MAX_QUOTED)), `(took back an earlier message: "${"x".repeat(MAX_QUOTED)}")`);
  });
});
