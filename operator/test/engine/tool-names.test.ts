import assert from "node:assert/strict";
import fc from "fast-check";
import { MAX_NAME, namesFor } from "#engine/tool-names.ts";
import { RESERVED } from "#engine/toolset.ts";

const namesOf = (tools: [server: string, tool: string][], taken: string[] = []) => [
  ...namesFor(
    tools.map(([server, tool]) => ({ server, tool })),
    new Set(taken),
  ).keys(),
];

describe("what the model calls the tools of servers", () => {
  it("is server and tool, in characters that every provider takes", () => {
    assert.deepEqual(
      namesOf([
        ["desk", "create"],
        ["cal", "calendar.create"],
      ]),
      ["desk_create", "cal_calendar_create"],
    );
  });

  it("ends in a hash where it would be too long, or the same as another, or the name of a tool of ours (C33)", () => {
    const long = namesOf([["desk", "x".repeat(80)]]);
    assert.match(long[0] ?? "", /^desk_x{50}_[0-9a-f]{8}$/);
    assert.equal(long[0]?.length, MAX_NAME);
    const same = namesOf([
      ["a", "b.c"],
      ["a", "b/c"],
      ["a", "d"],
    ]);
    assert.match(same[0] ?? "", /^a_b_c_[0-9a-f]{8}$/);
    assert.match(same[1] ?? "", /^a_b_c_[0-9a-f]{8}$/);
    assert.equal(same[2], "a_d");
    assert.match(namesOf([["read", "result"]], [...RESERVED])[0] ?? "", /^read_result_[0-9a-f]{8}$/);
    assert.match(namesOf([["http", "request"]], ["http_request"])[0] ?? "", /^http_request_[0-9a-f]{8}$/);
  });

  it("is the same in whatever order they are listed", () => {
    const tools: [string, string][] = [
      ["a", "b.c"],
      ["a", "b/c"],
      ["a_b", "c"],
      ["x", "y"],
    ];
    assert.deepEqual(namesOf(tools).toSorted(), namesOf(tools.toReversed()).toSorted());
  });

  it("counts a tool that is listed twice once", () => {
    assert.deepEqual(
      namesOf([
        ["a", "b"],
        ["a", "b"],
      ]),
      ["a_b"],
    );
  });

  it("is usable and unlike any other, whatever servers come up with", () => {
    const tool = fc.record({
      server: fc.constantFrom("a", "a-b", "desk"),
      tool: fc.string({ minLength: 1, maxLength: 90 }),
    });
    fc.assert(
      fc.property(fc.array(tool, { maxLength: 12 }), (tools) => {
        const names = namesFor(tools, new Set(["calculate"]));
        for (const name of names.keys()) assert.match(name, /^[a-zA-Z0-9_-]{1,64}$/);
        assert.equal(names.size, new Set(tools.map((one) => JSON.stringify(one))).size);
      }),
    );
  });
});
