/** The state before and after a write: recorded, compared before an undo, and put back by one. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { parse as parseYaml } from "yaml";
import { checkAgent } from "@pawl/crds";
import { driveRun } from "#engine/drive.ts";
import type { ModelRequest } from "#engine/ports.ts";
import { checkInvariants } from "#ledger/invariants.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { CODE } from "#rules/limits.ts";
import { asks, bench, drain, engineAgent, lost, says, type Script } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { answered, Wiki } from "../support/wiki.ts";
import { aMessage } from "../support/world.ts";

type Declared = { tool: string; state?: object; compensate?: object };

describe("the state of what a write changes", () => {
  const ledger = useLedger();
  afterEach(async () => assert.deepEqual(await checkInvariants(ledger.db), []));

  const text = readFileSync(new URL("../../../docs/tools.md", import.meta.url), "utf8");
  const [, lines = ""] = /## Undo and the world that moves on[\s\S]*?```yaml\n([\s\S]*?)```/.exec(text) ?? [];
  const documented = parseYaml(lines) as { effects: [Declared, Declared] };
  const [setting, getting] = documented.effects;
  const names = ["wiki_set_title", "wiki_get_page"];
  const write = asks(["wiki_set_title", { page: 7, title: "New" }]);

  async function start(effects: object[] = documented.effects) {
    const { id } = await engineAgent(ledger.db, names, { tools: { effects } });
    const ingested = await ingest(ledger.db, aMessage(id));
    assert.ok("runId" in ingested);
    return ingested.runId;
  }

  /** By the id that the result of the write named. */
  const undo = (request: ModelRequest) => {
    const said = JSON.stringify(request.messages);
    const [, id] = /This write is effect (\S+); the tool undo takes it back/.exec(said) ?? [];
    return asks(["undo", { effect: id }]);
  };

  /** What the model read after each of its responses. */
  async function drive(script: Script, wiki: Wiki) {
    const { deps, requests } = bench(ledger.db, script, wiki.tools);
    await drain(deps);
    return requests.map((request) => String(request.messages.at(-1)?.content));
  }

  async function states(runId: string) {
    const { rows } = await ledger.db.pool.query<{ prior: unknown; post: unknown }>(
      "select prior, post from commitment_effects where run_id = $1 and kind <> 'reply' order by dispatched_at",
      [runId],
    );
    return rows;
  }
  const both = { prior: { value: "Old" }, post: { value: "New" } };
  const neither = { prior: null, post: null };

  it("is recorded before and after it, and an undo puts back what was there: as the documentation's lines say", async () => {
    const manifest = {
      apiVersion: "pawl.dev/v1alpha1",
      kind: "Agent",
      metadata: { name: "clerk", namespace: "demo" },
      spec: { instructions: "Keep the wiki.", tools: { builtin: names, ...documented } },
    };
    assert.deepEqual(checkAgent(manifest), { ok: true, value: manifest.spec });
    const runId = await start();
    const wiki = new Wiki();
    const results = await drive([write, undo, says("as it was")], wiki);
    assert.equal(wiki.title, "Old");
    assert.deepEqual(await states(runId), [both, neither]);
    assert.equal(results[2], "HTTP 200");
  });

  it("that somebody has changed since is left alone: the undo is refused, and says what it was and what it is", async () => {
    const runId = await start();
    const wiki = new Wiki();
    const late = (request: ModelRequest) => {
      wiki.title = "Somebody else's";
      return undo(request);
    };
    const results = await drive([write, late, says("left alone")], wiki);
    assert.equal(wiki.title, "Somebody else's");
    assert.equal(results[2], 'Not undone: the world has moved since: it was "New", it is "Somebody else\'s".');
    const { rows } = await ledger.db.pool.query(
      `select c.outcome, e.source from tool_calls c join tool_source_evidence e on e.call_id = c.id
       where c.tool = 'undo' and c.run_id = $1`,
      [runId],
    );
    assert.deepEqual(rows, [{ outcome: "skipped", source: "wiki.test" }], "what it tells came from the wiki");
  });

  it("that cannot be read before the undo is left alone, too: nobody could say whether it is the same", async () => {
    await start();
    const wiki = new Wiki();
    const late = (request: ModelRequest) => {
      wiki.isAway = true;
      return undo(request);
    };
    const results = await drive([write, late, says("left alone")], wiki);
    assert.equal(wiki.title, "New");
    assert.match(results[2] ?? "", /^Not undone: wiki_get_page could not read what is there now/);
  });

  it("that was not seen after the write is no reason not to undo it, and the result says that nobody compared", async () => {
    const compensate = { tool: "wiki_set_title", arguments: { page: "{page}", title: "back" } };
    const runId = await start([{ ...setting, compensate }, getting]);
    const wiki = new Wiki();
    wiki.isAway = true;
    const results = await drive([write, undo, says("ok")], wiki);
    assert.deepEqual(await states(runId), [neither, neither]);
    assert.equal(wiki.title, "back");
    assert.match(
      results[2] ?? "",
      /^HTTP 200\n\(What was there right after the write is not recorded, so nobody could say/,
    );
  });

  it("that was not seen before the write cannot be put back", async () => {
    await start();
    const wiki = new Wiki();
    wiki.isAway = true;
    wiki.answer = () => {
      wiki.isAway = false;
      return answered({ ok: true });
    };
    const results = await drive([write, undo, says("ok")], wiki);
    assert.equal(wiki.title, "New");
    assert.match(results[2] ?? "", /^Not undone: \{prior\} of the declared arguments is not known for this write\./);
  });

  it("is looked at after a write whose answer was lost, once a probe has found it", async () => {
    const probe = { tool: "wiki_get_page", arguments: { page: "{page}" }, found: "HTTP {status}" };
    const runId = await start([{ ...setting, probe }, getting]);
    const wiki = new Wiki();
    wiki.answer = lost;
    await drive([asks(["wiki_set_title", { page: 7, title: "New", status: 200 }]), says("ok")], wiki);
    assert.deepEqual(await states(runId), [both]);
  });

  it("is no longer looked at where the write did not take place", async () => {
    const runId = await start();
    const wiki = new Wiki();
    wiki.answer = () => ({ kind: "failed", observation: "HTTP 422" });
    await drive([write, says("ok")], wiki);
    assert.deepEqual([await states(runId), wiki.looks], [[{ ...both, post: null }], 1]);
  });

  it("is not looked at by a call that may change something, whatever was true when the Agent was judged", async () => {
    const runId = await start([setting]);
    const wiki = new Wiki();
    const get = { ...wiki.get, effect: () => "tool.effect" as const };
    const { deps } = bench(ledger.db, [write, says("ok")], [wiki.set, get]);
    await drain(deps);
    assert.deepEqual([await states(runId), wiki.looks], [[neither], 0]);
  });

  it("costs one commit more than a write of which nobody wants to know it, which costs what it always did", async () => {
    const cost = async (effects: object[]) => {
      const runId = await start(effects);
      const wiki = new Wiki();
      const { deps } = bench(ledger.db, [write, says("ok")], wiki.tools);
      const claim = await claimRun(ledger.db, "worker-1", 10_000, CODE);
      assert.equal(claim?.runId, runId);
      const before = ledger.db.counted.commits;
      await driveRun(deps, claim, new AbortController().signal);
      return { commits: ledger.db.counted.commits - before, looks: wiki.looks };
    };
    const { state: _, ...plain } = setting;
    const without = await cost([plain, getting]);
    assert.equal(without.looks, 0);
    assert.deepEqual(await cost(documented.effects), { commits: without.commits + 1, looks: 2 });
  });
});
