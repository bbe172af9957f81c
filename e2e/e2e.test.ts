/**
 * Black-box journeys on a real cluster: kubectl and helm, as a person uses them. One install serves them all, so that
 * the order is fixed here; the last journey takes it away.
 */
import { applyJourneys } from "./journeys/apply.ts";
import { approvalJourneys } from "./journeys/approvals.ts";
import { busyJourneys } from "./journeys/busy.ts";
import { chartJourneys } from "./journeys/charts.ts";
import { crashJourneys } from "./journeys/crash.ts";
import { installJourneys } from "./journeys/install.ts";
import { mcpJourneys } from "./journeys/mcp.ts";
import { readingJourneys } from "./journeys/reading.ts";
import { runJourneys } from "./journeys/runs.ts";
import { secretJourneys } from "./journeys/secrets.ts";
import { uninstallJourneys } from "./journeys/uninstall.ts";
import { upgradeJourneys } from "./journeys/upgrade.ts";
import { Pawl } from "./support/pawl.ts";

describe("On a real cluster", function () {
  // A pod that starts on a busy machine of two cores takes its time; nothing here waits without a reason.
  this.timeout(180_000);
  let pawl: Pawl | undefined;
  const installed = (): Pawl => {
    if (pawl === undefined) throw new Error("nothing was installed");
    return pawl;
  };

  before(async function () {
    this.timeout(600_000);
    pawl = await Pawl.install();
  });
  // What a person would look at first; the pods are gone when the report is read.
  afterEach(async function () {
    if (this.currentTest?.state === "failed") console.error(await pawl?.logs());
  });
  after(async () => {
    await pawl?.remove();
  });

  chartJourneys(installed);
  installJourneys(installed);
  applyJourneys(installed);
  readingJourneys(installed);
  runJourneys(installed);
  secretJourneys(installed);
  approvalJourneys(installed);
  busyJourneys(installed);
  mcpJourneys(installed);
  crashJourneys(installed);
  upgradeJourneys(installed);
  uninstallJourneys(installed);
});
