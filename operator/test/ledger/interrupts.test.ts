/**
 * The decision table through both of its homes: `rules/interrupt.ts`, and the ledger on a real row. Every combination,
 * with its reason.
 */
import assert from "node:assert/strict";
import { decideEvent } from "#ledger/decide.ts";
import {
  AFTER_COMMIT,
  decide,
  MID_TURN,
  type Policy,
  POSITIONS,
  type Relation,
  RELATIONS,
  WHO,
} from "#rules/interrupt.ts";
import { sql } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { anActor, anAgent, aPolicy, type AtCell, atCells, type Cell } from "../support/steering.ts";

const BOTH = [true, false] as const;
const BOUNDS = ["no", "interruptions", "deadline", "closed"] as const;

type Case = Cell & { relation: Relation; policy: Policy };

/** What a cell may differ in, and be told apart by; the rest of its facts does not exist at its position. */
function* everyCell(): Generator<Cell> {
  for (const position of POSITIONS) {
    const atWork = position === "buffering" || position === "committed" || position === "replied";
    for (const entitled of BOTH)
      for (const sameGrants of BOTH)
        for (const room of position === "window" ? BOTH : [true])
          for (const stopping of atWork ? BOTH : [false])
            for (const bound of atWork ? BOUNDS : (["no"] as const))
              yield { position, entitled, sameGrants, room, stopping, bound };
  }
}

function* everyCase(): Generator<Case> {
  for (const cell of everyCell())
    for (const relation of RELATIONS)
      for (const midTurn of MID_TURN)
        for (const afterCommit of AFTER_COMMIT) yield { ...cell, relation, policy: aPolicy({ midTurn, afterCommit }) };
}

describe("the decision about a message that met a turn", () => {
  const ledger = useLedger();

  it("is the same on a locked row as in the rules, in every combination, with the same reason", async function () {
    this.timeout(120_000);
    const agent = await anAgent(ledger.db);
    const actors = { alice: await anActor(ledger, "alice"), bob: await anActor(ledger, "bob") };
    const cases = [...everyCase()];
    const events = await atCells(ledger, agent.id, actors, cases);
    const wrong: unknown[] = [];
    const met = new Map<string, number>();
    const compare = async ({ relation, policy, ...cell }: Case, event: AtCell) => {
      const facts = { ...cell, addressed: true, strangerBot: false, bound: cell.bound !== "no", relation };
      const expected = decide(facts, policy);
      const found = await decideEvent(ledger.db, { ...event, relation, source: "model", policy });
      const key = `${expected.done} ${expected.reason}`;
      met.set(key, (met.get(key) ?? 0) + 1);
      const said = "reason" in found ? `${found.kind} ${found.reason}` : found.kind;
      if (said !== key) wrong.push({ ...cell, relation, ...policy, expected: key, said });
    };
    const waiting = cases.map((one, index) => [one, events[index] as AtCell] as const);
    const some = async () => {
      for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) await compare(...next);
    };
    await Promise.all(Array.from({ length: 4 }, some));
    assert.deepEqual(wrong.slice(0, 3), [], `${wrong.length} differ`);
    assert.ok(cases.length > 2_000, `${cases.length} combinations`);
    // Every answer that a decided message can get is in there; the rest is ingest's.
    assert.deepEqual(
      [...met.keys()].toSorted((a, b) => a.localeCompare(b)),
      [
        "amended Amend",
        "answered Waiting",
        "cancelled Buffering",
        "cancelled NotStarted",
        "cancelled Waiting",
        "folded Window",
        "new_run Free",
        "preempted Buffering",
        "queued AlreadyAnswered",
        "queued Bound",
        "queued Committed",
        "queued DifferentGrants",
        "queued Enqueue",
        "queued Independent",
        "queued NoModel",
        "queued NotEntitled",
        "queued Stopping",
        "queued Unsure",
        "queued WindowFull",
        "reconcile Committed",
        "stopping Committed",
      ],
    );
    const rows = await sql<{ done: string; reason: string; n: string }>(
      ledger,
      "select done, reason, count(*) as n from interrupts where source = 'model' group by 1, 2",
    );
    assert.deepEqual(new Map(rows.map((row) => [`${row.done} ${row.reason}`, Number(row.n)])), met);
  });

  it("asks who may: the requester, everybody in the thread, or whoever wrote last", async () => {
    const agent = await anAgent(ledger.db);
    const actors = { alice: await anActor(ledger, "alice"), bob: await anActor(ledger, "bob") };
    const cell: Cell = {
      position: "buffering",
      entitled: false,
      sameGrants: true,
      room: true,
      stopping: false,
      bound: "no",
    };
    const done: string[] = [];
    for (const who of WHO) {
      for (const last of ["alice", "bob"] as const) {
        const [event] = await atCells(ledger, agent.id, actors, [cell]); // Bob writes into Alice's turn
        if (event === undefined) throw new Error("no event");
        await sql(ledger, "update runs set addressed = $2 where id = $1", [event.runId, actors[last]]);
        const policy = aPolicy({ who, midTurn: "amend" });
        const found = await decideEvent(ledger.db, { ...event, relation: "refines", source: "model", policy });
        done.push(`${who}, ${last} last: ${found.kind} ${"reason" in found ? found.reason : ""}`);
      }
    }
    assert.deepEqual(done, [
      "same_actor_only, alice last: queued NotEntitled",
      "same_actor_only, bob last: queued NotEntitled",
      "thread_scoped, alice last: amended Amend",
      "thread_scoped, bob last: amended Amend",
      "addressed_actor_only, alice last: queued NotEntitled",
      "addressed_actor_only, bob last: amended Amend",
    ]);
  });
});
