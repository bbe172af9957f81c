/** The directions of imports, as the table below says them. A new arrow is a decision: change the table with its reason. */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";

const SRC = join(import.meta.dirname, "../src");

/** Folder → what its files may import: other folders (`#name`), files of the root (`#src/x.ts`), packages. */
const MAY: Record<string, readonly string[]> = {
  rules: [],
  ledger: ["#rules", "#src/failpoints.ts", "pg", "uuid"],
  engine: ["#rules", "#ledger", "#src/failpoints.ts", "canonicalize", "zod"],
  models: ["#rules", "#engine/ports.ts", "openai", "zod"],
  tools: ["#rules", "#engine/ports.ts", "#src/failpoints.ts", "zod"],
  // Its wire is that of the tools (one dialer, one exchange), its words are the engine's.
  mcp: ["#rules", "#engine/ports.ts", "#tools", "#src/failpoints.ts", "ajv", "zod"],
  kube: ["#rules", "#engine/ports.ts", "@pawl/crds", "@kubernetes/client-node", "undici"],
  controllers: [
    "#rules",
    "#ledger",
    "#kube",
    "#engine/canonical.ts",
    "#engine/ports.ts",
    "#src/clock.ts",
    "@pawl/crds",
    "uuid",
  ],
  observability: ["#rules", "#engine/deps.ts", "#controllers/config.ts", "pino", "prom-client"],
  // `pawl trace` builds requests again: by the engine's own builder, or it would prove nothing.
  cli: ["#rules", "#ledger", "#engine/trace.ts"],
};
/** Packages that exactly one folder may know, so that it can be replaced there. */
const ONE_HOME: Record<string, string> = {
  pg: "ledger",
  openai: "models",
  ajv: "mcp",
  undici: "kube",
  "@kubernetes/client-node": "kube",
  pino: "observability",
  "prom-client": "observability",
};

type Import = { file: string; folder: string; from: string };

const files = globSync("**/*.ts", { cwd: SRC }).map((file) => join(SRC, file));
const textOf = (file: string): string => readFileSync(file, "utf8");
const imports: Import[] = files.flatMap((file) =>
  [...textOf(file).matchAll(/(?:^|\n)(?:import|export)\b[^;]*?\bfrom "([^"]+)"|\bimport\("([^"]+)"\)/g)].map(
    (match) => {
      const path = relative(SRC, file);
      return {
        file: path,
        folder: path.includes("/") ? (path.split("/")[0] ?? "") : "",
        from: match[1] ?? match[2] ?? "",
      };
    },
  ),
);
const allowed = (from: string, rules: readonly string[]): boolean =>
  rules.some((rule) => from === rule || from.startsWith(`${rule}/`));

describe("the directions of imports", () => {
  it("are read from every file", () => {
    assert.ok(files.length > 50, `${files.length} files`);
    assert.ok(imports.length > 150, `${imports.length} imports`);
  });

  for (const [folder, rules] of Object.entries(MAY)) {
    it(`${folder} imports nothing but ${["itself", ...rules].join(", ")}`, () => {
      const wrong = imports.filter(({ folder: own, from, file }) => {
        if (own !== folder || from.startsWith("node:")) return false;
        if (from.startsWith(".")) return relative(folder, join(file, "..", from)).startsWith("..");
        return !from.startsWith(`#${folder}/`) && !allowed(from, rules);
      });
      assert.deepEqual(wrong, []);
    });
  }

  it("every folder is in the table", () => {
    assert.deepEqual(
      [...new Set(imports.map(({ folder }) => folder))].filter((folder) => folder !== "" && !(folder in MAY)),
      [],
    );
  });

  it("each SDK has one home", () => {
    const wrong = imports.filter(({ from, folder }) => {
      const home = ONE_HOME[from];
      return home !== undefined && home !== folder;
    });
    assert.deepEqual(wrong, []);
  });

  it("rules do no I/O, and know neither clock nor chance nor await", () => {
    for (const file of files.filter((path) => relative(SRC, path).startsWith("rules/"))) {
      const code = textOf(file).replaceAll(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, "");
      for (const word of [
        /\bawait\b/,
        /\bDate\b/,
        /Math\.random/,
        /\bprocess\b/,
        /performance\./,
        /setTimeout/,
        /"node:/,
      ]) {
        assert.doesNotMatch(code, word, `${relative(SRC, file)} ${word}`);
      }
    }
  });

  it("the environment is read in one file", () => {
    const readers = files.filter((file) => /process\.env/.test(textOf(file))).map((file) => relative(SRC, file));
    assert.deepEqual(readers, ["config.ts"]);
  });

  it("the engine and the rules have never heard of Kubernetes", () => {
    for (const { folder, from, file } of imports) {
      if (folder === "engine" || folder === "rules") assert.doesNotMatch(from, /kube|crds|controllers/, file);
    }
  });
});
