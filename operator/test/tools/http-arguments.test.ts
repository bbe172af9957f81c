import assert from "node:assert/strict";
import {
  keyHeaderFor,
  MAX_BODY,
  MAX_HEADERS,
  MAX_HEADER_VALUE,
  MAX_URL,
  normalUrl,
  parseRequest,
} from "#tools/http-arguments.ts";

const url = "https://example.com/a";
const messageOf = (args: unknown): string => {
  const parsed = parseRequest(args);
  return parsed.ok ? "" : parsed.message;
};

describe("the arguments of http_request", () => {
  it("normalise method, header names and body", () => {
    assert.deepEqual(parseRequest({ method: "post", url, headers: { "X-A": "1" }, body: { text: "hi" } }), {
      ok: true,
      value: {
        method: "POST",
        url,
        headers: { "content-type": "application/json", "x-a": "1" },
        body: '{"text":"hi"}',
      },
    });
  });

  it("leave a content type that the model chose", () => {
    const parsed = parseRequest({ method: "PUT", url, headers: { "Content-Type": "text/csv" }, body: "a;b" });
    assert.ok(parsed.ok);
    assert.deepEqual(parsed.value["headers"], { "content-type": "text/csv" });
  });

  const refused: [string, object, RegExp][] = [
    ["another method", { method: "TRACE", url }, /method/],
    ["CONNECT", { method: "CONNECT", url }, /method/],
    ["a relative address", { method: "GET", url: "/a" }, /not an absolute address/],
    ["another scheme", { method: "GET", url: "file:///etc/passwd" }, /only http and https/],
    ["a password in the address", { method: "GET", url: "https://u:p@example.com" }, /user name or password/],
    ["a long address", { method: "GET", url: `${url}${"a".repeat(MAX_URL)}` }, /url/],
    ["a body on a read", { method: "GET", url, body: "x" }, /has none/],
    ["a large body", { method: "POST", url, body: "é".repeat(MAX_BODY / 2 + 1) }, /at most/],
    [
      "many headers",
      {
        method: "GET",
        url,
        headers: Object.fromEntries(Array.from({ length: MAX_HEADERS + 1 }, (_, i) => [`x-${i}`, ""])),
      },
      /at most/,
    ],
    ["a long header", { method: "GET", url, headers: { a: "x".repeat(MAX_HEADER_VALUE + 1) } }, /longer than/],
    ["a line break in a header", { method: "GET", url, headers: { a: "x\r\nHost: evil" } }, /cannot carry/],
    ["a header twice", { method: "GET", url, headers: { "X-A": "1", "x-a": "2" } }, /given twice/],
    ["a bad header name", { method: "GET", url, headers: { "a b": "1" } }, /not a header name/],
    ["an unknown argument", { method: "GET", url, follow: true }, /not accepted/],
    ["nothing", {}, /not accepted/],
  ];
  for (const [title, args, words] of refused) it(`refuse ${title}`, () => assert.match(messageOf(args), words));

  const forbidden = [
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Upgrade",
    "Expect",
    "TE",
    "Authorization",
    "Cookie",
    "Proxy-Authorization",
    "Idempotency-Key",
    "X-HTTP-Method-Override",
    "X-Method-Override",
    "X-HTTP-Method",
  ];
  for (const name of forbidden) {
    it(`refuse the header ${name}`, () =>
      assert.match(messageOf({ method: "GET", url, headers: { [name]: "x" } }), /set by the system/));
  }

  it("a declared key header must be a header that nobody else sets", () => {
    assert.deepEqual(keyHeaderFor(undefined), { ok: true, name: "Idempotency-Key" });
    assert.deepEqual(keyHeaderFor("X-Request-Id"), { ok: true, name: "X-Request-Id" });
    for (const bad of ["Host", "content-length", "a b", ""]) assert.equal(keyHeaderFor(bad).ok, false);
  });
});

describe("a target", () => {
  const same: [string, string][] = [
    ["HTTPS://Example.COM:443/a#part", "https://example.com/a"],
    ["https://example.com./a", "https://example.com/a"],
    ["https://example.com", "https://example.com/"],
    ["https://example.com/a/../b/./c", "https://example.com/b/c"],
    ["https://example.com/%7euser/%2fx", "https://example.com/~user/%2Fx"],
    ["http://2130706433/", "http://127.0.0.1/"],
    ["http://[0:0::1]:8080/?q=%41", "http://[::1]:8080/?q=A"],
  ];
  for (const [given, normal] of same) it(`${given} is ${normal}`, () => assert.equal(normalUrl(given), normal));
  it("keeps addresses apart that differ", () => {
    assert.notEqual(normalUrl("https://example.com/a?x=1"), normalUrl("https://example.com/a?x=2"));
    assert.notEqual(normalUrl("https://example.com/a"), normalUrl("https://example.com/A"));
    assert.notEqual(normalUrl("http://example.com/a"), normalUrl("https://example.com/a"));
  });
});
