import assert from "node:assert/strict";
import { MAX_LISTED, parseForget, renderForgotten, renderMemories } from "#cli/memories.ts";
import type { ListedMemory } from "#ledger/memory.ts";

const ID = "01990000-0000-7000-8000-000000000001";
const at = new Date(Date.UTC(2026, 0, 2, 9, 0, 1, 234));
const memory = (changes: Partial<ListedMemory> = {}): ListedMemory => ({
  id: ID,
  text: "Alice likes tea",
  audience: "conversation",
  visibility: `conversation:${ID}`,
  conversation: "orders",
  sources: [],
  actors: "alice",
  at,
  forgotten: null,
  ...changes,
});
const which = { namespace: "shop", agent: "clerk", every: false };

describe("pawl memories", () => {
  it("is a table of what is remembered, who sees it and where it came from", () => {
    const wide = memory({
      visibility: `agent:${ID}`,
      sources: ["crm.test", "api.test"],
      actors: "",
      text: "x".repeat(200),
    });
    const gone = memory({ visibility: "nowhere", forgotten: { at, by: "bob" } });
    const lines = renderMemories([memory(), wide, gone], { ...which, every: true }).split("\n");
    assert.deepEqual(
      lines.map((line) => line.split(/ {2,}/)),
      [
        ["ID", "SINCE", "FROM", "SEEN IN", "SOURCES", "FORGOTTEN", "TEXT"],
        [ID, "2026-01-02T09:00:01Z", "alice", "orders", "-", "-", "Alice likes tea"],
        [ID, "2026-01-02T09:00:01Z", "-", "all its conversations", "crm.test, api.test", "-", `${"x".repeat(120)}…`],
        [ID, "2026-01-02T09:00:01Z", "alice", "nowhere", "-", "2026-01-02T09:00:01Z by bob", "Alice likes tea"],
      ],
    );
  });

  it("says plainly that nothing is remembered, and where it looked", () => {
    assert.equal(renderMemories([], which), "Agent shop/clerk remembers nothing; --all shows the forgotten ones too.");
    assert.equal(renderMemories([], { ...which, every: true }), "Agent shop/clerk remembers nothing.");
  });

  it("lets no memory steer the terminal, nor look like another row", () => {
    const text = renderMemories([memory({ text: "a\u001b[2Jb\nc" })], which);
    assert.match(text, /a\ufffd\[2Jb\ufffdc$/);
    assert.equal(text.split("\n").length, 2);
  });

  it("says that it does not show all", () => {
    const lines = renderMemories(
      Array.from({ length: MAX_LISTED + 1 }, () => memory()),
      which,
    ).split("\n");
    assert.equal(lines.length, 1 + MAX_LISTED + 1);
    assert.equal(lines.at(-1), `Only the newest ${MAX_LISTED} are shown.`);
  });
});

describe("pawl memories forget", () => {
  it("takes an id and a name", () => {
    assert.deepEqual(parseForget(ID, " bob "), { memory: ID, by: "bob" });
    for (const [id, by, says] of [
      [undefined, "bob", /^which memory\?/],
      ["clerk", "bob", /^ID is the one/],
      [ID, "  ", /^say who/],
      [ID, undefined, /^say who/],
      [ID, "b".repeat(101), /at most 100/],
    ] as const) {
      assert.throws(() => parseForget(id, by), { reason: "Usage", message: says });
    }
  });

  it("says what became of it", () => {
    const asked = parseForget(ID, "bob");
    assert.match(renderForgotten(asked, { kind: "forgotten" }), /is forgotten: no agent recalls it any more$/);
    assert.match(
      renderForgotten(asked, { kind: "already", by: "the agent", at }),
      /already, since 2026-01-02T09:00:01Z, by the agent$/,
    );
    assert.throws(() => renderForgotten(asked, { kind: "unknown_memory" }), { reason: "MemoryUnknown" });
  });
});
