import assert from "node:assert/strict";
import { fillArguments, fillText, MAX_RENDERED, placeholders } from "#rules/template.ts";

const ARGS = { owner: "acme", repo: "api", issue: { number: 7, labels: ["bug"] }, draft: false, nothing: null };
const EFFECT = "01980000-0000-7000-8000-000000000001";

describe("a template", () => {
  const texts: [template: string, text: string][] = [
    ["{owner}/{repo}", "acme/api"],
    ["{issue.number}: {issue.labels.0}, {draft}", "7: bug, false"],
    ["no placeholder", "no placeholder"],
    ["{{owner}} is {owner}", "{owner} is acme"],
    ['{"state": "closed", "of": "{owner}"}', '{"state": "closed", "of": "acme"}'],
    ["{ owner } {}", "{ owner } {}"],
    ["100 % {owner}", "100 % acme"],
  ];
  for (const [template, text] of texts) {
    it(`"${template}" is "${text}"`, () => {
      assert.deepEqual(fillText(template, { args: ARGS }), { ok: true, value: text });
    });
  }

  const missing = [
    "{title}",
    "{issue.title}",
    "{issue}",
    "{issue.labels}",
    "{nothing}",
    "{owner.length}",
    "{__proto__}",
  ];
  for (const template of missing) {
    it(`with ${template} cannot be filled: there is no such text among the arguments`, () => {
      assert.deepEqual(fillText(template, { args: ARGS }), { ok: false, missing: template.slice(1, -1) });
    });
  }

  it("knows the write's id and its answer where there are some, and arguments of those names where not", () => {
    const known = { args: { effect: { id: "mine" }, result: { id: 1 } } };
    assert.deepEqual(fillText("{effect.id} {result.id}", known), { ok: true, value: "mine 1" });
    const more = { ...known, effectId: EFFECT, result: { id: 9 } };
    assert.deepEqual(fillText("{effect.id} {result.id}", more), { ok: true, value: `${EFFECT} 9` });
    assert.deepEqual(fillText("{result.id}", { ...more, result: undefined }), { ok: false, missing: "result.id" });
  });

  it("knows what was there before the write, where somebody looked", () => {
    const known = { args: { prior: "mine" }, effectId: EFFECT };
    assert.deepEqual(fillText("{prior}", known), { ok: true, value: "mine" });
    assert.deepEqual(fillText("{prior.title}", { ...known, prior: { title: "Old" } }), { ok: true, value: "Old" });
    assert.deepEqual(fillText("{prior}", { ...known, prior: "Old" }), { ok: true, value: "Old" });
  });

  it("inserts a value as it is: what looks like a placeholder in it is none", () => {
    assert.deepEqual(fillText("{a}", { args: { a: "{b}$&", b: "x" } }), { ok: true, value: "{b}$&" });
  });

  it("does not become longer than a text may be", () => {
    const filled = fillText("{a}", { args: { a: "x".repeat(MAX_RENDERED + 1) } });
    assert.match(filled.ok ? "" : filled.missing, /too long/);
  });

  it("tells the names it uses", () => {
    assert.deepEqual(placeholders("{a}/{b.c} {{d}}"), ["a", "b.c"]);
  });
});

describe("arguments from templates", () => {
  it("keep the type of a value that is all there is", () => {
    const filled = fillArguments(
      { number: "{issue.number}", labels: "{issue.labels}", text: "#{issue.number}" },
      { args: ARGS },
    );
    assert.deepEqual(filled, { ok: true, value: { number: 7, labels: ["bug"], text: "#7" } });
  });

  it("are not made at all when one of them cannot be", () => {
    assert.deepEqual(fillArguments({ a: "x", b: "{nothing}" }, { args: ARGS }), { ok: false, missing: "nothing" });
  });

  it("cannot change an address: what is put into a url is encoded, a whole address is taken", () => {
    const args = { key: "a/../b?c=&d#e", at: "https://api.test/x?y=1" };
    assert.deepEqual(fillArguments({ url: "https://api.test/notes?key={key}" }, { args }), {
      ok: true,
      value: { url: "https://api.test/notes?key=a%2F..%2Fb%3Fc%3D%26d%23e" },
    });
    for (const dots of [".", "..", "\ud800"]) {
      const filled = fillArguments({ url: "https://api.test/notes/{key}" }, { args: { key: dots } });
      assert.deepEqual(filled, { ok: false, missing: "key" });
    }
    assert.deepEqual(fillArguments({ url: "{at}" }, { args }), { ok: true, value: { url: args.at } });
  });
});
