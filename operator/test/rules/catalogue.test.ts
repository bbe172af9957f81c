import assert from "node:assert/strict";
import { EFFECT_CLASSES, EFFECTS, effectKind, JOURNALED } from "#rules/effects.ts";
import { isPawlError, PawlError } from "#rules/errors.ts";

/** kind, class, crosses, reply slot, matched by exact call */
const CATALOGUE = `
  model.inference   pure              no   no   no
  tool.query        pure              no   no   no
  store.verb        internal_durable  no   no   no
  harness.call      internal_durable  no   no   no
  tool.workspace    coarse            yes  no   no
  tool.browser      coarse            yes  no   no
  egress.mutation   effectful         yes  no   no
  tool.effect       effectful         yes  no   yes
  compensation      effectful         yes  no   yes
  reply             reply             yes  yes  no
  ack               additive          no   no   no
  progress.notice   additive          no   no   no
  question          additive          no   no   no
  approval.request  additive          no   no   no
  notice            additive          no   no   no
`;

describe("the effect catalogue", () => {
  it("is closed, and says of each kind what the contract says", () => {
    const word = (yes: boolean) => (yes ? "yes" : "no");
    const written = CATALOGUE.trim()
      .split("\n")
      .map((line) => line.trim().split(/\s+/));
    const found = Object.entries(EFFECTS).map(([kind, facts]) => [
      kind,
      facts.class,
      word(facts.crosses),
      word(facts.replySlot),
      word(facts.matchedByCall),
    ]);
    assert.deepEqual(found, written);
  });

  it("uses every class", () => {
    assert.deepEqual([...new Set(Object.values(EFFECTS).map((facts) => facts.class))], [...EFFECT_CLASSES]);
  });

  it("keeps a journal row of exactly what crosses", () => {
    const crossing = Object.entries(EFFECTS).filter(([, facts]) => facts.crosses);
    assert.deepEqual(new Set<string>(JOURNALED), new Set(crossing.map(([kind]) => kind)));
  });

  it("says of every kind what a repeat would cost", () => {
    for (const [kind, facts] of Object.entries(EFFECTS)) assert.ok(facts.ifRepeated.length > 5, kind);
  });

  it("takes whatever nobody classified for an effect", () => {
    assert.equal(effectKind(undefined), "tool.effect");
    for (const odd of ["", "tool.read", "TOOL.QUERY", "constructor", "__proto__", "toString"]) {
      assert.equal(effectKind(odd), "tool.effect", odd);
    }
    assert.equal(effectKind("tool.query"), "tool.query");
    for (const word of ["tool.effect", "tool.query", "odd"]) {
      assert.equal(effectKind(word, "store.verb"), "store.verb", "what stays within is made by code alone");
    }
    assert.equal(effectKind(undefined, "tool.query"), "tool.query", "nothing declared: the tool's own word");
    for (const word of ["reply", "ack", "store.verb", "harness.call", "compensation"]) {
      assert.equal(effectKind(word, "tool.query"), "tool.effect", `${word} cannot be declared from outside`);
    }
  });
});

describe("an error", () => {
  it("says its kind, its reason and when to come back, and keeps its cause", () => {
    const cause = new Error("ECONNREFUSED");
    const error = new PawlError("transient", "LedgerUnavailable", "the ledger is away", { cause, retryAfterMs: 250 });
    assert.equal(error.kind, "transient");
    assert.equal(error.reason, "LedgerUnavailable");
    assert.equal(error.message, "the ledger is away");
    assert.equal(error.retryAfterMs, 250);
    assert.equal(error.cause, cause);
    assert.equal(error.name, "PawlError");
  });

  it("claims neither a cause nor a time when it has none", () => {
    const error = new PawlError("terminal", "LedgerRefused", "no");
    assert.equal(Object.hasOwn(error, "cause"), false);
    assert.equal(error.retryAfterMs, undefined);
  });

  it("is told from others, and by kind", () => {
    const error = new PawlError("fenced", "LeaseLost", "somebody else works on this run");
    assert.equal(isPawlError(error), true);
    assert.equal(isPawlError(error, "fenced"), true);
    assert.equal(isPawlError(error, "conflict"), false);
    assert.equal(isPawlError(new Error("fenced"), "fenced"), false);
    assert.equal(isPawlError({ kind: "fenced" }), false);
  });
});
