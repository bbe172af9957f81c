import assert from "node:assert/strict";
import fc from "fast-check";
import { systemClock } from "#src/clock.ts";
import { credentialOf, MAX_GATES, RateGate } from "#models/gate.ts";
import { readAnswer } from "#models/response.ts";
import { CallSlots } from "#models/slots.ts";
import { EventSplitter } from "#models/sse.ts";
import { Watchdog } from "#models/watchdog.ts";
import { ManualClock } from "./manual-clock.ts";

describe("slots of streamed calls", () => {
  const join = (...pieces: Parameters<CallSlots["add"]>[0][]): string[][] => {
    const slots = new CallSlots();
    for (const piece of pieces) slots.add(piece);
    return slots.calls.map((call) => [call.name, call.argumentsText]);
  };

  it("a name and id repeated with every piece is one call", () => {
    const piece = (text: string) => ({ index: 0, id: "a", function: { name: "f", arguments: text } });
    assert.deepEqual(join(piece('{"x'), piece('":1'), piece("}"), piece("")), [["f", '{"x":1}']]);
  });

  it("an id invented anew for every piece is one call", () => {
    const piece = (id: string, text: string) => ({ index: 0, id, function: { name: "f", arguments: text } });
    assert.deepEqual(join(piece("a", '{"x'), piece("b", '":1'), piece("c", "}")), [["f", '{"x":1}']]);
  });

  it("nested objects do not end a call early", () => {
    const piece = (text: string) => ({ index: 0, function: { arguments: text } });
    assert.deepEqual(
      join({ index: 0, id: "a", function: { name: "f" } }, piece('{"x":'), piece('{"y":{}}'), piece("}")),
      [["f", '{"x":{"y":{}}}']],
    );
  });

  it("interleaved calls keep to their indexes", () => {
    const piece = (index: number, text: string, name?: string) => ({ index, function: { name, arguments: text } });
    assert.deepEqual(join(piece(0, '{"a', "f"), piece(1, '{"b', "g"), piece(0, '":1}'), piece(1, '":2}')), [
      ["f", '{"a":1}'],
      ["g", '{"b":2}'],
    ]);
  });

  it("two calls of different tools at one index are two", () => {
    const whole = (name: string) => ({ index: 0, id: "", function: { name, arguments: "{}" } });
    assert.deepEqual(join(whole("f"), whole("g"), whole("g")), [
      ["f", "{}"],
      ["g", "{}"],
      ["g", "{}"],
    ]);
  });

  it("a call without arguments stays", () => {
    assert.deepEqual(join({ index: 0, id: "a", function: { name: "f", arguments: "" } }), [["f", ""]]);
  });

  it("arguments that are not encoded are encoded", () => {
    assert.deepEqual(join({ index: 0, function: { name: "f", arguments: { x: 1 } } }), [["f", '{"x":1}']]);
  });
});

describe("server-sent events", () => {
  const text = ': comment\r\n\r\ndata: {"a":1}\r\n\r\nevent: x\ndata: one\ndata: two\n\ndata:[DONE]\n\n';
  const events = ['{"a":1}', "one\ntwo", "[DONE]"];

  it("are the same however the stream is cut", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: text.length }), { maxLength: 12 }), (cuts) => {
        const splitter = new EventSplitter();
        const at = [0, ...cuts.toSorted((a, b) => a - b), text.length];
        const found = at.slice(1).flatMap((end, index) => splitter.push(text.slice(at[index], end)));
        assert.deepEqual([...found, ...splitter.end()], events);
      }),
    );
  });

  it("are given out as soon as they are complete", () => {
    const splitter = new EventSplitter();
    assert.deepEqual(splitter.push("data: a\n"), []);
    assert.deepEqual(splitter.push("\n"), ["a"]);
  });

  it("a last event without a blank line still counts", () => {
    const splitter = new EventSplitter();
    assert.deepEqual(splitter.push("data: a"), []);
    assert.deepEqual(splitter.end(), ["a"]);
  });
});

