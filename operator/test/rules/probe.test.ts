import assert from "node:assert/strict";
import { type ProbeAnswer, seenIn } from "#rules/probe.ts";

describe("the answer of a probe", () => {
  const table: [title: string, answer: ProbeAnswer, seen: string][] = [
    ["that holds the text says that it landed", { kind: "confirmed", observation: "note key-1" }, "landed"],
    ["that holds it though it was cut, too", { kind: "confirmed", observation: "note key-1", partial: true }, "landed"],
    ["without it says that it is not there", { kind: "confirmed", observation: "[]" }, "absent"],
    ["without it, but cut, says nothing", { kind: "confirmed", observation: "…", partial: true }, "inconclusive"],
    ["that nothing is at that place says so", { kind: "failed", observation: "HTTP 404", absent: true }, "absent"],
    ["that is an error says nothing, whatever its words", { kind: "failed", observation: "no key-1" }, "inconclusive"],
    ["that never came says nothing", { kind: "unknown", observation: "key-1" }, "inconclusive"],
  ];
  for (const [title, answer, seen] of table) it(title, () => assert.equal(seenIn(answer, "key-1"), seen));

  it("proves nothing when the text to be found is empty: it is in every answer", () => {
    for (const found of ["", " "]) {
      assert.equal(seenIn({ kind: "confirmed", observation: "note " }, found), "inconclusive");
    }
  });
});
