/** What people say in `mailbox`, and how it is counted. No benchmark runs here. */
import assert from "node:assert/strict";
import { barsOf, type Figures, figuresOf, tableOf } from "../mailbox.ts";
import { boundMs } from "../talk/policy.ts";
import { CONVERSATIONS, MESSAGES, schedule, SHAPES, spokenOf } from "../talk/schedule.ts";
import { MODES, type Outcome, TALKERS } from "../talk/system.ts";

describe("what people say in the benchmark mailbox", () => {
  const said = schedule();

  it("is twenty messages in each of fifty conversations, each with a name of its own, in the order of time", () => {
    assert.equal(said.length, CONVERSATIONS * MESSAGES);
    assert.equal(new Set(said.map(({ id }) => id)).size, said.length);
    assert.deepEqual(
      said,
      said.toSorted((a, b) => a.atMs - b.atMs),
    );
    assert.deepEqual([...new Set(said.map(({ shape }) => shape))].toSorted(), [...SHAPES].toSorted());
  });

  it("names its message in the text, but for a stop, which says nothing else", () => {
    for (const one of said) assert.deepEqual(spokenOf(one.text), one.stops ? [] : [one.id]);
    assert.ok(said.some(({ stops }) => stops));
  });

  it("has two people in some conversations, and second deliveries in all shapes", () => {
    assert.ok(said.some(({ actor }) => actor === "bob"));
    for (const shape of SHAPES) assert.ok(said.some((one) => one.shape === shape && one.twice));
  });
});

describe("the benchmark mailbox", () => {
  const outcome = (changes: Partial<Outcome>): Outcome => ({
    turns: 100,
    asked: 100,
    lost: [],
    doubled: [],
    stopped: 0,
    waits: [100, 200, 300],
    ...changes,
  });
  const figures = (changes: Partial<Figures> = {}): Figures => ({ ...figuresOf([outcome({})]), ...changes });
  const own = MODES.map((mode) => [`pawl ${mode}`, figures()] as const);
  const peers = [
    ["chat drop", figures({ turns: 1, lost: 9 })],
    ["chat concurrent", figures({ turns: 50, doubled: 1 })],
    ["chat queue", figures({ turns: 120 })],
    ["chat burst", figures({ turns: 100 })],
  ] as const;
  const missed = (changes: Partial<Figures>): string[] =>
    barsOf(new Map([...own, ...peers, ["pawl enqueue", figures(changes)]]))
      .filter(({ ok }) => !ok)
      .map(({ name }) => name);

  it("adds up over the rounds what must not happen, and keeps the longest wait of all", () => {
    const over = figuresOf([
      outcome({ lost: ["a"], waits: [1, 2, 900] }),
      outcome({}),
      outcome({ lost: ["b", "c"], doubled: ["d"] }),
    ]);
    assert.deepEqual([over.lost, over.doubled, over.longest], [3, 1, 900]);
  });

  it("compares turns with those of a peer that loses nothing and answers nothing twice", () => {
    assert.deepEqual(missed({}), []);
    assert.deepEqual(missed({ turns: 101 }), ["pawl enqueue: turns ÷ fewest of a peer that loses none"]);
  });

  it("misses a bar for every message that is lost or answered twice, and for a wait beyond the bound", () => {
    assert.deepEqual(missed({ lost: 1 }), ["pawl enqueue: messages lost"]);
    assert.deepEqual(missed({ doubled: 1 }), ["pawl enqueue: messages answered twice"]);
    assert.deepEqual(missed({ longest: boundMs("enqueue") + 1 }), ["pawl enqueue: longest wait, ms"]);
  });

  it("meets no bar with what was not measured, and says so in its table", () => {
    assert.equal(barsOf(new Map(peers)).filter(({ ok }) => ok).length, 0);
    const lines = tableOf(new Map(peers)).split("\n");
    assert.equal(lines.length, 2 + TALKERS.length);
    assert.ok(lines.some((line) => line.startsWith("pawl amend") && line.includes("not measured")));
  });
});
