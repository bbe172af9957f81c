/**
 * Credentials are taken out of a text before it is stored or logged: values that are known to be secret, in the forms in
 * which they turn up elsewhere, and what has the shape of a well-known token. Pure, idempotent, and linear in the text:
 * no pattern here can be made to look back further than a fixed number of characters, or twice at the same run of them.
 */

/**
 * Values shorter than this are not looked for: they are words, and taking words out would ruin every text. Nobody should
 * have such a key; where it happens, docs/decisions.md says that it is not protected.
 */
export const MIN_SECRET = 8;
/** Letters alone are a word up to this length (`postgres`, `changeit`), however secret somebody thinks it is. */
export const MIN_SECRET_WORD = 16;
/** A key ends well before this; what is longer is no credential but a document. */
export const MAX_SECRET = 16 * 1024;

/** `what` names it to people, as in `Secret demo/openai`. */
export type Secret = { readonly what: string; readonly value: string };

const GENERIC = "a secret";
const marker = (what: string): string => `[redacted: ${what}]`;

/** A name that breaks no JSON string and no marker, and does not give away what it stands for. */
const label = ({ what, value }: Secret): string => {
  const safe = what.replaceAll(/[^A-Za-z0-9 ._/-]/g, "_").slice(0, 100);
  return safe === "" || safe.includes(value) ? GENERIC : safe;
};

/** What of a value's base64 is the same whatever stands `skip` bytes before it and anything behind it. */
function insideBase64(value: Buffer, skip: number): string {
  const encoded = Buffer.concat([Buffer.alloc(skip), value]).toString("base64");
  return encoded.slice(Math.ceil((skip * 8) / 6), Math.floor(((skip + value.length) * 8) / 6));
}

