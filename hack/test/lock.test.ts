import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { withLock } from "../lib/lock.ts";

describe("a lock file", () => {
  let folder: string;
  const quiet = () => {};
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "pawl-lock-"));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  it("lets one in at a time and leaves nothing behind", async () => {
    const path = join(folder, "lock");
    let inside = 0;
    let most = 0;
    const enter = () =>
      withLock(path, "it", quiet, async () => {
        most = Math.max(most, ++inside);
        await new Promise(setImmediate);
        inside--;
      });
    await Promise.all([enter(), enter(), enter()]);
    assert.equal(most, 1);
    assert.deepEqual(readdirSync(folder), []);
  });

  it("is given back when the work fails", async () => {
    const path = join(folder, "lock");
    await assert.rejects(
      withLock(path, "it", quiet, () => Promise.reject(new Error("broken"))),
      /broken/,
    );
    assert.equal(existsSync(path), false);
  });

  for (const [whose, content] of [
    ["of a process that has ended", JSON.stringify({ pid: process.pid, start: "1@before" })],
    ["that cannot be read", "{"],
  ] as const) {
    it(`${whose} is taken over`, async () => {
      const path = join(folder, "lock");
      writeFileSync(path, content);
      assert.equal(await withLock(path, "it", quiet, async () => "done"), "done");
      assert.deepEqual(readdirSync(folder), []);
    });
  }
});
