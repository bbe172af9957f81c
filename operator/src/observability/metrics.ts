/** Metrics `pawl_*` with closed label sets, zero-initialised so that a rate is there from the first scrape. */
import { Counter, Gauge, collectDefaultMetrics, Registry } from "prom-client";
import type { Meter } from "#engine/deps.ts";
import type { ControllerMetrics } from "#controllers/config.ts";

const STATUSES = ["succeeded", "failed", "cancelled", "budget_exhausted"];
const EFFECTS = ["confirmed", "failed", "unknown"];

export type Metrics = { readonly registry: Registry; readonly engine: Meter; readonly controllers: ControllerMetrics };

function counter<L extends string>(registry: Registry, name: string, help: string, labels: readonly L[] = []) {
  return new Counter<L>({ name, help, labelNames: labels, registers: [registry] });
}

function engineMeter(registry: Registry): Meter {
  const claims = counter(registry, "pawl_run_claims_total", "Runs claimed, by whether a lapsed lease was taken over.", [
    "takeover",
  ]);
  const calls = counter(registry, "pawl_model_requests_total", "Model calls by outcome: response, or failed.", [
    "outcome",
  ]);
  const effects = counter(registry, "pawl_effects_total", "Effects sent, by outcome as their sender saw it.", [
    "outcome",
  ]);
  const ended = counter(registry, "pawl_runs_ended_total", "Runs ended by this worker, by status.", ["status"]);
  for (const takeover of ["true", "false"]) claims.inc({ takeover }, 0);
  for (const outcome of ["response", "failed"]) calls.inc({ outcome }, 0);
  for (const outcome of EFFECTS) effects.inc({ outcome }, 0);
  for (const status of STATUSES) ended.inc({ status }, 0);
  return {
    claimed: (takeover) => claims.inc({ takeover: String(takeover) }),
    modelCall: (outcome) => calls.inc({ outcome: outcome === "response" ? "response" : "failed" }),
    effect: (outcome) => effects.inc({ outcome }),
    ended: (status) => ended.inc({ status }),
  };
}

function controllerMeter(registry: Registry): ControllerMetrics {
  const reconciles = counter(registry, "pawl_reconciles_total", "Reconciles by controller and outcome.", [
    "controller",
    "outcome",
  ]);
  const writes = counter(registry, "pawl_status_writes_total", "Status writes by kind.", ["kind"]);
  const sweeps = counter(registry, "pawl_sweeps_total", "Sweeps for runs whose object is gone, by result.", ["result"]);
  const missed = counter(
    registry,
    "pawl_watch_missed_total",
    "Changes that a relist found and the watch had not told.",
    ["resource"],
  );
  const leader = new Gauge({
    name: "pawl_leader",
    help: "1 while this controller is the active one.",
    registers: [registry],
  });
  const depth = new Gauge({
    name: "pawl_queue_depth",
    help: "Keys waiting, by controller.",
    labelNames: ["controller"],
    registers: [registry],
  });
  for (const name of ["agent", "run", "decision"]) {
    for (const outcome of ["ok", "failed"]) reconciles.inc({ controller: name, outcome }, 0);
    depth.set({ controller: name }, 0);
  }
  for (const kind of ["Agent", "Run", "Decision"]) writes.inc({ kind }, 0);
  for (const result of ["clean", "cancelled", "suspended"]) sweeps.inc({ result }, 0);
  return {
    reconciled: (name, outcome) => reconciles.inc({ controller: name, outcome }),
    statusWritten: (kind) => writes.inc({ kind }),
    leader: (held) => leader.set(held ? 1 : 0),
    sweep: (result) => sweeps.inc({ result }),
    watchMissed: (resource, changes) => missed.inc({ resource }, changes),
    queueDepth: (name, value) => depth.set({ controller: name }, value),
  };
}

export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return { registry, engine: engineMeter(registry), controllers: controllerMeter(registry) };
}

/** A scrape waits this long for the ledger; then it tells the last value that was seen. */
export const SCRAPE_MS = 1_000;

/** Asked at each scrape. `oldestSnapshotMs`: how long the oldest open transaction holds old row versions. */
export function watchLedger(registry: Registry, oldestSnapshotMs: () => Promise<number>): void {
  const gauge = new Gauge({
    name: "pawl_ledger_oldest_snapshot_seconds",
    help: "Age of the oldest open transaction in the ledger's database; above a minute nothing is cleaned up and claims grow slow.",
    registers: [registry],
    collect: async () => {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, SCRAPE_MS);
      });
      const asked = oldestSnapshotMs().then(
        (ms) => gauge.set(ms / 1000),
        () => {}, // the ledger is away: readiness and the log say so
      );
      await Promise.race([asked, late]);
      clearTimeout(timer);
    },
  });
}
