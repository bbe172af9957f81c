// Who takes part: the ledger, two workers, the scripted model and the witness, each a process of its own.
import { join } from "node:path";
import { type Fake, type FakeKind, startFake } from "@pawl/fakes";
import { Counter } from "./counter.ts";
import { Ledger, manifests } from "./ledger.ts";
import type { Leftovers } from "./leftovers.ts";
import { type Postgres, startPostgres } from "./postgres.ts";
import { scriptBook } from "./shops.ts";
import type { Stage } from "./stage.ts";
import { Worker } from "./worker.ts";

export type Cast = {
  readonly stage: Stage;
  readonly leftovers: Leftovers;
  readonly counter: Counter;
  readonly postgres: Postgres;
  readonly ledger: Ledger;
  readonly model: Fake;
  readonly witness: Fake;
  /** Those that live, by name. */
  readonly workers: Map<string, Worker>;
};

async function fake(kind: FakeKind, leftovers: Leftovers): Promise<Fake> {
  const started = await startFake(kind, { log: join(leftovers.folder, `${kind}.jsonl`) });
  leftovers.onRemove(() => started.stop());
  return started;
}

/** Waits for all, so that what did start is known and can be removed when another one failed. */
async function together<A, B, C>(a: Promise<A>, b: Promise<B>, c: Promise<C>): Promise<[A, B, C]> {
  await Promise.allSettled([a, b, c]);
  return Promise.all([a, b, c]);
}

export async function openLedger(
  postgres: Postgres,
  leftovers: Leftovers,
  modelUrl: string,
  name: string,
): Promise<Ledger> {
  const ledger = new Ledger(await postgres.create(name), modelUrl);
  leftovers.onRemove(() => ledger.close());
  for (const agent of manifests("agents.yaml")) await ledger.applyAgent(agent);
  return ledger;
}

export function hire(cast: Cast, name: string): Worker {
  const worker = new Worker(cast.leftovers, { ledgerUrl: cast.ledger.url, name });
  cast.workers.set(name, worker);
  return worker;
}

export async function gather(stage: Stage, leftovers: Leftovers, kills: number): Promise<Cast> {
  stage.title("The cast");
  stage.line(
    "no cluster here: manifests are checked as the API server and the controllers would, and go into the ledger",
  );
  stage.line("no sandboxes yet: agents have calculate and http_request, and no tool that executes anything");
  const [postgres, model, witness] = await together(
    startPostgres(leftovers),
    fake("model", leftovers),
    fake("world", leftovers),
  );
  await model.control("PUT", "/script", scriptBook(witness.url, kills + 1));
  const ledger = await openLedger(postgres, leftovers, model.url, "ledger");
  const cast: Cast = {
    stage,
    leftovers,
    counter: new Counter(),
    postgres,
    ledger,
    model,
    witness,
    workers: new Map(),
  };
  stage.line(
    "PostgreSQL runs, the ledger is in it; Agents north, east, west and inn are accepted (hack/try/manifests/agents.yaml)",
  );
  stage.line(`a scripted model answers at ${model.url}: no real model is asked, no key is used`);
  stage.line(`the witness: four tea shops and an inn that log each request they accept and have never heard of Pawl`);
  stage.line(`  its page: ${witness.url}/   its log: ${witness.url}/log`);
  for (const name of ["a", "b"]) stage.line(`worker ${name} starts, process ${hire(cast, name).pid}`);
  return cast;
}
