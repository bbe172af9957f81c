// The scenario: what is asked, what is killed and when, and what is shown of it.
import { join } from "node:path";
import type { KubeObject } from "../../operator/src/kube/resources.ts";
import type { Mirror } from "../../operator/src/ledger/mirrors.ts";
import { table } from "../demo/run-status.ts";
import { run } from "../lib/run.ts";
import { UserError } from "../lib/say.ts";
import { type Cast, hire } from "./cast.ts";
import type { Tally } from "./counter.ts";
import { manifests, NAMESPACE } from "./ledger.ts";
import { believesDone, PlainLoop } from "./plain.ts";
import { orderText, type Shop, SHOPS } from "./shops.ts";
import { until, within } from "./stage.ts";
import { MAIN, type Worker } from "./worker.ts";

export const textOf = (run: KubeObject): string => (run["spec"] as { input: { text: string } }).input.text;
const word = (value: unknown): string => (typeof value === "string" || typeof value === "number" ? `${value}` : "-");
export const manifestOf = (name: string): KubeObject => {
  const found = manifests("runs.yaml").find(({ metadata }) => metadata.name === name);
  if (found === undefined) throw new Error(`no Run ${name} in manifests/runs.yaml`);
  return found;
};

/** Until the turn has ended; adds what its journal says of its writes. */
export async function ended(ledger: Cast["ledger"], run: KubeObject, tally?: Tally): Promise<Mirror> {
  const mirror = await until(`the end of the Run ${run.metadata.name}`, async () => {
    const seen = await ledger.mirror(run);
    return seen.ended_at === null ? undefined : seen;
  });
  if (mirror.status !== "succeeded") {
    throw new UserError(`The Run ${run.metadata.name} ended ${mirror.status}, ${mirror.reason}: ${mirror.message}`);
  }
  if (tally !== undefined) {
    const states = ((mirror.last_effects ?? []) as { state: string }[]).map(({ state }) => state);
    tally.confirmed += states.filter((state) => state === "confirmed").length;
    tally.failed += states.filter((state) => state === "failed").length;
    tally.unknown += mirror.effects_unknown;
  }
  return mirror;
}

export async function question(cast: Cast): Promise<void> {
  const { stage, ledger } = cast;
  const asked = manifestOf("question");
  await stage.next("ask something harmless");
  stage.title("A question");
  stage.line(`alice asks: ${textOf(asked)}   (hack/try/manifests/runs.yaml)`);
  await ledger.applyRun(asked);
  const mirror = await ended(ledger, asked);
  stage.line(`succeeded after ${mirror.steps} model calls; nothing outside was changed before the answer itself:`);
  stage.block(mirror.reply ?? "(none)");
}

/** The worker that claims this turn, out of those that live. */
export function claimant(cast: Cast, runId: string): Promise<Worker> {
  return within(
    "a worker claims the Run",
    Promise.race(
      [...cast.workers.values()].map(async (worker) => {
        await worker.claimed(runId);
        return worker;
      }),
    ),
  );
}

/** The shop takes the next write down and does not answer. Resolves when it has. */
async function holdNext(cast: Cast, shop: Shop): Promise<{ accepted: Promise<unknown> }> {
  const before = (await cast.witness.log()).length;
  await cast.witness.control("PUT", "/control", { path: SHOPS[shop], mode: "hold", times: 1 });
  return { accepted: within(`the ${shop} shop accepts a write`, cast.witness.log(before + 1)) };
}

async function showLog(cast: Cast, shop: Shop): Promise<void> {
  const log = (await cast.witness.log()).filter((entry) => entry["path"] === SHOPS[shop]);
  const rows = log.map((entry) => [
    entry.at.slice(11, 23),
    ...["method", "path", "key", "outcome", "writeId"].map((field) => word(entry[field])),
  ]);
  cast.stage.line(`what the ${shop} shop wrote down itself:`);
  cast.stage.block(table([["AT", "METHOD", "PATH", "IDEMPOTENCY-KEY", "OUTCOME", "WRITE"], ...rows]));
}

