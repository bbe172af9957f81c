/**
 * The verdict of one case: from histories that nobody in the product wrote for itself (what the fakes accepted), from
 * the ledger's invariants, and from how the same scenario ends when nothing goes wrong.
 */
import { isDeepStrictEqual } from "node:util";
import { checkInvariants } from "#ledger/invariants.ts";
import { CROSSED_ANEW } from "#ledger/unsent.ts";
import type { Case, World } from "./scenario.ts";
import { accepted, type EndState, endState, type Write, writesOf } from "./state.ts";

export type Verdict = {
  readonly violations: string[];
  readonly lost: number;
  readonly duplicated: number;
  /** Effects of unknown outcome although nobody hid an answer. */
  readonly unknown: number;
  /** Writes that were given up before their first byte, because their worker or the ledger was away for too long. */
  readonly unsent: number;
};

const total = (writes: EndState["writes"]): number => Object.values(writes).reduce((sum, count) => sum + count, 0);

/** Parts of an end that differ, in words. */
function differences(wanted: EndState, found: EndState, hides: boolean): string[] {
  return (Object.keys(wanted) as (keyof EndState)[]).flatMap((part) => {
    // A worker that fell in front of its first byte wrote nothing, and cannot know that: unknown, and at most once.
    if (part === "writes" && hides && total(found.writes) <= total(wanted.writes)) return [];
    if (isDeepStrictEqual(wanted[part], found[part])) return [];
    return [`${part}: ${JSON.stringify(found[part])} and not ${JSON.stringify(wanted[part])}`];
  });
}

export async function judge(fakes: World, item: Case, wanted: EndState): Promise<Verdict> {
  return judgeBy(await accepted(fakes), item, wanted, true);
}

type NeverSent = {
  readonly all: number;
  /** Whose calls did not cross again: the model was told, or a person was faster. */
  readonly told: number;
  /** That arrived all the same. */
  readonly arrived: number;
};

/** Writes whose own sender says that no byte of them left. */
async function neverSent(item: Case, log: readonly Write[]): Promise<NeverSent> {
  const { rows } = await item.db.pool.query<{ id: string; again: boolean }>(
    `select e.id, ${CROSSED_ANEW} as again from commitment_effects e join runs r on r.id = e.run_id
     where r.conversation_id = $1 and e.unsent`,
    [item.conversationId],
  );
  const arrived = new Set(writesOf(item, log).map(({ key }) => key));
  return {
    all: rows.length,
    told: rows.filter(({ again }) => !again).length,
    arrived: rows.filter(({ id }) => arrived.has(id)).length,
  };
}

/** `wholeLedger`: false when many cases share one, whose invariants are checked once for all of them. */
export async function judgeBy(
  log: readonly Write[],
  item: Case,
  wanted: EndState,
  wholeLedger: boolean,
): Promise<Verdict> {
  const violations = wholeLedger
    ? (await checkInvariants(item.db)).map(({ invariant, offender }) => `${invariant} ${offender}`)
    : [];
  const hides = item.scenario.hides === true;
  const found = await endState(item, log);
  const unsent = await neverSent(item, log);
  if (unsent.arrived > 0)
    violations.push(`${unsent.arrived} writes arrived of which their sender says that they did not leave`);
  // The scripted model does not try again what it is told was not sent: from there on its turn is another one.
  if (unsent.told === 0) violations.push(...differences(wanted, found, hides));
  const { rows } = await item.db.pool.query<{ id: string }>(
    "select e.id from commitment_effects e join runs r on r.id = e.run_id where r.conversation_id = $1 and e.kind <> 'reply'",
    [item.conversationId],
  );
  const ids = new Set(rows.map(({ id }) => id));
  const strays = writesOf(item, log).filter(
    ({ outcome, key }) => outcome !== "read" && key !== undefined && !ids.has(key ?? ""),
  );
  if (strays.length > 0) violations.push(`${strays.length} writes came with a key that is no effect's id`);
  const answered = found.messages.filter((state, index) => state !== wanted.messages[index]).length;
  const unknown = found.effects.filter(({ state }) => state === "unknown").length;
  return {
    violations,
    lost: Math.max(answered, wanted.replies.length - found.replies.length, 0),
    duplicated:
      Object.entries(found.writes).reduce(
        (sum, [path, count]) => sum + Math.max(0, count - (wanted.writes[path] ?? 0)),
        0,
      ) + Math.max(0, found.replies.length - wanted.replies.length),
    unknown: hides ? 0 : unknown,
    unsent: unsent.all,
  };
}
