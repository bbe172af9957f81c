import assert from "node:assert/strict";
import { answerOf, choose, type ModelAnswer, type ParsedBook, reword, scriptBook } from "../src/model-script.ts";
import type { ModelMessage } from "../src/model-strict.ts";

const book: ParsedBook = scriptBook.parse({
  scripts: {
    note: {
      steps: [
        {
          calls: [
            {
              name: "http_request",
              arguments: { method: "POST", url: "{{url}}", body: '{"text":"the deploy went well"}' },
            },
          ],
        },
        [{ text: "first" }, { text: "second" }],
      ],
    },
    weather: { match: "umbrella", steps: [{ text: "It will rain all day." }] },
  },
});
const user = (content: string): ModelMessage => ({ role: "user", content });
const called: ModelMessage = {
  role: "assistant",
  tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}" } }],
};
const result: ModelMessage = { role: "tool", tool_call_id: "a", content: "x" };

describe("the step of a script", () => {
  it("is the number of assistant messages since the message that asked for it", () => {
    assert.deepEqual(choose(book, [user("script:note")]).step, 0);
    assert.deepEqual(choose(book, [user("script:note"), called, result]).step, 1);
  });
  it("does not move when instructions or amendments follow", () => {
    const choice = choose(book, [user("[alice] script:note"), called, result, user("Continue; do not repeat.")]);
    assert.deepEqual([choice.script, choice.step], ["note", 1]);
  });
  it("is of the last script that is named, also where several messages have become one", () => {
    assert.equal(choose(book, [user("[alice] script:weather\n\n[alice] script:note")]).script, "note");
  });
  it("starts again with a new turn", () => {
    const choice = choose(book, [user("script:note"), { role: "assistant", content: "done" }, user("script:note")]);
    assert.equal(choice.step, 0);
  });
  it("is found by the words of a message too", () => {
    assert.equal(choose(book, [user("do I need an umbrella?")]).script, "weather");
    assert.equal(choose(book, [user("hello")]).script, undefined);
  });
});

describe("the answer of a step", () => {
  const at = (text: string, step: number, sample: number): ModelAnswer | undefined =>
    answerOf(book, { ...choose(book, [user(text)]), script: choose(book, [user(text)]).script ?? "", step }, sample);

  it("is filled from the words of the message", () => {
    const answer = at("please script:note url=http://world/notes", 0, 0);
    assert.equal(answer?.calls?.[0]?.arguments?.["url"], "http://world/notes");
  });
  it("says the same in other words when it is sampled again, and leaves addresses alone", () => {
    const first = at("script:note url=http://world/notes", 0, 0)?.calls?.[0]?.arguments;
    const again = at("script:note url=http://world/notes", 0, 1)?.calls?.[0]?.arguments;
    assert.notEqual(again?.["body"], first?.["body"]);
    assert.equal(again?.["body"], '{"text":"In other words (1): the deploy went well"}');
    assert.equal(again?.["url"], first?.["url"]);
    assert.equal(again?.["method"], "POST");
  });
  it("goes through a list by sampling and stays with the last", () => {
    const texts = [0, 1, 2].map((sample) => at("script:note", 1, sample)?.text);
    assert.deepEqual(texts, ["first", "second", "second"]);
  });
  it("is missing after the last step", () => assert.equal(at("script:note", 2, 0), undefined));
});

describe("rewording", () => {
  it("is different each time and keeps single words and addresses", () => {
    assert.notEqual(reword("two words", 1), reword("two words", 2));
    for (const text of ["word", "https://example.com/a", "42", ""]) assert.equal(reword(text, 1), text);
  });
});
