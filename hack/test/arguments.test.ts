import assert from "node:assert/strict";
import { parseArguments } from "../cluster/arguments.ts";
import { parseArguments as parseImageArguments } from "../images/arguments.ts";
import { UserError } from "../lib/say.ts";

describe("the command line of the cluster", () => {
  it("takes a command, a context and --json in any order", () => {
    const expected = { command: "up", context: "kind-x", json: true };
    assert.deepEqual(parseArguments(["up", "--context", "kind-x", "--json"]), expected);
    assert.deepEqual(parseArguments(["--json", "--context=kind-x", "up"]), expected);
  });

  it("shows the help when nothing is asked", () => {
    assert.equal(parseArguments([]).command, "help");
    assert.equal(parseArguments(["down", "--help"]).command, "help");
  });

  for (const words of [["upp"], ["up", "down"], ["up", "--contxt", "x"], ["up", "--context"], ["up", "--context="]]) {
    it(`refuses "${words.join(" ")}" with a sentence`, () => {
      assert.throws(() => parseArguments(words), UserError);
    });
  }
});

describe("the command line of the images", () => {
  it("takes where to push and where to write", () => {
    const expected = { help: false, push: "r.example/p", out: "d", json: false };
    assert.deepEqual(parseImageArguments(["--push", "r.example/p", "--out", "d"]), expected);
  });

  it("refuses --push without a value", () => {
    assert.throws(() => parseImageArguments(["--push"]), UserError);
    assert.throws(() => parseImageArguments(["--push="]), UserError);
  });
});
