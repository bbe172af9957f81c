import assert from "node:assert/strict";
import { matchesAny, matchesGlob } from "#rules/globs.ts";

describe("a glob over tool names", () => {
  for (const [glob, fits, not] of [
    ["deploy", ["deploy"], ["deploys", "redeploy", ""]],
    ["*", ["", "deploy", "a*b"], []],
    ["github_*", ["github_", "github_create_issue"], ["gitlab_create", "my_github_x"]],
    ["*_delete", ["x_delete", "_delete"], ["x_deleted", "delete"]],
    ["a*b*c", ["abc", "a1b2c", "abbcc"], ["acb", "ab", "abcd"]],
    ["a*a", ["aa", "aba"], ["a"]],
    ["a**b", ["ab", "axb"], ["a"]],
    ["h.t*", ["h.t", "h.tt"], ["hxt"]],
  ] as const) {
    it(`\`${glob}\` takes \`*\` as any run of characters and everything else as itself`, () => {
      for (const name of fits) assert.ok(matchesGlob(glob, name), name);
      for (const name of not) assert.ok(!matchesGlob(glob, name), name);
    });
  }

  it("fits when one of several does", () => {
    assert.ok(matchesAny(["x", "de*"], "deploy"));
    assert.ok(!matchesAny([], "deploy"));
  });
});
