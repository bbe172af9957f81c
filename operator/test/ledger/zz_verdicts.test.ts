/**
 * Last in the folder: by now every answer that a guarded statement can give was met by some test of this process.
 * A new verdict has to be declared here, and then somebody has to meet it.
 */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { statements } from "#ledger/statement.ts";
import { met } from "../support/verdicts.ts";

const DECLARED: Readonly<Record<string, string>> = {
  record_agent: "again changed created same",
  cross_effect: "approval crossed ended fenced hold occupied reply_sent stale_input stopping",
  settle_effect: "already conflict settled",
  redispatch_effect: "already crossed ended fenced refused too_early",
  pin_toolset: "ended fenced pinned",
  resolve_effect: "already conflict resolved too_early unknown_effect",
  remember: "already ended fenced known remembered",
  forget: "already ended fenced forgotten unknown_memory",
  forget_by_person: "already forgotten unknown_memory",
  hold_leadership: "held missing standby taken",
  claim_run: "again claimed none",
  claim_undecided: "claimed",
  renew_lease: "ended lost renewed",
  release_lease: "already ended fenced released",
  change_event: "again cancelled duplicate message observed replaced stopping withdrawn",
  ingest_event: "again answers duplicate folded new_run observed queued stops undecided",
  commit_response: "already committed ended fenced",
  commit_results: "already committed ended fenced",
  continue_request: "already continued ended fenced",
  finish_turn: "again already ended fenced finished",
  request_stop: "again already cancelled duplicate nothing_left stopping withdrawn",
  decide_event: "again already amended answered cancelled folded new_run not_yet preempted queued reconcile stopping",
  withdraw_event: "moved withdrawn",
  park_for_approval: "already decided ended expired fenced newer_input parked",
  withdraw_approval: "already decided ended fenced withdrawn",
  attach_result: "already attached late",
  close_inherited: "closed ended fenced",
  park_for_input: "already ended expired fenced hold newer_input parked stopping",
  answer_question: "again already answered late unknown",
  reserve_emission: "again already ended fenced reserved taken",
  settle_emission: "already conflict settled",
  decide_approval: "again already approved late refused rejected unknown",
};

/** Words of a statement that look like verdicts and are handed to its own later parts only. */
const INTERNAL: Readonly<Record<string, readonly string[]>> = { withdraw_event: ["ok"] };

describe("the verdicts of guarded statements", () => {
  before(async () => {
    for (const file of readdirSync(new URL("../../src/ledger/", import.meta.url))) await import(`#ledger/${file}`);
  });

  const guarded = () => statements().filter((statement) => statement.guarded);

  it("are declared here, statement by statement", () => {
    assert.deepEqual(
      guarded()
        .map(({ name }) => name)
        .toSorted((a, b) => a.localeCompare(b)),
      Object.keys(DECLARED).toSorted((a, b) => a.localeCompare(b)),
    );
  });

  it("are those that stand in the text: none is missing here, none is only here", () => {
    for (const { name, compiled } of guarded()) {
      // Verdicts are the words of the CASEs that are named so, and of the last select.
      const parts = [
        ...compiled.matchAll(/case (?:(?!\bcase\b).)*? end as verdict/g),
        ...compiled.matchAll(/'([a-z_]+)' as verdict/g),
        ...compiled.matchAll(/coalesce\(v\.verdict, '[a-z_]+'\) as verdict/g),
      ].map(([text]) => text);
      const words = parts.flatMap((part) => [
        ...[...part.matchAll(/(?:then|else) '([a-z_]+)'/g)].map((match) => match[1] ?? ""),
        ...[...part.matchAll(/(?:^|, )'([a-z_]+)'\)? as verdict/g)].map((match) => match[1] ?? ""),
      ]);
      const found = new Set(words.filter((word) => INTERNAL[name]?.includes(word) !== true));
      assert.deepEqual([...found].toSorted((a, b) => a.localeCompare(b)).join(" "), DECLARED[name], name);
    }
  });

  it("were each met by a test of this folder", function () {
    const here = new Set(readdirSync(import.meta.dirname).filter((file) => file.endsWith(".test.ts")));
    let root = this.test?.parent;
    while (root?.parent !== undefined) root = root.parent;
    for (const suite of root?.suites ?? []) here.delete(suite.file?.split("/").at(-1) ?? "");
    // One file alone cannot have met them all; the folder can.
    if (here.size > 0) this.skip();
    const missing = Object.entries(DECLARED).flatMap(([name, verdicts]) =>
      verdicts.split(" ").flatMap((verdict) => (met.get(name)?.has(verdict) === true ? [] : [`${name}: ${verdict}`])),
    );
    assert.deepEqual(missing, []);
    const undeclared = [...met].flatMap(([name, verdicts]) =>
      [...verdicts].flatMap((verdict) =>
        DECLARED[name]?.split(" ").includes(verdict) === true ? [] : [`${name}: ${verdict}`],
      ),
    );
    assert.deepEqual(undeclared, []);
  });
});
