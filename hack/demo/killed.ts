// The second Run: its worker is killed after the world has accepted a write and before it has answered.
import { setTimeout as delay } from "node:timers/promises";
import { UserError } from "../lib/say.ts";
import { PORT } from "./fakes.ts";
import { awaitAgent } from "./first.ts";
import { killRole } from "./kill.ts";
import type { Kubectl, KubeObject } from "./kubectl.ts";
import { type Waits, waitsOf } from "./ledger.ts";
import { ORDER_TEXT, ORDERS, SCRIPTED } from "./model.ts";
import { DEMO, SYSTEM } from "./places.ts";
import { conditionTable, HEADER, isTrue, row, statusOf, table } from "./run-status.ts";
import type { Screen } from "./screen.ts";

const WORLD = { namespace: DEMO, name: "world", port: PORT };
const AGENT = "tea-shop";
const RUN_MS = 180_000;

export type WorldEntry = {
  seq: number;
  at: string;
  method: string;
  path: string;
  key: string | null;
  outcome: string;
  writeId: number | null;
  mode: string;
};

const agent = {
  apiVersion: "pawl.dev/v1alpha1",
  kind: "Agent",
  metadata: { name: AGENT, namespace: DEMO },
  spec: {
    instructions: "You place orders, one POST request each.",
    models: { primary: SCRIPTED },
    tools: { builtin: ["http_request"], effects: [{ tool: "http_request", key: "Idempotency-Key" }] },
  },
};

const worldLog = async (kubectl: Kubectl, atLeast = 0): Promise<WorldEntry[]> =>
  (await kubectl.service("GET", WORLD, `/log?atLeast=${atLeast}`)) as WorldEntry[];

/** Until the run has its id and the world the write; says what it sees meanwhile. */
async function untilAccepted(kubectl: Kubectl, screen: Screen, name: string, before: number): Promise<string> {
  screen.say(HEADER);
  const accepted = worldLog(kubectl, before + 1);
  let last: KubeObject | undefined;
  for await (const run of kubectl.watch("runs.pawl.dev", name, DEMO, RUN_MS)) {
    last = run;
    if (statusOf(run).phase !== undefined) screen.status(row(run), row(run));
    if (isTrue(run, "Finished")) break;
    if ((statusOf(run).effects?.total ?? 0) > 0) break;
  }
  screen.settle();
  if (last && isTrue(last, "Finished")) {
    const { phase, reason, message } = statusOf(last);
    throw new UserError(`The Run ended before it could be killed: ${phase}, ${reason}: ${message}`);
  }
  const write = (await accepted)[before];
  screen.say(`the world has accepted write ${write?.writeId} (${write?.method} ${write?.path}) and does not answer`);
  return (last && statusOf(last).runID) ?? "";
}

/** `token`: the dead worker's. */
function sentence(
  { lease, effect, status, owner, token: present }: Waits,
  token: number,
): { now: string; plain: string } {
  const seconds = (value: number) => `${Math.max(value, 0).toFixed(0)} s`;
  const open = effect?.settle ?? 0;
  if (present === token && lease !== null && lease <= 0) {
    const plain = "the lease has lapsed; waits for a worker to take the run over";
    return { now: plain, plain };
  }
  if (present === token && lease !== null) {
    const plain = `waits for the dead worker's lease (${owner ?? "?"}) to lapse`;
    return { now: `${plain}: ${seconds(lease)}; the write is settled in ${seconds(open)}`, plain };
  }
  if (effect?.state === "dispatched" && effect.attempt === 1) {
    const plain = "taken over; waits for settle_at: until then the first request may still be on its way";
    return { now: `${plain}, ${seconds(open)}`, plain };
  }
  if (effect?.state === "dispatched") {
    const plain = "sends the request again, under the same key";
    return { now: plain, plain };
  }
  const plain = `the write is ${effect?.state ?? "not recorded"}; the run goes on`;
  return { now: `${plain} (${status})`, plain };
}

