import assert from "node:assert/strict";
import { argumentCheck } from "#mcp/arguments.ts";
import { MAX_DESCRIPTION, MAX_SCHEMA } from "#mcp/limits.ts";
import { takeTool } from "#mcp/listing.ts";
import { withoutKey } from "#mcp/tool.ts";

const schema = { type: "object", properties: { a: { type: "string" } } };

describe("a tool as its server lists it", () => {
  it("is taken with its hints, and without what is not understood", () => {
    const listed = { name: "x", description: "d", inputSchema: schema, annotations: { readOnlyHint: true, title: 1 } };
    assert.deepEqual(takeTool(listed), {
      ok: true,
      tool: { name: "x", description: "d", parameters: schema, readOnly: true, destructive: false },
    });
    const odd = takeTool({ name: "x", inputSchema: schema, annotations: "none" });
    assert.ok(odd.ok && !odd.tool.readOnly && odd.tool.description === "");
  });

  it("has a description of bounded length that can be stored", () => {
    const taken = takeTool({ name: "x", description: `a\0${"d".repeat(MAX_DESCRIPTION * 2)}`, inputSchema: schema });
    assert.ok(taken.ok);
    assert.ok(taken.tool.description.length < MAX_DESCRIPTION + 100 && !taken.tool.description.includes("\0"));
  });

  const out: [title: string, listed: unknown, why: RegExp][] = [
    ["without a schema", { name: "x" }, /^x \(its schema is no schema of an object\)$/],
    ["of a list", { name: "x", inputSchema: { type: "array" } }, /no schema of an object/],
    ["without a name", { inputSchema: schema }, /^a tool without a name/],
    ["that is nothing", null, /^a tool without a name/],
    ["with too long a name", { name: "x".repeat(200), inputSchema: schema }, /more than 128 characters/],
    [
      "with too large a schema",
      { name: "x", inputSchema: { ...schema, a: "x".repeat(MAX_SCHEMA) } },
      /more than 16384 bytes/,
    ],
    ["with a schema that cannot be stored", { name: "x", inputSchema: { ...schema, a: "\0" } }, /cannot be stored/],
  ];
  for (const [title, listed, why] of out) {
    it(`is left out ${title}, with the reason`, () => {
      const taken = takeTool(listed);
      assert.match(taken.ok ? "" : taken.why, why);
    });
  }
});

describe("a schema without its key", () => {
  it("neither shows nor requires it, and is itself where there is none", () => {
    const full = { type: "object", properties: { a: {}, key: {} }, required: ["a", "key"] };
    assert.deepEqual(withoutKey(full, "key"), { type: "object", properties: { a: {} }, required: ["a"] });
    assert.equal(withoutKey(full, undefined), full);
    assert.deepEqual(withoutKey({ type: "object" }, "key"), { type: "object", properties: {} });
  });
});

describe("arguments under a server's schema", () => {
  const passes = (schemaOf: Record<string, unknown>, args: unknown) => argumentCheck(schemaOf)(args).ok;

  it("are checked in the dialect that the schema names", () => {
    const tuple = { type: "object", properties: { a: { type: "array", prefixItems: [{ type: "string" }] } } };
    assert.equal(passes(tuple, { a: [1] }), false);
    const old = {
      $schema: "http://json-schema.org/draft-07/schema#",
      type: "object",
      properties: { a: { type: "array", items: [{ type: "string" }] } },
    };
    assert.equal(passes(old, { a: [1] }), false);
  });

  it("pass as any object where the schema cannot be made sense of", () => {
    const unusable = [
      { type: "object", properties: { a: { $ref: "https://elsewhere.test/schema" } } },
      { type: "object", properties: 7 },
      { type: "object", $async: true },
    ];
    for (const one of unusable) {
      assert.equal(passes(one, { a: 1 }), true);
      assert.equal(passes(one, [1]), false);
    }
  });

  it("are never held up by a pattern that takes for ever", () => {
    const hostile = { type: "object", properties: { a: { type: "string", pattern: "^(a+)+$" } } };
    assert.equal(passes(hostile, { a: `${"a".repeat(50)}!` }), true);
  });

  it("may repeat the names of another server's schema", () => {
    const named = { $id: "https://same.test/x", type: "object", required: ["a"] };
    assert.equal(passes(named, {}), false);
    assert.equal(passes({ ...named, required: ["b"] }, { a: 1 }), false);
  });
});
