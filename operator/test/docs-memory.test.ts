/** The manifest that docs/memory.md shows is taken as it stands. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { AGENT, checkAgent, notActedUpon } from "@pawl/crds";

describe("docs/memory.md", () => {
  it("shows a spec that is valid and acted upon", () => {
    const text = readFileSync(join(import.meta.dirname, "../../docs/memory.md"), "utf8");
    const shown = parse(/```yaml\n([\s\S]*?)```/.exec(text)?.[1] ?? "") as { spec: object };
    const checked = checkAgent({
      apiVersion: "pawl.dev/v1alpha1",
      kind: "Agent",
      metadata: { name: "clerk", namespace: "shop" },
      spec: { instructions: "Be brief.", ...shown.spec },
    });
    assert.ok(checked.ok, JSON.stringify(checked));
    assert.deepEqual(checked.value.tools?.memory, { audience: "Conversation" });
    const { refused, ignored } = notActedUpon(AGENT, checked.value);
    assert.deepEqual([refused, ignored], [[], []]);
  });
});
