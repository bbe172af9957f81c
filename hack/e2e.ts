// npm run e2e [-- --context NAME] [-- --grep WORDS]: black-box journeys on a real cluster, one of its own unless named.
import { parseArgs } from "node:util";
import { ensureCluster } from "./cluster/cluster.ts";
import { mocha, runLayers } from "./lib/layers.ts";
import { SUITES } from "./lib/suites.ts";
import { logToStderr } from "./lib/say.ts";

/** `argv` as after `npm run e2e --`; what mocha understands is handed on. */
export async function e2e(argv: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...argv], options: { context: { type: "string" }, grep: { type: "string" } } });
  const cluster = await ensureCluster({
    ...(values.context === undefined ? {} : { context: values.context }),
    log: logToStderr,
  });
  await mocha(
    SUITES.e2e,
    { PAWL_E2E_CLUSTER: JSON.stringify(cluster) },
    values.grep === undefined ? [] : ["--grep", values.grep],
  );
}

if (import.meta.main) await runLayers([{ name: "e2e", run: () => e2e(process.argv.slice(2)) }]);
