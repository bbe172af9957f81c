import assert from "node:assert/strict";
import { type JournalRow, MAX_EFFECT_ATTEMPTS, MAX_PROBES, occupied, type Seen, settling } from "#rules/journal.ts";

const WANTED = { effectId: "mine", nonce: "n", target: "issue/1", argsHash: "A" };
let made = 0;
const row = (changes: Partial<JournalRow>): JournalRow => {
  made += 1;
  return {
    id: `effect-${made}`,
    nonce: `nonce-${made}`,
    callId: `call-${made}`,
    kind: "tool.effect",
    target: "issue/1",
    argsHash: "A",
    repeat: 0,
    state: "confirmed",
    observation: "201 created",
    waitMs: 0,
    ...changes,
  };
};

describe("what stands in the way of a crossing", () => {
  it("is our own row when the reply of the first crossing was lost, whatever else is there", () => {
    for (const state of ["dispatched", "confirmed", "unknown"] as const) {
      const rows = [row({}), row({ id: "mine", state }), row({ argsHash: "B", state: "unknown" })];
      assert.deepEqual(occupied(rows, WANTED), { kind: "already" });
    }
  });

  it("is the same call, which is answered from its row", () => {
    const same = row({ observation: "created 7" });
    assert.deepEqual(occupied([same], WANTED), { kind: "replayed", effectId: same.id, observation: "created 7" });
  });

  it("is answered with nothing to read when the row has no observation", () => {
    const same = row({ observation: null });
    assert.deepEqual(occupied([same], WANTED), { kind: "replayed", effectId: same.id, observation: "" });
  });

  it("is an effect under way on the same target, reworded or not, until its settle time", () => {
    for (const argsHash of ["A", "B"]) {
      const open = row({ argsHash, state: "dispatched", waitMs: 700 });
      assert.deepEqual(occupied([open], WANTED), { kind: "busy", effectId: open.id, waitMs: 700 });
    }
  });

  it("is an effect of unknown outcome on the same target, reworded or not", () => {
    for (const argsHash of ["A", "B"]) {
      const open = row({ argsHash, state: "unknown" });
      assert.deepEqual(occupied([open], WANTED), { kind: "ambiguous", effectId: open.id });
    }
  });

  it("is the open effect even if the same call was confirmed before it", () => {
    const open = row({ argsHash: "B", state: "unknown" });
    assert.deepEqual(occupied([row({}), open], WANTED), { kind: "ambiguous", effectId: open.id });
  });

  it("is nothing after another effect on that target: A, B, A is a new effect", () => {
    assert.deepEqual(occupied([row({}), row({ argsHash: "B" })], WANTED), { kind: "repeat", repeat: 1 });
  });

  it("counts the repeats on: A, B, A, B, A is the third A", () => {
    const rows = [row({}), row({ argsHash: "B" }), row({ repeat: 1 }), row({ argsHash: "B", repeat: 1 })];
    assert.deepEqual(occupied(rows, WANTED), { kind: "repeat", repeat: 2 });
  });

  it("is the newest A when nothing came between: A, B, A, A", () => {
    const newest = row({ repeat: 1, observation: "second" });
    const rows = [row({ observation: "first" }), row({ argsHash: "B" }), newest];
    assert.deepEqual(occupied(rows, WANTED), { kind: "replayed", effectId: newest.id, observation: "second" });
  });

  it("is not excused by an effect on another target", () => {
    const same = row({});
    assert.deepEqual(occupied([same, row({ target: "issue/2", argsHash: "B" })], WANTED), {
      kind: "replayed",
      effectId: same.id,
      observation: "201 created",
    });
  });

  it("never answers a tool from a reply of the same text", () => {
    const reply = row({ kind: "reply", target: "reply" });
    assert.deepEqual(occupied([reply], WANTED), { kind: "ambiguous", effectId: reply.id });
  });
});

describe("an effect whose outcome nobody saw", () => {
  const LOST = {
    state: "dispatched",
    keyed: true,
    attempt: 1,
    waitMs: 0,
    stopping: false,
    probe: null,
    seen: [],
  } as const;

  it("is left alone once its outcome is final, whatever the clock says", () => {
    for (const state of ["confirmed", "failed"] as const) {
      assert.deepEqual(settling({ ...LOST, state, waitMs: 900 }), { kind: "done" });
    }
  });

  it("is neither looked at nor sent again before its settle time: its sender may be alive", () => {
    for (const keyed of [true, false]) {
      for (const probe of [null, { absenceIsConclusive: true }]) {
        assert.deepEqual(settling({ ...LOST, keyed, probe, waitMs: 1 }), { kind: "wait", ms: 1 });
      }
    }
  });

  it("is sent again under its key where the receiver honours it", () => {
    for (const state of ["dispatched", "unknown"] as const) {
      assert.deepEqual(settling({ ...LOST, state }), { kind: "send_again" });
    }
  });

  it("is given up without a key, after the last attempt, and when a person stopped the turn", () => {
    assert.equal(MAX_EFFECT_ATTEMPTS, 5);
    assert.deepEqual(settling({ ...LOST, attempt: 4 }), { kind: "send_again" });
    for (const change of [{ keyed: false }, { attempt: 5 }, { stopping: true }]) {
      assert.deepEqual(settling({ ...LOST, ...change }), { kind: "give_up" });
    }
  });
});

describe("an effect that can be looked for", () => {
  const weak = { absenceIsConclusive: false };
  const strong = { absenceIsConclusive: true };
  const unclear = (count: number): Seen[] => Array.from({ length: count }, () => "inconclusive" as const);
  const table: [title: string, effect: Partial<Parameters<typeof settling>[0]>, decision: string][] = [
    ["is looked for first", { probe: weak }, "probe"],
    ["is looked for before it is sent again under its key", { probe: weak, keyed: true }, "probe"],
    ["is looked for also when a person stopped the turn", { probe: weak, stopping: true }, "probe"],
    ["is looked for also when it was told unknown before", { probe: weak, state: "unknown" }, "probe"],
    ["was seen, and that is its outcome", { probe: weak, seen: ["landed"] }, "landed"],
    ["was seen after looks without an answer", { probe: weak, seen: ["inconclusive", "landed"] }, "landed"],
    ["was not seen, which proves nothing unless declared", { probe: weak, seen: ["absent"] }, "give_up"],
    ["was not seen, and has a key", { probe: weak, keyed: true, seen: ["absent"] }, "send_again"],
    ["is conclusively absent, and sent again", { probe: strong, seen: ["absent"] }, "send_again"],
    [
      "is conclusively absent, and nobody wants it any more",
      { probe: strong, seen: ["absent"], stopping: true },
      "not_applied",
    ],
    ["is conclusively absent after its last attempt", { probe: strong, seen: ["absent"], attempt: 5 }, "not_applied"],
    ["is looked for again after a look without an answer", { probe: strong, seen: unclear(MAX_PROBES - 1) }, "probe"],
    ["is given up after the last look without an answer", { probe: strong, seen: unclear(MAX_PROBES) }, "give_up"],
    [
      "is sent under its key after the last look without an answer",
      { probe: strong, keyed: true, seen: unclear(MAX_PROBES) },
      "send_again",
    ],
  ];
  for (const [title, effect, decision] of table) {
    it(title, () => {
      const lost = { state: "dispatched", keyed: false, attempt: 1, waitMs: 0, stopping: false, seen: [] } as const;
      assert.equal(settling({ ...lost, probe: null, ...effect }).kind, decision);
    });
  }
});
