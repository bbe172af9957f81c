// The fast loop: format, lint, types, generated files, and every test that needs no service.
import { command, type Layer, mocha } from "./layers.ts";
import { SUITES } from "./suites.ts";

const BIN = "node_modules/.bin";

export const fastLayers: readonly Layer[] = [
  { name: "format", run: () => command(`${BIN}/biome`, ["format", "."]) },
  { name: "lint", run: () => command(`${BIN}/oxlint`, ["--deny-warnings"]) },
  { name: "types", run: () => command(`${BIN}/tsc`, ["--noEmit"]) },
  {
    name: "generated files",
    run: async () => {
      await command(process.execPath, ["crds/src/generate.ts", "--check"]);
      await command(process.execPath, ["hack/docs.ts", "--check"]);
    },
  },
  { name: "unit", run: () => mocha(SUITES.unit) },
];
