// The first Run: the samples of the repository, applied, watched and answered.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse, parseAllDocuments } from "yaml";
import { repository } from "../lib/environment.ts";
import { UserError } from "../lib/say.ts";
import type { Kubectl, KubeObject } from "./kubectl.ts";
import { DEMO, SYSTEM } from "./places.ts";
import { conditionOf, HEADER, isTrue, row, statusOf } from "./run-status.ts";
import type { Screen } from "./screen.ts";

const sample = (name: string) => readFileSync(join(repository, "samples", name), "utf8");
const placed = (object: KubeObject) => ({ ...object, metadata: { ...object.metadata, namespace: DEMO } });

/** Longer than any model call of one question. */
const ANSWER_MS = 180_000;

export async function applyAgents(kubectl: Kubectl): Promise<void> {
  const agents = parseAllDocuments(sample("agent.yaml")).map((document) => placed(document.toJS() as KubeObject));
  await kubectl.apply(...agents);
}

export async function awaitAgent(kubectl: Kubectl, name: string): Promise<void> {
  const wait = ["wait", "--for=condition=Ready", "--timeout=60s", "-n", DEMO, `agents.pawl.dev/${name}`];
  const { code, stderr } = await kubectl.try(wait);
  if (code === 0) return;
  const agent = await kubectl.get("agents.pawl.dev", name, DEMO);
  const ready = agent && conditionOf(agent, "Ready");
  throw new UserError(`The Agent ${name} is not ready. ${ready ? `${ready.reason}: ${ready.message}` : stderr.trim()}`);
}

/** Shows a Run until it has finished. */
export async function follow(kubectl: Kubectl, screen: Screen, name: string, ms: number): Promise<KubeObject> {
  for await (const run of kubectl.watch("runs.pawl.dev", name, DEMO, ms)) {
    if (statusOf(run).phase !== undefined) screen.status(row(run), row(run));
    if (isTrue(run, "Finished")) {
      screen.settle();
      if (process.stdout.isTTY) screen.say(row(run));
      return run;
    }
  }
  throw new Error("unreachable: the watch ends by throwing");
}

/** `use` sets this demo's Run apart from those of earlier ones: a message is answered once, ever. */
export async function firstRun(kubectl: Kubectl, screen: Screen, use: string): Promise<void> {
  const run = placed(parse(sample("run.yaml")) as KubeObject);
  const name = `${run.metadata.name}-${use}`;
  const { text } = (run.spec as { input: { text: string } }).input;
  screen.say(`kubectl apply -f samples/agent.yaml -f samples/run.yaml   (as ${name})`);
  screen.say(`hello is asked: ${text}`);
  screen.say(HEADER);
  await applyAgents(kubectl);
  await kubectl.apply({ ...run, metadata: { ...run.metadata, name } });
  const done = await follow(kubectl, screen, name, ANSWER_MS);
  const status = statusOf(done);
  if (!isTrue(done, "Succeeded")) {
    const worker = await kubectl.try(["logs", "-n", SYSTEM, "deploy/pawl-worker", "--tail=5"]);
    throw new UserError(`The Run ended ${status.phase}, ${status.reason}: ${status.message}\n${worker.stdout}`);
  }
  screen.say("The answer:");
  screen.show(status.answer?.preview ?? "(none)", "           ");
}
