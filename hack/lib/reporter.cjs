// Mocha's spec reporter, and beside it the counts as a file: `npm test` adds up those of its layers. CommonJS, because
// that is how mocha loads reporters by path.
const { writeFileSync } = require("node:fs");
const { join } = require("node:path");
const { reporters } = require("mocha");

module.exports = class extends reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    runner.once("end", () => {
      const folder = process.env.PAWL_COUNTS;
      if (folder === undefined) return;
      const { passes, failures, pending } = runner.stats;
      writeFileSync(
        join(folder, `${process.pid}.json`),
        JSON.stringify({ passed: passes, failed: failures, skipped: pending }),
      );
    });
  }
};
