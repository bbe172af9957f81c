/** What is taken out of texts, and what is left alone. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { formsOf, MIN_SECRET, MIN_SECRET_WORD, redactJson, redactor, redactTokens, SHAPES } from "#rules/secrets.ts";

// Put together here, so that no scanner takes this file for a leak.
const x = (length: number): string => "aB3dE6gH9".repeat(40).slice(0, length);
const TOKENS: readonly (readonly [what: string, token: string])[] = [
  ...["ghp", "gho", "ghu", "ghs", "ghr"].map((kind) => ["a GitHub token", `${kind}_${x(36)}`] as const),
  ["a GitHub token", `github_pat_${x(22)}_${x(59)}`],
  ["a GitLab token", `glpat-${x(20)}`],
  ["a Slack token", `xoxb-${"1".repeat(12)}-${x(24)}`],
  ["a Slack token", `xapp-1-A0${x(20)}`],
  ["an AWS key", ["AKIA", "ABCDEFGH234567AB"].join("")],
  ["a Google key", `AIza${x(35)}`],
  ["a Google key", `ya29.${x(40)}`],
  ["an npm token", `npm_${x(36)}`],
  ["a model key", `sk-proj-${x(40)}`],
  ["a JSON web token", `eyJ${x(20)}.eyJ${x(40)}.${x(43)}`],
  ["a private key", `-----BEGIN RSA PRIVATE KEY-----\n${x(64)}\n${x(30)}==\n-----END RSA PRIVATE KEY-----`],
  ["a private key", `-----BEGIN PRIVATE KEY-----\\n${x(64)}\\n${x(64)}`],
];
/** In front of the marker something stays. */
const PARTS: readonly (readonly [text: string, left: string])[] = [
  [`Authorization: Bearer ${x(12)}`, "Authorization: Bearer [redacted: a credential]"],
  [`{"authorization":"Basic ${x(20)}="}`, '{"authorization":"Basic [redacted: a credential]"}'],
  [`use Bearer ${x(30)} there`, "use Bearer [redacted: a credential] there"],
  ["postgres://pawl:p4ss%2Fword@db:5432/x", "postgres://pawl:[redacted: a password]@db:5432/x"],
  ["rediss://:hunter2@cache", "rediss://:[redacted: a password]@cache"],
  [`aws_secret_access_key = ${x(40)}`, "aws_secret_access_key = [redacted: an AWS key]"],
  [`https://hooks.slack.com/services/T1/B2/${x(24)}`, "https://hooks.slack.com/[redacted: a Slack webhook]"],
];
const LEFT_ALONE = [
  "The bearer of this letter is authorized to enter; bearer authentication-is-required.",
  "Authorization is explained in RFC 9110. authorization: none",
  "0197f1c2-7d6e-7a52-9c2c-3f2a6d1f7b10",
  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
  "sha512-9n2qYNL7LkXN5lJjWQZ3wAAAABBBBCCCCDDDDeeeeffff==",
  "ghp_short, npm_config_registry, xoxb, AKIA, eyJ.eyJ.x, glpat-, sk-learn-and-other-libraries-of-that-kind",
  "postgres://db:5432/x and https://example.test/a:b@c and user:name@example.test",
  "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
  "-----BEGIN PRIVATE KEY----- is how such a file begins, and it is followed by base64.",
];

const BASE64 = /^[A-Za-z0-9+/_-]+$/;

