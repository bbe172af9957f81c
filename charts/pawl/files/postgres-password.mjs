// Creates the Secret with the bundled database's password, unless it is there: a chart that made one up at each
// rendering would lock the database at the first upgrade. Needs the right to create Secrets, not to read them.
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";

const account = "/var/run/secrets/kubernetes.io/serviceaccount";
const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port, NAMESPACE: namespace, SECRET: name } = process.env;
const at = `https://${host.includes(":") ? `[${host}]` : host}:${port}/api/v1/namespaces/${namespace}/secrets`;
const password = randomBytes(24).toString("hex");
const secret = {
  apiVersion: "v1",
  kind: "Secret",
  metadata: { name, labels: { "app.kubernetes.io/name": "pawl", "app.kubernetes.io/component": "postgres" } },
  stringData: { password, url: `postgres://pawl:${password}@${name}.${namespace}.svc:5432/pawl` },
};

async function create() {
  const token = readFileSync(`${account}/token`, "utf8");
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(at, { method: "POST", headers, body: JSON.stringify(secret), signal: AbortSignal.timeout(10_000) });
  if (answer.status === 201) return `created Secret ${name}`;
  if (answer.status === 409) return `Secret ${name} is there and stays`;
  throw new Error(`create Secret ${name}: ${answer.status} ${await answer.text()}`);
}

for (let attempt = 1; ; attempt += 1) {
  try {
    console.log(await create());
    break;
  } catch (error) {
    // A NetworkPolicy opens a moment after its pod has started; the Job's own retries are minutes apart.
    console.log(`${error.message}${error.cause ? `: ${error.cause.message}` : ""}`);
    if (attempt === 60) process.exit(1);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
}
