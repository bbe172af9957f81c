// The inn's clerk is talked to while he works: three corrections in a row, and one that comes too late.
import { table } from "../demo/run-status.ts";
import { UserError } from "../lib/say.ts";
import type { Cast } from "./cast.ts";
import { claimant, ended, manifestOf, showWhy, textOf } from "./scenes.ts";
import { INN } from "./shops.ts";
import { until } from "./stage.ts";

type Request = { readonly method?: unknown; readonly outcome?: unknown; readonly bodyPreview?: unknown };

/** What the inn has been asked about one order, as it wrote it down itself. */
async function requestsOf(cast: Cast, order: string): Promise<Request[]> {
  const log = (await cast.witness.log()) as (Request & { path?: unknown })[];
  return log.filter(({ path, bodyPreview }) => path === INN && String(bodyPreview).includes(`"${order}"`));
}

/** The model is asked for a step of a script, and takes its time. */
async function thinks(cast: Cast, script: string, step: number): Promise<void> {
  await until(`the model is asked for step ${step} of ${script}`, async () => {
    const log = (await cast.model.log()) as { script?: unknown; step?: unknown }[];
    return log.some((entry) => entry.script === script && entry.step === step) ? true : undefined;
  });
}

async function say(cast: Cast, name: string): Promise<void> {
  const run = manifestOf(name);
  const { kind } = await cast.ledger.say(run);
  cast.stage.line(`alice, meanwhile: ${textOf(run)}   (Run ${name}: ${kind})`);
}

/** As `kubectl get runs` would show them. */
async function showRuns(cast: Cast, names: readonly string[]): Promise<void> {
  const rows = await Promise.all(
    names.map(async (name) => {
      const status = await cast.ledger.status(manifestOf(name));
      return [name, status.phase ?? "-", status.boundary?.restartable ?? "-", status.message ?? "-"];
    }),
  );
  cast.stage.block(table([["NAME", "PHASE", "RESTARTABLE", "MESSAGE"], ...rows]));
}

function expect(what: string, found: unknown, wanted: unknown): void {
  if (JSON.stringify(found) === JSON.stringify(wanted)) return;
  const seen = `${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`;
  throw new UserError(
    `That is not what should have happened: ${what}: ${seen}. Please report it with the lines above.`,
  );
}

export async function corrections(cast: Cast): Promise<void> {
  const { stage, ledger } = cast;
  await stage.next("order at the inn, and change your mind three times");
  stage.title("Three corrections in a row, before anything was ordered");
  const order = manifestOf("inn-1");
  const names = ["inn-1-two", "inn-1-tea", "inn-1-three"];
  stage.line(`inn-1: ${textOf(order)}`);
  await claimant(cast, await ledger.applyRun(order));
  await thinks(cast, "inn-1", 0);
  stage.line("a worker has begun the turn, the model is thinking about it");
  for (const name of names) await say(cast, name);
  await until("the restart", async () => ((await ledger.mirror(order)).restarts > 0 ? true : undefined));
  for (const name of names) {
    await until(`what becomes of ${name}`, async () =>
      (await ledger.mirror(manifestOf(name))).run_id === null ? undefined : true,
    );
  }
  expect("requests at the inn before the restart", (await requestsOf(cast, "inn-1")).length, 0);
  stage.line("the first one restarts the turn; the others come before it has begun anew, and are taken in:");
  await showRuns(cast, ["inn-1", ...names]);
  const mirror = await ended(ledger, order);
  expect("restarts", mirror.restarts, 1);
  const requests = await requestsOf(cast, "inn-1");
  expect(
    "the inn's log",
    requests.map(({ method, outcome }) => [method, outcome]),
    [["POST", "write"]],
  );
  stage.line(
    `four messages, one turn, restarted once; the inn has heard of it once: ${String(requests[0]?.bodyPreview)}`,
  );
  stage.block(mirror.reply ?? "(none)");
  await showWhy(cast, "inn-1");
}

export async function tooLate(cast: Cast): Promise<void> {
  const { stage, ledger, model } = cast;
  await stage.next("change your mind after the order has left");
  stage.title("A correction after the write");
  const [order, late] = [manifestOf("inn-2"), manifestOf("inn-2-late")];
  stage.line(`inn-2: ${textOf(order)}`);
  await claimant(cast, await ledger.applyRun(order));
  await thinks(cast, "inn-2", 1);
  stage.line("the inn has the order; the model is about to say so");
  await say(cast, "inn-2-late");
  const told = await until("the decision about it", async () => (await ledger.downgrade(late)) ?? undefined);
  stage.line(`alice is told: ${told}`);
  await showRuns(cast, ["inn-2", "inn-2-late"]);
  await model.control("POST", "/release");
  stage.block((await ended(ledger, order)).reply ?? "(none)");
  await approved(cast);
  const mirror = await ended(ledger, late);
  const log = (await requestsOf(cast, "inn-2")).map(({ method, outcome }) => [method, outcome]);
  expect("the inn's log", log, [
    ["POST", "write"],
    ["DELETE", "write"],
  ]);
  stage.line("the inn has been asked for it once, and once not to: nothing was restarted, nothing happened twice");
  stage.block(mirror.reply ?? "(none)");
  await showWhy(cast, "inn-2-late");
}

/** The undo waits for a person, and not for the one who asked. */
async function approved({ stage, ledger }: Cast): Promise<void> {
  const late = manifestOf("inn-2-late");
  await until("the undo waits for a person", async () =>
    (await ledger.mirror(late)).waiting === null ? undefined : true,
  );
  stage.line("the next turn knows what was changed, and wants to take it back; that needs a person (requireApproval)");
  for (const actor of ["alice", "bob"]) {
    const { state, reason, message } = await ledger.approve(late, actor);
    stage.line(`${actor} approves: ${state}, ${reason}: ${message}`);
  }
}
