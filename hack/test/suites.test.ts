import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { repository } from "../lib/environment.ts";
import { SUITES } from "../lib/suites.ts";

describe("the suites of npm test", () => {
  it("hold every test file of the repository exactly once", () => {
    const exclude = (name: string): boolean => name.includes("node_modules");
    const all = globSync("**/*.test.ts", { cwd: repository, exclude }).sort();
    const held = Object.values(SUITES).flatMap((globs) =>
      globs.flatMap((glob) => globSync(glob, { cwd: repository, exclude })),
    );
    assert.ok(all.length > 60);
    assert.deepEqual(held.sort(), all);
  });
});
