import assert from "node:assert/strict";
import { isPawlError } from "#rules/errors.ts";
import { createDialer } from "#tools/dialer.ts";
import { allowance } from "#tools/addresses.ts";
import { httpRequestTool } from "#tools/http-request.ts";
import { calculate } from "#tools/quick.ts";
import { toolRegistry } from "#tools/registry.ts";
import { systemClock } from "#src/clock.ts";

describe("the tool registry", () => {
  const http = httpRequestTool({
    clock: systemClock,
    dialer: createDialer({ clock: systemClock, allowance: allowance([]) }),
  });

  it("knows its tools by name and nothing else", () => {
    const registry = toolRegistry([calculate, http]);
    assert.equal(registry.get("calculate"), calculate);
    assert.equal(registry.get("toString"), undefined);
    assert.equal(registry.get("unknown"), undefined);
    assert.deepEqual([...registry.keys()], ["calculate", "http_request"]);
  });

  it("refuses two tools of one name, and names that providers refuse", () => {
    assert.throws(
      () => toolRegistry([calculate, calculate]),
      (error) => isPawlError(error, "invariant"),
    );
    assert.throws(
      () => toolRegistry([{ ...calculate, name: "a.b" }]),
      (error) => isPawlError(error, "invariant"),
    );
  });

  it("offers schemas of object type, whole in themselves", () => {
    for (const { parameters } of toolRegistry([calculate, http]).values()) {
      assert.equal(parameters["type"], "object");
      assert.ok(!JSON.stringify(parameters).includes("$ref"));
    }
  });
});
