import assert from "node:assert/strict";
import { hintedKind } from "#rules/hints.ts";

describe("the hints of a server about a tool", () => {
  const table: [trusted: boolean, readOnly: boolean, destructive: boolean, kind: string][] = [
    [false, false, false, "tool.effect"],
    [false, true, false, "tool.effect"],
    [false, false, true, "tool.effect"],
    [false, true, true, "tool.effect"],
    [true, false, false, "tool.effect"],
    [true, true, false, "tool.query"],
    [true, false, true, "tool.effect"],
    [true, true, true, "tool.effect"],
  ];
  for (const [trusted, readOnly, destructive, kind] of table) {
    const hints = [...(readOnly ? ["reads only"] : []), ...(destructive ? ["destroys"] : [])].join(" and ");
    it(`${trusted ? "of a trusted one" : "of anybody"}: ${hints === "" ? "none" : hints} makes it a ${kind}`, () => {
      assert.equal(hintedKind({ readOnly, destructive }, trusted), kind);
    });
  }
});
