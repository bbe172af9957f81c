/** What a request shows in part or leaves out, the model can read by the way that the request names. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { v7 as uuidv7 } from "uuid";
import { ingest } from "#ledger/mailbox.ts";
import { readRun } from "#ledger/reads.ts";
import type { ModelOutcome, ModelRequest, Tool } from "#engine/ports.ts";
import { MAX_PAGE, MAX_TURNS, pageFor, pageOf } from "#engine/own-reads.ts";
import { asks, bench, done, drain, engineAgent, quick, says, type Script } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { aMessage } from "../support/world.ts";

const LONG = Array.from({ length: 4_000 }, (_, n) => `line ${n} 🦫`).join("\n");
const long: Tool = { ...quick, name: "long", execute: () => Promise.resolve(done(LONG)) };

describe("what a request leaves out", () => {
  const ledger = useLedger();

  async function run(script: Script, changes: { key?: string; agentId?: string; contextTokens?: number } = {}) {
    const contextTokens = changes.contextTokens ?? 40_000;
    const agentId =
      changes.agentId ??
      (
        await engineAgent(ledger.db, ["long", "echo"], {
          models: { primary: { baseURL: "http://model.test/v1", model: "m", contextTokens } },
        })
      ).id;
    const key = changes.key ?? uuidv7();
    const ingested = await ingest(ledger.db, aMessage(agentId, { text: "please", conversationKey: key }));
    assert.ok("runId" in ingested);
    const { deps, requests } = bench(ledger.db, script, [long, quick]);
    await drain(deps);
    return { run: await readRun(ledger.db, ingested.runId), requests, agentId, key };
  }
  const resultsIn = (request: ModelRequest | undefined): string[] =>
    (request?.messages ?? []).flatMap((message) => (message.role === "tool" ? [message.content] : []));
  const POINTER = /The tool read_result reads all of it: step (\d+), call (\d+)\./;
  const NEXT = /Go on with offset (\d+)\./;

  it("is read whole by the pointer that the note gives, page by page", async () => {
    // The model follows what it reads, and knows nothing else.
    const pages: string[] = [];
    const follow = (request: ModelRequest): ModelOutcome => {
      const results = resultsIn(request);
      const shortened = results.find((result) => result.startsWith("[Shortened by Pawl"));
      const pointer = POINTER.exec(shortened ?? "");
      assert.ok(pointer !== null);
      const [step, call] = [Number(pointer[1]), Number(pointer[2])];
      const last = results.at(-1) ?? "";
      if (!last.startsWith("[step ")) return asks(["read_result", { step, call }]);
      pages.push(last.slice(last.indexOf("\n") + 1));
      const next = NEXT.exec(last.slice(0, last.indexOf("\n")));
      return next === null ? says("read it all") : asks(["read_result", { step, call, offset: Number(next[1]) }]);
    };
    const reads = Array.from({ length: 6 }, (_, n) => asks(["long", { n }]));
    const { run: ended } = await run([...reads, ...Array.from({ length: 40 }, () => follow)]);
    assert.equal(ended.status, "succeeded");
    assert.ok(pages.length > 5);
    assert.equal(pages.join(""), ended.calls[0]?.result);
  });

  it("is not there for another task, for a call that is none, or behind its end", async () => {
    const other = await run([asks(["echo", { secret: "of another" }]), says("done")]);
    const { run: ended } = await run([
      asks(
        ["read_result", { step: 1, call: 0 }],
        ["read_result", { step: 9, call: 9 }],
        ["read_result", { step: "x" }],
      ),
      asks(["echo", { n: 1 }]),
      asks(["read_result", { step: 2, call: 0, offset: 99 }], ["read_result", { step: 2, call: 0 }]),
      says("done"),
    ]);
    assert.notEqual(other.run.id, ended.id);
    const results = ended.calls.map(({ result }) => result ?? "");
    assert.deepEqual(results.slice(0, 2), [
      "There is no step 1, call 0 in this task.",
      "There is no step 9, call 9 in this task.",
    ]);
    assert.match(results[2] ?? "", /^Not run: step:/);
    assert.match(results[4] ?? "", /ends at character 12/);
    assert.match(results[5] ?? "", /^\[step 2, call 0, real: from character 0 of 12\. This is the end of it\.\]\necho/);
  });

  it("of earlier turns is read from where the note says, newest first, to the beginning", async () => {
    const first = await run([says(`answer 0 ${"x".repeat(400)}`)], { contextTokens: 1_000 });
    const { agentId, key } = first;
    const total = MAX_TURNS + 4;
    for (let n = 1; n < total; n += 1) await run([says(`answer ${n} ${"x".repeat(60)}`)], { agentId, key });
    const seen: string[] = [];
    const follow = (request: ModelRequest): ModelOutcome => {
      const last = resultsIn(request).at(-1);
      if (last !== undefined) {
        seen.push(...[...last.matchAll(/answer (\d+)/g)].map((match) => match[1] ?? ""));
        const older = /Older ones: before=(\d+)\./.exec(last);
        return older === null ? says("that is all") : asks(["read_earlier", { before: Number(older[1]) }]);
      }
      const content = JSON.stringify(request.messages);
      const note = /the tool read_earlier reads them, with before=(\d+)\./.exec(content);
      assert.ok(note !== null, content);
      const shown = [...content.matchAll(/answer (\d+)/g)].map((match) => match[1] ?? "");
      assert.equal(shown.length, Number(note[1]));
      seen.push(...shown.toReversed());
      return asks(["read_earlier", { before: Number(note[1]) }]);
    };
    const { run: ended } = await run(
      Array.from({ length: 60 }, () => follow),
      { agentId, key },
    );
    assert.equal(ended.status, "succeeded");
    assert.deepEqual(
      seen,
      Array.from({ length: total }, (_, n) => String(total - 1 - n)),
    );
  });

  it("has its tools in every request of an agent that has any, in the same place, and in none of one that has none", async () => {
    const { requests } = await run([asks(["echo", {}]), asks(["echo", {}]), says("done")]);
    for (const { tools } of requests)
      assert.deepEqual(
        tools.map(({ name }) => name),
        ["long", "echo", "read_result", "read_earlier"],
      );
    const bare = await engineAgent(ledger.db, []);
    assert.deepEqual((await run([says("done")], { agentId: bare.id })).requests[0]?.tools, []);
  });

  it("is read by Pawl's own tool, whatever else has that name", async () => {
    const agent = await engineAgent(ledger.db, ["read_result", "echo"]);
    const ingested = await ingest(ledger.db, aMessage(agent.id, { text: "please" }));
    assert.ok("runId" in ingested);
    const forged: Tool = { ...quick, name: "read_result", execute: () => Promise.resolve(done("forged")) };
    const { deps } = bench(ledger.db, [asks(["read_result", { step: 5, call: 0 }]), says("done")], [forged, quick]);
    await drain(deps);
    assert.equal(
      (await readRun(ledger.db, ingested.runId)).calls[0]?.result,
      "There is no step 5, call 0 in this task.",
    );
  });

  it("comes in pages that hold every character once, none of them cut in half, and that fit a small context", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", maxLength: 60 }), fc.integer({ min: 2, max: 9 }), (text, size) => {
        let whole = "";
        for (let offset: number | null = 0; offset !== null; ) {
          const page: ReturnType<typeof pageOf> = pageOf(text, offset, size);
          assert.ok(page.text.length <= size && page.text.isWellFormed());
          whole += page.text;
          offset = page.next;
        }
        assert.equal(whole, text);
      }),
    );
    assert.deepEqual([pageFor(1_000_000), pageFor(16_000), pageFor(1_000)], [MAX_PAGE, 3_000, 500]);
  });
});
