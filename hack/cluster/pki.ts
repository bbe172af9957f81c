// Keys and certificates of a throw-away cluster, by openssl.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../lib/run.ts";

const DAYS = "3650";
const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

export type Subject = {
  /** User name, or the server's name. */
  name: string;
  groups?: readonly string[];
  /** For a server: "DNS:…" and "IP:…". */
  names?: readonly string[];
};

export type Certificate = { cert: string; key: string };

/** Makes a certificate authority in `folder` unless there is one. */
export async function createAuthority(folder: string): Promise<Certificate> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const [cert, key] = [join(folder, "ca.crt"), join(folder, "ca.key")];
  if (existsSync(cert)) return { cert, key };
  const usage = "keyUsage=critical,keyCertSign,cRLSign,digitalSignature";
  const subject = ["-subj", "/CN=pawl-local-ca", "-addext", usage, "-days", DAYS];
  await run("openssl", ["req", "-x509", ...NEW_KEY, ...subject, "-keyout", key, "-out", cert]);
  return { cert, key };
}

/** The key that signs service account tokens, and its public half. */
export async function createSigningKey(folder: string): Promise<{ private: string; public: string }> {
  const [key, pub] = [join(folder, "sa.key"), join(folder, "sa.pub")];
  await run("openssl", ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key]);
  await run("openssl", ["pkey", "-in", key, "-pubout", "-out", pub]);
  return { private: key, public: pub };
}

/** Issues `FILE.crt` and `FILE.key`, for a client and, with names, for a server. */
export async function issue(folder: string, file: string, subject: Subject): Promise<Certificate> {
  const [cert, key] = [join(folder, `${file}.crt`), join(folder, `${file}.key`)];
  const [request, extensions] = [join(folder, `${file}.csr`), join(folder, `${file}.ext`)];
  const groups = (subject.groups ?? []).map((group) => `/O=${group}`).join("");
  writeFileSync(
    extensions,
    [
      "basicConstraints=CA:FALSE",
      "keyUsage=critical,digitalSignature",
      `extendedKeyUsage=${subject.names ? "serverAuth,clientAuth" : "clientAuth"}`,
      ...(subject.names ? [`subjectAltName=${subject.names.join(",")}`] : []),
    ].join("\n"),
  );
  await run("openssl", [
    "req",
    "-new",
    ...NEW_KEY,
    "-subj",
    `${groups}/CN=${subject.name}`,
    "-keyout",
    key,
    "-out",
    request,
  ]);
  // A random serial number: a counter file would tie parallel calls together.
  const authority = [
    "-CA",
    join(folder, "ca.crt"),
    "-CAkey",
    join(folder, "ca.key"),
    "-set_serial",
    `0x${randomHex()}`,
  ];
  await run("openssl", [
    "x509",
    "-req",
    "-in",
    request,
    "-days",
    DAYS,
    "-extfile",
    extensions,
    "-out",
    cert,
    ...authority,
  ]);
  return { cert, key };
}

function randomHex(): string {
  return `1${Buffer.from(crypto.getRandomValues(new Uint8Array(15))).toString("hex")}`;
}

/** A kubeconfig with everything inside, so that it can be copied. */
export function kubeconfig(context: string, server: string, authority: string, client: Certificate): string {
  const base64 = (file: string) => readFileSync(file).toString("base64");
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: context, cluster: { server, "certificate-authority-data": base64(authority) } }],
    users: [
      {
        name: context,
        user: { "client-certificate-data": base64(client.cert), "client-key-data": base64(client.key) },
      },
    ],
    contexts: [{ name: context, context: { cluster: context, user: context } }],
    "current-context": context,
  };
  // JSON is YAML.
  return `${JSON.stringify(config, null, 2)}\n`;
}
