/** What a look says about the state of a place, how it is kept, and how it is told. */
import assert from "node:assert/strict";
import { shownState, type State, type StateAnswer, stateIn, storedState, valueOf } from "#rules/state.ts";

const json = (result: unknown): StateAnswer => ({ kind: "confirmed", observation: "HTTP 200", receipt: { result } });
const text: StateAnswer = { kind: "confirmed", observation: "on", receipt: {} };

describe("the state of a place", () => {
  const looks: readonly [string, StateAnswer, string | undefined, State | null][] = [
    ["is the JSON of the answer", json({ a: 1 }), undefined, { value: { a: 1 } }],
    ["is the part that the path leads to", json({ a: { b: [7] }, at: "now" }), "a.b.0", { value: 7 }],
    ["may be null, where the path leads to that", json({ a: null }), "a", { value: null }],
    ["is not known where nothing stands at the path", json({ a: 1 }), "b", null],
    ["is not known where the path leads out of what the answer holds", json({ a: 1 }), "a.constructor", null],
    ["is not known where a path is longer than any JSON", json({}), "a.a.a.a.a.a.a.a.a", null],
    ["is the text of an answer that is no JSON", text, undefined, { text: "on" }],
    ["is not known where a path is declared and the answer is no JSON", text, "a", null],
    ["is not known where only part of the text came", { ...text, partial: true }, undefined, null],
    [
      "is absent where the service says so",
      { kind: "failed", observation: "404", absent: true },
      "a",
      { absent: true },
    ],
    ["is not known when the look failed", { kind: "failed", observation: "HTTP 500" }, undefined, null],
    ["is not known when nobody answered", { kind: "unknown", observation: "" }, undefined, null],
  ];
  for (const [title, answer, path, state] of looks) {
    it(title, () => assert.deepEqual(stateIn(answer, path), state));
  }

  it("is kept as a row keeps it; what this version does not know is no state", () => {
    for (const state of [{ value: null }, { value: 0 }, { text: "" }, { absent: true }] as const) {
      assert.deepEqual(storedState(JSON.parse(JSON.stringify(state))), state);
    }
    for (const other of [null, undefined, 1, {}, { absent: false }, { hash: "x" }]) {
      assert.equal(storedState(other), null);
    }
  });

  const each: State[] = [{ value: { a: 1 } }, { text: "on" }, { absent: true }];

  it("is a value in templates, but for what was not there or not seen", () => {
    assert.deepEqual([...each, null].map(valueOf), [{ a: 1 }, "on", undefined, undefined]);
  });

  it("is told in words, shortened", () => {
    assert.deepEqual(each.map(shownState), ['{"a":1}', "on", "nothing"]);
    assert.ok(shownState({ text: "x".repeat(10_000) }).length < 400);
  });
});
