import assert from "node:assert/strict";
import { BoundedBody, clip, HEAD_BYTES, MAX_READ, TAIL_BYTES } from "#tools/body.ts";

function bodyOf(...chunks: (string | Buffer)[]): BoundedBody {
  const body = new BoundedBody();
  for (const chunk of chunks) body.push(Buffer.from(chunk as string));
  return body;
}

describe("the body of an answer", () => {
  it("is kept whole while it fits", () => {
    const text = "x".repeat(HEAD_BYTES + TAIL_BYTES);
    assert.equal(bodyOf(text).text(false), text);
    assert.equal(bodyOf("").text(false), "");
  });

  it("otherwise says its head, its tail, its size and how much is missing", () => {
    const text = bodyOf(`BEGIN${"x".repeat(50_000)}`, `${"y".repeat(50_000)}END`).text(false);
    assert.match(text, /^BEGIN/);
    assert.match(text, /END$/);
    assert.match(text, new RegExp(`${100_008 - HEAD_BYTES - TAIL_BYTES} bytes left out, 100008 bytes in all`));
  });

  it("is the same however it was cut into chunks", () => {
    const text = Array.from({ length: 9_000 }, (_, index) => `${index} `).join("");
    const whole = bodyOf(text).text(false);
    const pieces = text.match(/.{1,7}/gs) ?? [];
    assert.equal(bodyOf(...pieces).text(false), whole);
  });

  it("says that the size is a lower bound when reading was stopped", () => {
    const body = new BoundedBody();
    const chunk = Buffer.alloc(1024 * 1024, "x");
    while (!body.full) body.push(chunk);
    assert.equal(body.size, MAX_READ);
    assert.match(body.text(true), /at least \d+ bytes in all/);
  });

  it("shows no binary content and no halves of characters", () => {
    assert.match(bodyOf(Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0])).text(false), /^\[binary content, 6 bytes/);
    assert.match(bodyOf(Buffer.alloc(400, 0xff)).text(false), /binary/);
    assert.ok(!bodyOf("é".repeat(20_000)).text(false).includes("\ufffd"));
  });

  it("is clipped between characters, and never holds what a database refuses", () => {
    assert.equal(clip("ééé", 5), "éé");
    assert.equal(clip("a\0b", 100), "a\ufffdb");
    assert.equal(clip("a\ud800", 100), "a\ufffd");
    assert.ok(Buffer.byteLength(clip("😀".repeat(100), 10)) <= 10);
  });
});