const urlSafe = (base64: string): string => base64.replaceAll("+", "-").replaceAll("/", "_");
const lowerHex = (encoded: string): string => encoded.replaceAll(/%[0-9A-F]{2}/g, (part) => part.toLowerCase());
/** What a query string and a form make of the same text. */
const percent = (value: string): string[] => {
  const encoded = encodeURIComponent(value.toWellFormed());
  const strict = encoded.replaceAll(/[!'()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`);
  return [encoded, strict, strict.replaceAll("%20", "+")].flatMap((form) => [form, lowerHex(form)]);
};

/** Every text that stands for a value, longest first. */
export function formsOf(value: string): string[] {
  const bytes = Buffer.from(value);
  const quoted = (text: string): string => JSON.stringify(text).slice(1, -1);
  const inJson = quoted(value);
  const base64 = [0, 1, 2].map((skip) => insideBase64(bytes, skip));
  const forms = [
    value,
    inJson,
    // JSON within JSON within JSON: a log line that quotes a body that holds arguments.
    quoted(inJson),
    quoted(quoted(inJson)),
    ...percent(value),
    ...base64,
    ...base64.map(urlSafe),
  ];
  return [...new Set(forms)].filter((form) => form.length >= MIN_SECRET).sort((a, b) => b.length - a.length);
}

type Shape = { readonly what: string; readonly pattern: RegExp };

/**
 * Well-known tokens. `$<keep>` is what stays in front. None of them fits a word, a UUID or a hash. Where a pattern has
 * several parts it begins at the edge of a run of its characters, so that no run is tried from its middle.
 */
export const SHAPES: readonly Shape[] = [
  {
    what: "a private key",
    pattern:
      /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:(?!-----)[\s\S]){0,16384}-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----/g,
  },
  // Cut before its end.
  {
    what: "a private key",
    pattern: /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:(?:\s|\\{1,4}[nr])+[A-Za-z0-9+/=]{16,})+/g,
  },
  { what: "a GitHub token", pattern: /\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})/g },
  { what: "a GitLab token", pattern: /\bgl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|imt|ptt)-[A-Za-z0-9_-]{20,}/g },
  { what: "a Slack token", pattern: /\b(?:xox[abeoprs]|xapp-[0-9])-[A-Za-z0-9-]{10,}/g },
  {
    what: "a Slack webhook",
    pattern: /(?<keep>\bhttps:\/\/hooks\.slack\.com\/)(?:services|workflows|triggers)\/[A-Za-z0-9/_-]{20,}/g,
  },
  { what: "an AWS key", pattern: /\b(?:AKIA|ASIA)[A-Z2-7]{16}\b/g },
  {
    what: "an AWS key",
    pattern:
      /(?<keep>\baws_?(?:secret_?(?:access_?)?key|session_?token)["']?\s{0,5}[:=]\s{0,5}["']?)[A-Za-z0-9/+=]{40,}/gi,
  },
  { what: "a Google key", pattern: /\b(?:AIza[A-Za-z0-9_-]{35}|GOCSPX-[A-Za-z0-9_-]{28}|ya29\.[A-Za-z0-9_-]{20,})/g },
  { what: "an npm token", pattern: /\bnpm_[A-Za-z0-9]{36}/g },
  // A digit tells a key from a name that happens to begin like one.
  { what: "a model key", pattern: /\bsk-(?=[A-Za-z_-]{0,80}[0-9])[A-Za-z0-9_-]{20,}/g },
  {
    what: "a JSON web token",
    pattern: /(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}/g,
  },
  {
    what: "a credential",
    pattern:
      /(?<keep>\bauthorization["'\\]{0,3}\s{0,5}[:=]\s{0,5}["'\\]{0,3}(?:bearer|basic|token)\s{1,5})[A-Za-z0-9._~+/=-]{8,}/gi,
  },
  { what: "a credential", pattern: /(?<keep>\bBearer\s{1,5})(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{20,}/g },
  {
    what: "a password",
    pattern:
      /(?<keep>\b(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?):\/\/[^\s:@/]{0,256}:)[^\s@/]{1,256}(?=@)/gi,
  },
];

const MARKERS_OF_SHAPES = [...new Set(SHAPES.map(({ what }) => marker(what)))];

const isLookedFor = (value: string): boolean =>
  value.length >= (/^[a-z]+$/i.test(value) ? MIN_SECRET_WORD : MIN_SECRET) && value.length <= MAX_SECRET;

type Needle = { readonly form: string; readonly instead: string };
type Piece = { readonly text: string; readonly done: boolean };

/** Markers that stand there already are left alone, and nothing else that looks like one. */
function pieces(text: string, markers: readonly string[]): Piece[] {
  if (!text.includes("[redacted: ")) return [{ text, done: false }];
  return markers.reduce<Piece[]>(
    (found, mark) => found.flatMap((piece) => cut(piece, mark, mark)),
    [{ text, done: false }],
  );
}

function cut(piece: Piece, form: string, instead: string): Piece[] {
  if (piece.done || !piece.text.includes(form)) return [piece];
  return piece.text
    .split(form)
    .flatMap((text, index) => (index === 0 ? [] : [{ text: instead, done: true }]).concat({ text, done: false }));
}

const replaceShapes = (text: string): string =>
  SHAPES.reduce(
    (kept, { what, pattern }) =>
      kept.replaceAll(pattern, (...match: unknown[]) => {
        // Named groups come last, where the pattern has any.
        const groups = match.at(-1) as string | { readonly keep?: string };
        return `${typeof groups === "string" ? "" : (groups.keep ?? "")}${marker(what)}`;
      }),
    text,
  );

export type Redact = (text: string) => string;

/** A function that takes these values and all token shapes out of a text. Made once per set of values. */
export function redactor(secrets: readonly Secret[]): Redact {
  const usable = secrets.filter(({ value }) => isLookedFor(value));
  const needles: Needle[] = usable
    .flatMap((secret) => formsOf(secret.value).map((form) => ({ form, instead: marker(label(secret)) })))
    .sort((a, b) => b.form.length - a.form.length);
  const markers = [...new Set([...MARKERS_OF_SHAPES, ...needles.map(({ instead }) => instead)])];
  return (text) => {
    const found = needles
      // Most texts hold none: one look per form before anything is cut.
      .filter(({ form }) => text.includes(form))
      .reduce<Piece[]>(
        (parts, { form, instead }) => parts.flatMap((piece) => cut(piece, form, instead)),
        pieces(text, markers),
      );
    return found.map((piece) => (piece.done ? piece.text : replaceShapes(piece.text))).join("");
  };
}

/** Token shapes alone: for who knows no values. */
export const redactTokens: Redact = redactor([]);

/** The same for every text in a JSON value, keys included. What holds none comes back as it is. */
export function redactJson<T>(value: T, redact: Redact): T {
  return redacted(value, redact) as T;
}

function redacted(value: unknown, redact: Redact): unknown {
  if (typeof value === "string") return redact(value);
  if (Array.isArray(value)) return value.map((entry) => redacted(entry, redact));
  if (typeof value !== "object" || value === null) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [redact(key), redacted(entry, redact)]));
}
