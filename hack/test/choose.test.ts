import assert from "node:assert/strict";
import { choose } from "../cluster/choose.ts";

describe("the choice of the cluster", () => {
  it("takes the named context before everything else", () => {
    const choice = choose({ context: "prod-eu", engine: "docker", platform: "linux" });
    assert.deepEqual(choice, { kind: "named", context: "prod-eu" });
  });

  it("takes kind where a container engine answers", () => {
    assert.deepEqual(choose({ context: undefined, engine: "podman", platform: "darwin" }), {
      kind: "kind",
      engine: "podman",
    });
  });

  it("makes a local cluster on Linux without a container engine", () => {
    assert.deepEqual(choose({ context: undefined, engine: undefined, platform: "linux" }), { kind: "local" });
  });

  it("says elsewhere how to name a kind cluster", () => {
    const choice = choose({ context: undefined, engine: undefined, platform: "darwin" });
    assert.equal(choice.kind, "none");
    assert.match(choice.kind === "none" ? choice.advice : "", /--context kind-NAME/);
  });
});
