import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { playTry, type TryResult } from "./play.ts";
import { INN, SHOPS } from "./shops.ts";

const LEDGER_KILLS = 2;

type Seen = { method: string; path: string; outcome: string; bodyPreview: string };

/** What the inn wrote down about one order. */
const atTheInn = (result: TryResult, order: string): Seen[] =>
  (result.witness as Seen[]).filter(({ path, bodyPreview }) => path === INN && bodyPreview.includes(`"${order}"`));

function correctedInTime(result: TryResult, text: string): void {
  assert.deepEqual(
    atTheInn(result, "inn-1").map(({ method, outcome, bodyPreview }) => [
      method,
      outcome,
      (JSON.parse(bodyPreview) as { pots: number }).pots,
    ]),
    [["POST", "write", 3]],
  );
  assert.match(text, /inn-1 +(Queued|Running) +Yes +restarted once for newer messages, nothing had been changed/);
  for (const name of ["two", "tea", "three"]) assert.match(text, new RegExp(`inn-1-${name} +Folded`));
  assert.match(text, /→ (Run inn-1-two: )?the turn is restarted for this message: nothing had been changed/);
}

function correctedTooLate(result: TryResult, text: string): void {
  assert.match(text, /alice is told: Too late to restart: \S+ was changed already\. I put it right next: undo /);
  const order = [
    /alice approves: Refused, RequesterMayNotApprove/,
    /bob approves: Applied, Approved/,
    /undoes effect [0-9a-f-]{36}/,
  ].map((words) => text.search(words));
  assert.ok(!order.includes(-1), String(order));
  assert.deepEqual(
    order,
    order.toSorted((a, b) => a - b),
  );
  assert.deepEqual(
    atTheInn(result, "inn-2").map(({ method, outcome }) => [method, outcome]),
    [
      ["POST", "write"],
      ["DELETE", "write"],
    ],
  );
}

describe("the try, unattended", function () {
  this.timeout(180_000);
  let result: TryResult;
  const said: string[] = [];

  before(async () => {
    result = await playTry({ unattended: true, say: (text: string) => said.push(text), kills: LEDGER_KILLS, seed: 11 });
  });

  const seen = (shop: "north" | "south" | "east" | "west") => {
    const row = result.rows.find((one) => one.shop === shop);
    if (row === undefined) throw new Error(`no row of ${shop}`);
    return row;
  };

  it("kills a worker between the shop's write and its answer, and the shop sees the same key twice and one write", () => {
    const log = result.witness as { path: string; key: string; outcome: string; bodyPreview: string }[];
    const first = log.filter(({ path, bodyPreview }) => path === SHOPS.north && bodyPreview.includes('"north-1"'));
    assert.deepEqual(
      first.map(({ outcome }) => outcome),
      ["write", "replay"],
    );
    assert.equal(new Set(first.map(({ key }) => key)).size, 1);
  });

  it("does every order exactly once, whatever was killed", () => {
    const { tally, seen: counted } = seen("north");
    assert.deepEqual(tally, {
      kills: 1 + LEDGER_KILLS,
      asked: 1 + LEDGER_KILLS,
      confirmed: 1 + LEDGER_KILLS,
      unknown: 0,
      failed: 0,
    });
    assert.deepEqual([counted.orders, counted.writes, counted.doubled], [1 + LEDGER_KILLS, 1 + LEDGER_KILLS, 0]);
  });

  it("shows the plain loop writing twice and believing in once", () => {
    const { tally, seen: counted } = seen("south");
    assert.equal(tally.confirmed, tally.asked);
    assert.ok(counted.doubled >= 1, `${counted.doubled} doubled`);
  });

  it("sends once, looks for its key and finds it, where the shop honours none and shows its orders", () => {
    const { tally, seen: counted } = seen("east");
    assert.deepEqual([tally.confirmed, tally.unknown, counted.requests, counted.writes], [1, 0, 1, 1]);
    const log = result.witness as { path: string; outcome: string }[];
    const outcomes = log.filter(({ path }) => path === SHOPS.east).map(({ outcome }) => outcome);
    assert.deepEqual(outcomes, ["write", "read"]);
  });

  it("sends once and says that it does not know, where the shop honours no key", () => {
    const { tally, seen: counted } = seen("west");
    assert.deepEqual([tally.confirmed, tally.unknown, counted.requests, counted.writes], [0, 1, 1, 1]);
  });

  it("makes one untouched turn of three corrections in a row: one restart, and one write, of what was said last", () =>
    correctedInTime(result, said.join("\n")));

  it("tells that a correction after the write is too late, and undoes it next, after somebody else has approved", () =>
    correctedTooLate(result, said.join("\n")));

  it("counts each kill", () => {
    assert.equal(result.kills, 4 + 2 * LEDGER_KILLS);
  });

  it("prints pawl why with the point of no return, above the second sending", () => {
    const text = said.join("\n");
    assert.match(text, /══ POINT OF NO RETURN ══ [\d:.]+ ══ http_request, step 1 ═+/);
    assert.ok(
      text.indexOf("POINT OF NO RETURN") < text.indexOf("sent again under the same key, attempt 2, by lease 2"),
    );
  });

  it("says that there is no cluster and that there are no sandboxes", () => {
    const text = said.join("\n");
    assert.match(text, /no cluster here/);
    assert.match(text, /no sandboxes yet/);
  });

  it("leaves nothing behind", () => {
    assert.equal(existsSync(result.folder), false);
  });
});