/** Says what the run waits for until it has finished. */
async function untilFinished(
  kubectl: Kubectl,
  screen: Screen,
  name: string,
  { runId, token }: { runId: string; token: number },
): Promise<KubeObject> {
  const ended = new AbortController();
  const watching = (async () => {
    while (!ended.signal.aborted) {
      const waits = await waitsOf(kubectl, runId);
      if (ended.signal.aborted) return;
      if (waits !== null) {
        const { now, plain } = sentence(waits, token);
        screen.status(now, plain);
      }
      await delay(1_000, undefined, { signal: ended.signal }).catch(() => undefined);
    }
  })();
  try {
    for await (const run of kubectl.watch("runs.pawl.dev", name, DEMO, RUN_MS)) if (isTrue(run, "Finished")) return run;
    throw new Error("unreachable: the watch ends by throwing");
  } finally {
    ended.abort();
    await watching;
    screen.settle();
  }
}

/** What the world wrote down itself; throws when it is not one write under one key. */
export function verdict(log: readonly WorldEntry[]): string {
  const keys = new Set(log.map(({ key }) => key));
  const writes = log.filter(({ outcome }) => outcome === "write").length;
  if (log.length !== 2 || keys.size !== 1 || writes !== 1) {
    throw new UserError(
      `That is not what should have happened: ${log.length} requests under ${keys.size} keys, ${writes} writes. Please report it with the lines above.`,
    );
  }
  return "two requests, one key, one write";
}

/** Kubernetes makes a container that has died before wait longer each time: a demo that is repeated starts afresh. */
async function freshWorker(kubectl: Kubectl): Promise<void> {
  const selector = ["-l", "app.kubernetes.io/component=worker"];
  const path = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
  const restarts = (await kubectl.run(["get", "pods", "-n", SYSTEM, ...selector, "-o", path])).trim();
  if (restarts.split(" ").every((count) => count === "0")) return;
  await kubectl.run(["rollout", "restart", "-n", SYSTEM, "deploy/pawl-worker"]);
  await kubectl.run(["rollout", "status", "-n", SYSTEM, "deploy/pawl-worker", "--timeout=120s"]);
}

export async function killedRun(kubectl: Kubectl, screen: Screen, use: string): Promise<string> {
  const name = `order-${use}`;
  await freshWorker(kubectl);
  await kubectl.apply(agent);
  await awaitAgent(kubectl, AGENT);
  const before = (await worldLog(kubectl)).length;
  await kubectl.service("PUT", WORLD, "/control", { path: ORDERS, mode: "hold", times: 1 });
  screen.say(`the world will accept the next write to ${ORDERS} and never answer it`);
  screen.say(`${AGENT} is asked: ${ORDER_TEXT}   (a scripted model, always)`);
  await kubectl.apply({
    apiVersion: "pawl.dev/v1alpha1",
    kind: "Run",
    metadata: { name, namespace: DEMO },
    spec: { agentRef: { name: AGENT }, input: { text: ORDER_TEXT } },
  });
  const runId = await untilAccepted(kubectl, screen, name, before);
  const token = (await waitsOf(kubectl, runId))?.token ?? 0;
  const { pod, pid } = await killRole(kubectl, SYSTEM, "worker");
  const killed = screen.seconds;
  screen.say(`kill -9 ${pid}: the worker's process in pod ${pod} is dead; Kubernetes starts another in its place`);
  const done = await untilFinished(kubectl, screen, name, { runId, token });
  screen.say(row(done));
  screen.say(`the same Run (${runId}) finished ${(screen.seconds - killed).toFixed(1)} s after the kill`);
  if (!isTrue(done, "Succeeded")) {
    const { phase, reason, message } = statusOf(done);
    throw new UserError(`The Run ended ${phase}, ${reason}: ${message}`);
  }
  screen.say("The answer:");
  screen.show(statusOf(done).answer?.preview ?? "(none)", "           ");
  screen.say("What the world wrote down itself:");
  const log = (await worldLog(kubectl)).slice(before);
  const rows = log.map((one) => [
    one.at.slice(11, 23),
    one.method,
    one.path,
    one.key ?? "-",
    one.outcome,
    `${one.writeId}`,
  ]);
  screen.show(table([["AT", "METHOD", "PATH", "IDEMPOTENCY-KEY", "OUTCOME", "WRITE"], ...rows]), "           ");
  screen.say(verdict(log));
  screen.say("What the Run says:");
  screen.show(conditionTable(done), "           ");
  return name;
}
