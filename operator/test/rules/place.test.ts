import assert from "node:assert/strict";
import { isAllowed, placeOf } from "#rules/place.ts";

describe("a tool in a place", () => {
  const rules = [
    { place: "Direct", allow: ["a_*", "b"], deny: ["*_delete"] },
    { place: "Shared", allow: ["*"], deny: ["*"] },
  ];
  it("may be used when it is allowed and not denied: denying is stronger", () => {
    assert.deepEqual(
      ["a_read", "b", "a_delete", "c"].map((tool) => isAllowed(rules, "Direct", tool)),
      [true, true, false, false],
    );
  });
  it("may be used where nobody wrote a rule, and nowhere else than there", () => {
    assert.equal(isAllowed(rules, "Private", "c"), true);
    assert.equal(isAllowed(rules, "Shared", "b"), false);
  });
  it("is in a direct conversation for as long as there are no other connectors", () => {
    assert.equal(placeOf("kubernetes/demo"), "Direct");
  });
});
