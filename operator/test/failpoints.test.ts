import assert from "node:assert/strict";
import { globSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { armFailpoint } from "#src/failpoints.ts";
import { statements } from "#ledger/statement.ts";
import { ELSEWHERE, PORTS, SWEPT } from "./sweep/points.ts";

const SRC = join(import.meta.dirname, "../src");

describe("failpoints", () => {
  before(async () => {
    for (const file of readdirSync(join(SRC, "ledger"))) await import(join(SRC, "ledger", file));
  });

  it("stand before and after every statement, because statements have one way to the server", () => {
    const text = readFileSync(join(SRC, "ledger/database.ts"), "utf8");
    const sends = [...text.matchAll(/client\.query\(\{/g)].length;
    assert.equal(sends, 1, "one place sends statements");
    assert.match(text, /failpoint\(`before:\$\{statement\.name\}`\)/);
    assert.match(text, /failpoint\(`after:\$\{statement\.name\}`\)/);
  });

  it("leave no statement out of the sweep without a reason", () => {
    const names = statements().map((statement) => statement.name);
    const known = (name: string) =>
      (SWEPT as readonly string[]).includes(name) ||
      Object.keys(ELSEWHERE).some((prefix) => name === prefix || (prefix.endsWith("_") && name.startsWith(prefix)));
    assert.deepEqual(
      names.filter((name) => !known(name)),
      [],
    );
    const gone = [...SWEPT, ...Object.keys(ELSEWHERE)].filter(
      (name) => !names.some((one) => one === name || (name.endsWith("_") && one.startsWith(name))),
    );
    assert.deepEqual(gone, [], "and name none that does not exist");
  });

  it("stand around every outside call", () => {
    const text = globSync("{engine,tools}/**/*.ts", { cwd: SRC })
      .map((file) => readFileSync(join(SRC, file), "utf8"))
      .join("\n");
    for (const port of [...PORTS, "before:probe", "after:probe"]) {
      const name = port
        .replace("tool.http_request", "tool.${tool.name}")
        .replace(/^(http_request|mcp):/, "${nameOf(plan)}:");
      assert.ok(text.includes(`failpoint("${name}")`) || text.includes(`failpoint(\`${name}\`)`), port);
    }
  });

  it("say how they are written when they cannot be read", () => {
    assert.throws(() => armFailpoint("before:commit"), /name:occurrence:kill\|stop\|swallow/);
  });
});
