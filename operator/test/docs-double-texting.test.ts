/** What docs/double-texting.md shows is taken as it stands. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { AGENT, type AgentSpec, checkAgent, checkRun, notActedUpon } from "@pawl/crds";
import { joinedWords } from "#controllers/run/joined.ts";
import { decide, policyOf } from "#rules/interrupt.ts";

const docs = join(import.meta.dirname, "../../docs");
const text = readFileSync(join(docs, "double-texting.md"), "utf8");
const [agent, run] = [...text.matchAll(/```yaml\n([\s\S]*?)```/g)].map(([, yaml]) => parse(yaml ?? "") as object);

describe("docs/double-texting.md", () => {
  it("shows an Agent that is valid, acted upon in every field, and does what the page says", () => {
    const checked = checkAgent(agent);
    assert.ok(checked.ok, JSON.stringify(checked));
    assert.deepEqual(notActedUpon(AGENT, checked.value), { refused: [], ignored: [] });
    const policy = policyOf(checked.value satisfies AgentSpec);
    assert.deepEqual(policy, {
      who: "same_actor_only",
      midTurn: "preempt",
      afterCommit: "reconcile",
      quietMs: 2_000,
      maxWaitMs: 30_000,
      maxCount: 20,
      adaptive: false,
      maxSupersessions: 3,
      deadlineMs: 600_000,
    });
    const correction = {
      addressed: true,
      strangerBot: false,
      entitled: true,
      sameGrants: true,
      room: true,
      stopping: false,
      bound: false,
      relation: "refines",
    } as const;
    assert.equal(decide({ ...correction, position: "buffering" }, policy).done, "preempted");
    assert.equal(decide({ ...correction, position: "committed" }, policy).done, "reconcile");
  });

  it("shows a Run that is valid", () => {
    const checked = checkRun(run);
    assert.ok(checked.ok, JSON.stringify(checked));
  });

  it("shows a picture that is there, says in words what it shows, and has colours for the dark", () => {
    const path = /!\[[^\]]{20,}\]\(([^)]+)\)/.exec(text)?.[1] ?? "";
    assert.ok(existsSync(join(docs, path)), path);
    const picture = readFileSync(join(docs, path), "utf8");
    assert.match(picture, /<title[^>]*>[^<]+<\/title>\n<desc[^>]*>[^<]{100,}<\/desc>/);
    assert.match(picture, /prefers-color-scheme: dark/);
  });

  it("names the reasons that a status shows", () => {
    for (const role of ["trigger", "amend", "answer"]) {
      const { reason } = joinedWords({ role, answered_by: "one", own_interrupt: null } as never);
      assert.ok(text.includes(`\`${reason}\``), reason);
    }
  });
});