describe("secrets in a text", () => {
  for (const [what, token] of TOKENS) {
    it(`${what} is known by its shape: ${token.slice(0, 11)}`, () => {
      const text = `before ${token}`;
      assert.equal(redactTokens(text), `before [redacted: ${what}]`);
      assert.equal(redactTokens(`{"a":${JSON.stringify(token)},"b":1}`).includes(x(20)), false);
    });
  }
  for (const [text, left] of PARTS) {
    it(`only the secret part goes: ${left}`, () => assert.equal(redactTokens(text), left));
  }
  for (const text of LEFT_ALONE) {
    it(`words, ids and hashes stay: ${text.slice(0, 40)}`, () => assert.equal(redactTokens(text), text));
  }

  it("a known value goes in every form in which it turns up", () => {
    const value = 'p/ss+wörd="1?\n2';
    const redact = redactor([{ what: "Secret demo/key", value }]);
    const encodings = [
      value,
      JSON.stringify({ value }),
      JSON.stringify(JSON.stringify({ value })),
      `?q=${encodeURIComponent(value)}`,
      new URLSearchParams({ value }).toString(),
      encodeURIComponent(value).toLowerCase(),
      ...["", "a", "ab", "abc"].flatMap((before) =>
        ["", "z", "yz"].flatMap((behind) => {
          const bytes = Buffer.from(`${before}${value}${behind}`);
          return [bytes.toString("base64"), bytes.toString("base64url")];
        }),
      ),
    ];
    for (const encoded of encodings) {
      const left = redact(`[${encoded}]`);
      assert.match(left, /\[redacted: Secret demo\/key\]/, encoded);
      // What is left beside the marker are at most the characters of base64 that belong to the neighbours, too.
      if (BASE64.test(encoded.replace(/=+$/, "")))
        assert.ok(left.length <= "[[redacted: Secret demo/key]]".length + 12);
    }
  });

  it("a value that is a word or shorter than what can be told from one is not looked for", () => {
    const words = ["x".repeat(MIN_SECRET_WORD - 1), "a1".repeat(MIN_SECRET).slice(0, MIN_SECRET - 1), ""];
    const redact = redactor(words.map((value) => ({ what: "w", value })));
    const text = `these ${words.join(" and ")} stay`;
    assert.equal(redact(text), text);
    const long = "x".repeat(MIN_SECRET_WORD);
    assert.equal(redactor([{ what: "w", value: long }])(long), "[redacted: w]");
    assert.equal(redactor([{ what: "w", value: "a1b2c3d4" }])("a1b2c3d4"), "[redacted: w]");
  });

  it("nothing hides in what looks like a marker, and no name gives a value away", () => {
    const redact = redactor([{ what: "key s3cr3t-value", value: "s3cr3t-value" }]);
    assert.equal(redact("[redacted: s3cr3t-value]"), "[redacted: [redacted: a secret]]");
  });

  it("a text that was redacted stays as it is", () => {
    const value = fc.string({ minLength: MIN_SECRET, maxLength: 40, unit: "grapheme" });
    const pieces = fc.array(fc.oneof(value, fc.constantFrom(...TOKENS.map(([, token]) => token), ...LEFT_ALONE)));
    fc.assert(
      fc.property(fc.array(value, { maxLength: 4 }), pieces, (values, texts) => {
        const redact = redactor(values.map((secret, index) => ({ what: `Secret n/k${index}`, value: secret })));
        const once = redact([...texts, ...values.flatMap(formsOf)].join("\n"));
        assert.equal(redact(once), once);
      }),
    );
  });

  it("JSON keeps its structure, and loses secrets in keys and values alike", () => {
    const redact = redactor([{ what: "k", value: "s3cr3t-value" }]);
    const at = new Date(0);
    assert.deepEqual(redactJson({ "s3cr3t-value": [1, null, { a: "is s3cr3t-value" }], at }, redact), {
      "[redacted: k]": [1, null, { a: "is [redacted: k]" }],
      at,
    });
  });

  it("no text makes a pattern look at the same characters again and again", () => {
    // A quarter of a megabyte of what each pattern begins with. With quadratic work this would not end within hours.
    const openings = [
      "eyJ",
      "eyJ-",
      "eyJa.",
      "-----BEGIN PRIVATE KEY-----",
      "-----BEGIN ",
      "authorization: ",
      "Bearer ",
      "sk-",
      "postgres://a:",
      "postgres://",
      "aws_secret_access_key=",
      "ghp_",
      "xoxb-",
      "glpat-a",
      "\\n",
      "[redacted: ",
    ];
    for (const opening of openings) {
      const text = opening.repeat(Math.ceil(262_144 / opening.length));
      assert.equal(typeof redactTokens(text), "string");
    }
  }).timeout(20_000);

  it("every shape has an example here", () => {
    const found = new Set([
      ...TOKENS.map(([what]) => what),
      ...PARTS.map(([, left]) => /redacted: (.*)\]/.exec(left)?.[1]),
    ]);
    assert.deepEqual(
      [...new Set(SHAPES.map(({ what }) => what))].filter((what) => !found.has(what)),
      [],
    );
  });
});
