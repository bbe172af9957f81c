import assert from "node:assert/strict";
import { MAX_LISTED, parseResolution, renderEffects, renderResolved } from "#cli/effects.ts";
import type { ListedEffect } from "#ledger/journal.ts";

const ID = "01990000-0000-7000-8000-000000000001";
const effect = (changes: Partial<ListedEffect> = {}): ListedEffect => ({
  id: ID,
  object: "order-1",
  namespace: "shop",
  agent: "clerk",
  kind: "tool.effect",
  target: "https://shop.example/orders",
  state: "unknown",
  attempt: 2,
  since: new Date(Date.UTC(2026, 0, 2, 9, 0, 1, 234)),
  resolvedBy: null,
  approvedBy: null,
  ...changes,
});
const open = { namespace: "shop", every: false };
const flags = { landed: true, "not-landed": false, by: "alice" };
const word = parseResolution(ID, flags);

describe("pawl effects", () => {
  it("is a table, with what to do about an unknown one below it", () => {
    const confirmed = effect({ object: null, kind: "reply", target: "reply", state: "confirmed", resolvedBy: "bob" });
    assert.deepEqual(renderEffects([effect({ approvedBy: "carol" }), confirmed], open).split("\n"), [
      "ID                                    RUN                   KIND         TARGET                       STATE      ATTEMPTS  SINCE                 APPROVED BY  RESOLVED BY",
      `${ID}  order-1 (shop/clerk)  tool.effect  https://shop.example/orders  unknown    2         2026-01-02T09:00:01Z  carol        -`,
      `${ID}  - (shop/clerk)        reply        reply                        confirmed  2         2026-01-02T09:00:01Z  -            bob`,
      "",
      "Look at the target, then: pawl effects resolve ID --landed|--not-landed --by NAME [--reason TEXT]",
    ]);
    assert.equal(renderEffects([effect({ state: "dispatched" })], open).split("\n").length, 2);
  });

  it("says plainly that there is none, and where it looked", () => {
    assert.match(renderEffects([], open), /^No effect in namespace shop is in flight or unknown; /);
    assert.match(renderEffects([], { ...open, every: true }), /^There is no effect in namespace shop; /);
  });

  it("lets no target steer the terminal, nor look like another row", () => {
    const text = renderEffects([effect({ target: "a\u001b[2Jb\nc\td\u009be", state: "dispatched" })], open);
    assert.match(text, /a\ufffd\[2Jb\ufffdc\ufffdd\ufffde/);
    assert.equal(text.split("\n").length, 2);
  });

  it("says that it does not show all", () => {
    const many = Array.from({ length: MAX_LISTED + 1 }, () => effect({ state: "confirmed" }));
    const lines = renderEffects(many, open).split("\n");
    assert.equal(lines.length, 1 + MAX_LISTED + 1);
    assert.equal(lines.at(-1), `Only the newest ${MAX_LISTED} are shown.`);
  });
});

describe("pawl effects resolve", () => {
  it("takes a whole word, and blanks as nothing", () => {
    assert.deepEqual(word, { effectId: ID, landed: true, by: "alice", reason: null });
    assert.deepEqual(
      parseResolution(ID, { landed: false, "not-landed": true, by: " bob ", reason: " not in the list " }),
      { effectId: ID, landed: false, by: "bob", reason: "not in the list" },
    );
    assert.equal(parseResolution(ID, { ...flags, reason: "  " }).reason, null);
  });

  const refused: Record<string, [id: string | undefined, changes: object, says: RegExp]> = {
    "no id": [undefined, {}, /^which effect\?/],
    "another kind of id": ["order-1", {}, /^ID is the one that pawl effects shows/],
    "both flags": [ID, { "not-landed": true }, /^it either landed or it did not/],
    "neither flag": [ID, { landed: false }, /^say whether it landed/],
    "nobody's name": [ID, { by: undefined }, /^say who says so/],
    "a blank name": [ID, { by: "  " }, /^say who says so/],
    "a name of a page": [ID, { by: "x".repeat(101) }, /^NAME has at most 100/],
    "a reason of a book": [ID, { reason: "x".repeat(1_001) }, /^TEXT has at most 1000/],
  };
  for (const [title, [id, changes, says]] of Object.entries(refused)) {
    it(`refuses ${title} in one sentence that says how it is written`, () => {
      assert.throws(
        () => parseResolution(id, { ...flags, ...changes }),
        (error: Error & { reason?: string }) =>
          error.reason === "Usage" &&
          says.test(error.message) &&
          error.message.includes("pawl effects resolve ID --landed"),
      );
    });
  }

  it("says what is now on record, or was before and by whose word", () => {
    assert.equal(
      renderResolved(word, { kind: "resolved", target: "issue/1\u001b" }),
      `effect ${ID} on issue/1\ufffd is confirmed: alice said that it took place`,
    );
    assert.equal(
      renderResolved({ ...word, landed: false }, { kind: "resolved", target: "issue/1" }),
      `effect ${ID} on issue/1 is failed: alice said that it did not take place`,
    );
    assert.equal(
      renderResolved(word, { kind: "already", state: "confirmed", resolvedBy: null }),
      `effect ${ID} is confirmed already: its sender saw that it took place`,
    );
  });

  it("is an error where the word was not taken", () => {
    const at = new Date(Date.UTC(2026, 0, 2, 9));
    assert.throws(() => renderResolved(word, { kind: "conflict", state: "failed", resolvedBy: "bob" }), {
      reason: "EffectSettled",
      message: `effect ${ID} is failed and stays so: bob said that it did not take place`,
    });
    assert.throws(() => renderResolved(word, { kind: "too_early", settleAt: at }), {
      reason: "EffectInFlight",
      message: /its sender may be alive: nobody decides about it before 2026-01-02T09:00:00\.000Z$/,
    });
    assert.throws(() => renderResolved(word, { kind: "unknown_effect" }), { reason: "EffectMissing" });
  });
});
