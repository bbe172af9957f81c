// npm test: everything. Builds what is missing, says how long each layer took; the closing line is the count.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { startControlPlane } from "./cluster/control-plane.ts";
import { e2e } from "./e2e.ts";
import { fastLayers } from "./lib/fast.ts";
import { type Layer, mocha, runLayers } from "./lib/layers.ts";
import { SUITES } from "./lib/suites.ts";
import { logToStderr } from "./lib/say.ts";

/** The oldest version that is supported, where Debian puts it. */
const OLDEST_POSTGRES = "/usr/lib/postgresql/15/bin";

const layers: readonly Layer[] = [
  ...fastLayers,
  { name: "adapters and fakes", run: () => mocha(SUITES.adapters) },
  { name: "ledger", run: () => mocha(SUITES.ledger) },
  { name: "engine", run: () => mocha(SUITES.engine) },
  { name: "try", run: () => mocha(SUITES.try) },
  {
    name: "ledger on PostgreSQL 15",
    run: async () => {
      if (existsSync(join(OLDEST_POSTGRES, "initdb")))
        await mocha(SUITES.ledger, { PAWL_TEST_POSTGRES: OLDEST_POSTGRES });
      else console.log(`not on this machine (${OLDEST_POSTGRES}): the ledger was tested on the embedded version only`);
    },
  },
  {
    name: "control plane build",
    // Started once for its side effect: the binaries are built and cached, with progress, outside any test's time limit.
    run: async () => {
      await (await startControlPlane({ log: logToStderr })).stop();
    },
  },
  { name: "kube", run: () => mocha(SUITES.kube) },
  { name: "crash sweep", run: () => mocha(SUITES.sweep) },
  { name: "e2e", run: () => e2e([]) },
];

await runLayers(layers);
