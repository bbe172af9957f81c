// npm run cluster -- up|down|status|kubeconfig
import { runMain } from "../lib/main.ts";
import { logToStderr as log } from "../lib/say.ts";
import { parseArguments, USAGE } from "./arguments.ts";
import { type ClusterStatus, clusterStatus, ensureCluster, removeCluster } from "./cluster.ts";

const print = (text: string) => process.stdout.write(`${text}\n`);

function describe(status: ClusterStatus): string {
  const head = `${status.kind} cluster, context ${status.context}: ${status.running ? "running" : `not running (${status.reason ?? "not made"})`}`;
  const processes = status.processes ?? [];
  const rows = processes.map(
    (one) => `  ${one.name.padEnd(24)} ${one.running ? `pid ${one.pid}`.padEnd(12) : "ended".padEnd(12)} ${one.log}`,
  );
  return [head, ...rows].join("\n");
}

await runMain(async () => {
  const { command, context, json } = parseArguments(process.argv.slice(2));
  switch (command) {
    case "help":
      print(USAGE);
      return 0;
    case "up":
    case "kubeconfig": {
      const cluster = await ensureCluster({ context, log });
      if (json) print(JSON.stringify(cluster));
      else if (command === "kubeconfig") print(cluster.kubeconfig);
      else
        print(
          `${cluster.kind} cluster is ready\n  export KUBECONFIG=${cluster.kubeconfig}\n  ${cluster.kubectl} get pods -A`,
        );
      return 0;
    }
    case "status": {
      const status = await clusterStatus({ context, log });
      print(json ? JSON.stringify(status) : describe(status));
      return status.running ? 0 : 1;
    }
    case "down":
      await removeCluster({ context, log });
      if (json) print(JSON.stringify({ removed: true }));
      return 0;
  }
});
