// Which tests belong to which layer. hack/test/suites.test.ts sees to it that every test file belongs to exactly one.

export const SUITES = {
  /** No services: `npm run check`. */
  unit: [
    "bench/test/*.test.ts",
    "crds/test/**/*.test.ts",
    "hack/test/*.test.ts",
    "operator/test/*.test.ts",
    "operator/test/rules/**/*.test.ts",
    "operator/test/cli/**/*.test.ts",
    "operator/test/controllers/**/*.test.ts",
  ],
  /** Fakes as processes. */
  adapters: [
    "fakes/test/**/*.test.ts",
    "operator/test/models/**/*.test.ts",
    "operator/test/tools/**/*.test.ts",
    "operator/test/mcp/**/*.test.ts",
  ],
  /** Real PostgreSQL. Runs on the oldest supported version too. */
  ledger: ["operator/test/ledger/**/*.test.ts"],
  engine: [
    "operator/test/engine/**/*.test.ts",
    "operator/test/observability/**/*.test.ts",
    "operator/test/soak/*.test.ts",
  ],
  try: ["hack/try/**/*.test.ts"],
  /** A real API server. */
  kube: ["operator/test/kube/**/*.test.ts"],
  sweep: ["operator/test/sweep/**/*.test.ts"],
  /** A real cluster. */
  e2e: ["e2e/**/*.test.ts"],
} as const satisfies Record<string, readonly string[]>;