/** An order whose worker is killed between the shop's write and its answer. */
async function killedOrder(cast: Cast, name: string, shop: Shop): Promise<Mirror> {
  const { stage, ledger, counter, workers } = cast;
  const order = manifestOf(name);
  const held = await holdNext(cast, shop);
  stage.line(`${order.metadata.name}: ${textOf(order)}`);
  const runId = await ledger.applyRun(order);
  counter.of[shop].asked += 1;
  const victim = await claimant(cast, runId);
  await held.accepted;
  await victim.kill();
  const killed = performance.now();
  counter.of[shop].kills += 1;
  workers.delete(victim.name);
  stage.line(
    `the ${shop} shop has carried out the write and has not answered: kill -9 ${victim.pid}, worker ${victim.name} is gone`,
  );
  stage.count(counter.line());
  const heir = await claimant(cast, runId);
  const seconds = ((performance.now() - killed) / 1_000).toFixed(1);
  stage.line(`the lease has lapsed: worker ${heir.name} takes the turn over, ${seconds} s after the kill`);
  stage.line(`worker ${victim.name} is started again, process ${hire(cast, victim.name).pid}`);
  const mirror = await ended(ledger, order, counter.of[shop]);
  stage.line("succeeded; its answer:");
  stage.block(mirror.reply ?? "(none)");
  stage.count(counter.line());
  await showLog(cast, shop);
  return mirror;
}

export async function inFlight(cast: Cast): Promise<void> {
  const { stage } = cast;
  await stage.next("order tea, and kill the worker while the write is in flight");
  stage.title("A write in flight, and kill -9");
  await killedOrder(cast, "north-1", "north");
  stage.line(
    "two requests under one key, one write; the second request waited until the first could not arrive any more",
  );
  await showWhy(cast, "north-1");
}

export async function showWhy({ stage, ledger }: Cast, name: string): Promise<void> {
  await stage.next("see why");
  stage.line(`pawl why ${name} -n ${NAMESPACE}`);
  const why = ["why", name, "-n", NAMESPACE];
  const { stdout } = await run(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...why], {
    env: { PAWL_LEDGER_URL: ledger.url, PAWL_KUBERNETES: "none" },
  });
  stage.block(stdout.trimEnd());
}

export async function looked(cast: Cast): Promise<void> {
  const { stage } = cast;
  await stage.next("the same at a shop that honours no keys, but shows its orders");
  stage.title("Pawl at a shop that honours no keys, but shows its orders");
  await killedOrder(cast, "east-1", "east");
  stage.line("sent once; when it could not arrive any more Pawl looked for its key among the orders, and found it");
  await showWhy(cast, "east-1");
}

export async function plainLoop(cast: Cast): Promise<void> {
  const { stage, counter, leftovers, model } = cast;
  await stage.next("the same in a plain retry-from-checkpoint loop");
  stage.title("The same tool, model and kind of shop in a plain retry-from-checkpoint loop (hack/try/plain-loop.ts)");
  const started = {
    checkpoint: join(leftovers.folder, "south-1.json"),
    ask: orderText("south-1"),
    modelUrl: model.url,
  };
  const held = await holdNext(cast, "south");
  const first = new PlainLoop(leftovers, started);
  counter.of.south.asked += 1;
  stage.line(`south-1: ${started.ask}`);
  await held.accepted;
  await first.kill();
  counter.of.south.kills += 1;
  stage.line(`the south shop has carried out the write and has not answered: kill -9 ${first.child.pid}`);
  stage.count(counter.line());
  const answer = await new PlainLoop(leftovers, started).answer();
  counter.of.south.confirmed += believesDone(started.checkpoint);
  stage.line("started again, it goes on from its checkpoint: the request, once more; its answer:");
  stage.block(answer ?? "(none)");
  stage.count(counter.line());
  await showLog(cast, "south");
  stage.line("its own record holds one call with one result: it does not know that it ordered twice");
  stage.line(
    "it sent no key: one saved before the request left would have helped here, if its author had thought of it",
  );
}

export async function withoutKeys(cast: Cast): Promise<void> {
  const { stage } = cast;
  await stage.next("Pawl again, at a shop that honours no keys and that it cannot look at");
  stage.title("Pawl at a shop that honours no keys, and that it cannot look at");
  const mirror = await killedOrder(cast, "west-1", "west");
  stage.line(`sent once, never again; the Run says: ${mirror.message ?? ""}`);
}