describe("the watchdog", () => {
  const limits = { firstByteMs: 100, betweenChunksMs: 10, totalMs: 150 };
  const settled = async (): Promise<void> => await new Promise((resolve) => void setImmediate(resolve));
  const expiredAfter = async (...steps: (number | "byte")[]): Promise<string | undefined> => {
    const clock = new ManualClock();
    const watchdog = new Watchdog(clock, limits, new AbortController().signal);
    for (const step of steps) {
      if (step === "byte") watchdog.progress();
      else clock.advance(step);
      await settled();
    }
    assert.equal(watchdog.signal.aborted, watchdog.expired !== undefined);
    watchdog.stop();
    await settled();
    assert.equal(clock.sleeping, 0);
    return watchdog.expired;
  };

  it("ends a call that says nothing", async () => {
    assert.equal(await expiredAfter(99), undefined);
    assert.equal(await expiredAfter(99, 1), "firstByteMs");
  });
  it("ends a call that falls silent", async () => {
    assert.equal(await expiredAfter("byte", 9, "byte", 9, "byte", 9), undefined);
    assert.equal(await expiredAfter("byte", 10), "betweenChunksMs");
    assert.equal(await expiredAfter(50, "byte", 9, "byte", 10), "betweenChunksMs");
  });
  it("ends a call that trickles for too long", async () => {
    const trickle = (times: number) => Array.from({ length: times }, () => [5, "byte"] as const).flat();
    assert.equal(await expiredAfter("byte", ...trickle(29)), undefined);
    assert.equal(await expiredAfter("byte", ...trickle(30)), "totalMs");
  });
});

describe("the usage of an answer", () => {
  const usageOf = (usage: unknown) => {
    const answer = JSON.stringify({ choices: [{ message: { content: "hi" }, finish_reason: "stop" }], usage });
    const outcome = readAnswer(answer, "host");
    assert.equal(outcome.kind, "response");
    return outcome.kind === "response" ? outcome.usage : null;
  };

  it("hands on what the endpoint had cached, where it tells", () => {
    const plain = { prompt_tokens: 10, completion_tokens: 2 };
    assert.deepEqual(usageOf(plain), { inputTokens: 10, outputTokens: 2 });
    assert.deepEqual(usageOf({ ...plain, prompt_tokens_details: { cached_tokens: 8 } }), {
      inputTokens: 10,
      outputTokens: 2,
      cachedInputTokens: 8,
    });
    for (const details of [null, {}, { cached_tokens: null }, "none", { cached_tokens: "8" }])
      assert.deepEqual(usageOf({ ...plain, prompt_tokens_details: details }), { inputTokens: 10, outputTokens: 2 });
  });

  it("is not known where a number is missing: half of it would count as zero", () => {
    for (const usage of [undefined, null, {}, { prompt_tokens: 10 }, { completion_tokens: 2 }])
      assert.equal(usageOf(usage), null, JSON.stringify(usage));
  });
});

describe("the rate gate", () => {
  it("opens when its time has come, and a shorter wait does not shorten it", () => {
    const gate = new RateGate();
    gate.close("a", 0, 100);
    gate.close("a", 10, 20);
    assert.equal(gate.remaining("a", 99), 1);
    assert.equal(gate.remaining("a", 100), 0);
    assert.equal(gate.remaining("b", 0), 0);
  });

  it("remembers a bounded number of credentials", () => {
    const gate = new RateGate();
    for (let index = 0; index <= MAX_GATES; index += 1) gate.close(`${index}`, 0, 100);
    assert.equal(gate.remaining("0", 0), 0);
    assert.equal(gate.remaining("1", 0), 100);
  });

  it("names credentials without keeping them", () => {
    assert.ok(!credentialOf("https://x", "secret").includes("secret"));
    assert.notEqual(credentialOf("https://x", "a"), credentialOf("https://x", "b"));
    assert.notEqual(credentialOf("https://x", "a"), credentialOf("https://y", "a"));
  });
});

describe("the system clock", () => {
  it("sleeps no longer than its signal allows, and not at all for nothing", async () => {
    const stop = new AbortController();
    const sleeping = systemClock.sleep(2 ** 40, stop.signal);
    stop.abort();
    await sleeping;
    await systemClock.sleep(60_000, AbortSignal.abort());
    await systemClock.sleep(0);
    await systemClock.sleep(-5);
    assert.ok(systemClock.monotonic() <= systemClock.monotonic());
  });
});
